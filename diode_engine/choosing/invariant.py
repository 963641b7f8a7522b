"""Kernels whose results for a row do not depend on the batch that the row is part of.

For each layer one order of summation is fixed, or several that were shown to give the same bits:
those whose kernels are predicted to take the least time over a distribution of M. For each M their
fastest kernel is chosen. The orders follow from the layer, the model, the GPU and the proofs alone,
not from what was compiled before. The sizes of the batch, M and the B of batched products, are no
part of a layer, and neither are the layout of `a` and the form of the bias, which depend on M where
M is 1. The number of groups, B of a product of groups, is part of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.choosing.chooser import SHORTLIST, Chooser
from diode_engine.choosing.outcomes import LeftToStock
from diode_engine.choosing.policy import Comparison, best_of_library, plain_library_call
from diode_engine.choosing.prediction import Mask, Prediction
from diode_engine.choosing.proofs import Orders, proven_orders
from diode_engine.choosing.stats import Fallback
from diode_engine.choosing.summation import OPERATORS, Places, orders_of
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateTable
from diode_engine.core.operand import Bias, Layout, Operand
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of, templates_for
from diode_engine.core.templates.template import TILE_PARAMETERS

# The distribution of M: the ratio of the predicted time to the shortest one counts equally at each.
ROWS = tuple(1 << n for n in range(14))
_CACHE_SIZE = 64  # comparisons, since a program has products with a dynamic M many times
_APART = 4  # every fourth problem of a dynamic size is predicted to find the fastest kernels
_BATCH = 16  # B of the batched products for which an order is fixed
# Inductor makes no tile higher than the next power of two of M. All orders are to have kernels for
# each M, so the tiles are those of this M at least: wgmma has 64 rows.
LEAST_ROWS = 64


class InvariantChooser:
    """Chooses kernels of one order for each layer, by the model of a `chooser`, with these versions
    of torch and Triton."""

    def __init__(self, chooser: Chooser, torch: str, triton: str) -> None:
        self._chooser = chooser
        self._where = f"{chooser.hardware.name} with torch {torch} and Triton {triton}"
        self.proven = proven_orders(chooser.hardware.arch, torch, triton)
        self._orders: dict[Problem, Orders] = {}
        self._compared = lru_cache(_CACHE_SIZE)(self._compare)

    @property
    def identity(self) -> str:
        """The proven orders, for cache keys."""
        return "; ".join(map(_words, sorted(self.proven))) or "none"

    def orders_for(self, problem: Problem) -> Orders:
        """Return the orders of summation of the problem's layer. Raises LeftToStock, with a
        sentence, where the layer can have none."""
        _check(problem)
        layer = layer_of(problem)
        if layer not in self._orders:
            self._orders[layer] = self._find_orders(layer)
        return self._orders[layer]

    def compare(
        self, problems: Sequence[Problem], candidates: CandidateTable
    ) -> tuple[Comparison, Places]:
        """Return the comparison of the candidates that have an order of the problems' layer, and
        the indices of those. The problems differ in M or B. Raises LeftToStock as `orders_for`
        does, and where the problems are of several layers or no candidate has such an order."""
        comparison, places = self._compared(tuple(problems), candidates)
        return replace(comparison, predicted_us=comparison.predicted_us.copy()), places

    def _compare(
        self, problems: Sequence[Problem], candidates: CandidateTable
    ) -> tuple[Comparison, Places]:
        orders = self.orders_for(problems[0])
        if len(set(map(layer_of, problems))) > 1:
            raise refusal("N or K is dynamic, and which order is chosen depends on both")
        kept = self._have_orders(orders, problems[0], candidates)
        if not kept.any():
            raise refusal(f"Inductor offers no kernel of the order {_words(orders)}")
        if len(problems) > 1:
            kept = self._shortlist(problems, candidates, kept)
        taken = candidates.take(kept)
        parts = [self._predict(problem, taken) for problem in problems]
        comparison = self._chooser.policy.compare(
            parts[0],
            problems=problems,
            predicted_us=np.array([part.predicted_us for part in parts]),
            saved_us=(0.0,) * len(problems),
        )
        return replace(comparison, keep=1), np.flatnonzero(kept)

    def _shortlist(
        self, problems: Sequence[Problem], candidates: CandidateTable, kept: Mask
    ) -> Mask:
        """[n] which of the `kept` candidates are among the fastest for one of several problems. Of
        many candidates a model predicts only the fastest of each problem."""
        short = np.zeros(len(candidates), np.bool_)
        for problem in {*problems[1::_APART], problems[-1]}:
            order = self._predict(problem, candidates.take(kept)).order[:SHORTLIST]
            short[np.flatnonzero(kept)[order]] = True
        return short

    def library_us(self, problem: Problem) -> float | None:
        """Return the predicted time of the library's kernel; None where it is not known."""
        candidates = [Candidate.make(t.name) for t in templates_for(problem.op) if t.extern]
        us = self._chooser.predict(problem, candidates).predicted_us
        found = float(us[best_of_library(us, plain_library_call(candidates))])
        return found if math.isfinite(found) else None

    def _find_orders(self, layer: Problem) -> Orders:
        means = {orders: self._mean_us(orders, layer) for orders in self.proven}
        orders = min(means, key=lambda orders: (means[orders], orders), default=None)
        if orders is None or means[orders] == math.inf:
            raise refusal(
                f"no order of summation with kernels for all batches of {layer.op} in "
                f"{layer.dtype} is proven on {self._where} (docs/batch-invariance.md)"
            )
        return orders

    def _mean_us(self, orders: Orders, layer: Problem) -> float:
        """Return the geometric mean over ROWS of the times of the kernels that would be chosen;
        infinite where there is none."""
        logs = []
        for m in ROWS[1:] if layer.op.divided else ROWS:
            problem = replace(layer, M=m, a=Operand.contiguous(Layout.ROW, m, layer.K))
            candidates = space_for(problem)
            kept = self._have_orders(orders, problem, candidates)
            if not kept.any():  # as for an order of another type
                return math.inf
            prediction = self._predict(problem, candidates.take(kept))
            places, _ = replace(self._chooser.policy.compare(prediction), keep=1).choose()
            if not places:
                return math.inf
            logs.append(math.log(prediction.predicted_us[places[0]]))
        return math.exp(sum(logs) / len(logs))

    def _have_orders(self, orders: Orders, problem: Problem, candidates: CandidateTable) -> Mask:
        """[n] which candidates have one of the orders."""
        found, places = orders_of(problem, candidates, self._chooser.hardware)
        kept: Mask = np.isin(places, [i for i, order in enumerate(found) if order in orders])
        return kept

    def _predict(self, problem: Problem, candidates: CandidateTable) -> Prediction:
        """Return the prediction for the candidates. A kernel whose tile is higher than Inductor
        would make it, which the model was not trained on, takes as long as with a full tile, and
        longer where it loads a row many times (`_slowdown`)."""
        if problem.op.divided:  # Inductor makes the tiles of products of groups itself
            return self._chooser.predict(problem, candidates)
        block_m = candidates.columns.block_m
        usual = max(16, 1 << (problem.M - 1).bit_length())
        rows = np.where(block_m > usual, block_m, problem.M).astype(np.int64)
        us, proven = np.full(len(candidates), np.nan), np.ones(len(candidates), np.bool_)
        for m in np.unique(rows).tolist():
            which = rows == m
            part = self._chooser.predict(replace(problem, M=m), candidates.take(which))
            us[which] = part.predicted_us
            if part.proven is not None:
                proven[which] = part.proven
        us *= np.where(block_m > usual, _slowdown(block_m, problem.M), 1.0)
        return Prediction(problem, candidates, us, proven=proven)


def _slowdown(block_m: npt.NDArray[Any], rows: int) -> npt.NDArray[np.float64]:
    """[n] how many times as long kernels with tiles of `block_m` rows take for fewer `rows`. In
    place of the rows that are missing a tile loads others again, which all thread blocks then read
    from the same few lines of the cache. Fitted to layers timed on an H100
    (docs/notes/batch-invariance.md)."""
    return np.maximum(1.0, np.sqrt(block_m / (8.0 * rows)))


def _words(orders: Orders) -> str:
    return " or ".join(map(str, orders))


def layer_of(problem: Problem) -> Problem:
    """Return the problem that stands for all batches of the problem's layer."""
    b = problem.b
    if "b" in problem.inner_batches:  # as it is where B is 1
        b = Operand.contiguous(b.layout, problem.K, problem.N)
    # Those of a batched product say how its batch is laid out.
    attributes: dict[str, Any] = {} if problem.op.batched else dict(problem.attributes)
    batch = _BATCH if problem.op.batched else 1
    return Problem.make(
        problem.op, LEAST_ROWS, problem.N, problem.K, problem.dtype,
        B=problem.B if problem.op.divided else batch, out_dtype=problem.out_dtype,
        b_layout=b.layout, b_align=b.align, allow_tf32=problem.allow_tf32, **attributes,
    )  # fmt: skip


def rows_of_space(problems: Sequence[Problem]) -> int:
    """Return the M whose tiles are considered for these problems."""
    return max(LEAST_ROWS, *(problem.M for problem in problems))


def space_for(problem: Problem) -> CandidateTable:
    """Return the candidates that may have an order of summation, without options."""
    sizes = rows_of_space([problem]), problem.N, problem.K
    if problem.op.divided:
        sizes = problem.one_group
    op = problem.op.name
    return CandidateTable.joined(
        [
            _space(template.name, op, *template.space_for(op).reach(*sizes))
            for template in templates_for(op)
            if template.tiled and not template.option and template.space_for(op).offered(problem)
        ]
    )


@lru_cache(maxsize=256)
def _space(name: str, op: str, m: int, n: int, k: int) -> CandidateTable:
    template = template_of(name)
    configs = template.space_for(op).exhaustive_configs(m, n, k)
    if len(template.parameters) < len(TILE_PARAMETERS):
        named = [dict(zip(template.parameters, each, strict=True)) for each in configs]
        return CandidateTable.make([Candidate.make(name, **each) for each in named])
    return CandidateTable.tiled(name, np.ascontiguousarray(np.array(configs, np.int64).T))


def refusal(why: str) -> LeftToStock:
    """Return what is raised for a product that has no kernel whose results are known not to depend
    on the batch."""
    return LeftToStock(
        Fallback.BATCH_INVARIANT, f"no kernel is known to be batch-invariant, since {why}"
    )


def _check(problem: Problem) -> None:
    """Raises LeftToStock where the option does not cover the problem, whatever is proven."""
    if problem.op.name not in OPERATORS:
        raise refusal(f"diode_batch_invariant does not cover {problem.op}")
    if problem.bias in (Bias.SCALAR, Bias.COLUMN):
        raise refusal("the bias is one element or one column, and no order was shown with it")
    if problem.op.divided and problem.M == 1:
        raise refusal("no kernel for groups of one row in all was compared")
    if problem.N == 1:
        raise refusal("Inductor computes a product of one column in other ways")
