"""Which candidates of a problem are timed, and in which order."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from diode_engine.collect.planning.adviser import Advice
from diode_engine.collect.planning.plan import ALL, CandidateSelection
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.core.templates import template_of

ELITE = 6  # how many of the fastest candidates have their neighbours tried
MAX_ACCUMULATORS = 128  # 32-bit registers of a thread; with more a kernel spills


class _Reason(Enum):
    """Why a candidate is chosen."""

    EXPECTED = auto()  # the model expects it to be fast
    LOWER_BOUND = auto()  # it may be faster than expected, by the model's lower confidence bound
    RANDOM = auto()
    NEAR = auto()  # a neighbour of the fastest so far


class CandidatePlan:
    """Hands out the candidates of one problem, batch by batch.

    Without a budget: all candidates that Inductor offers, in its order; with a fixed selection,
    those of them that it offers.

    With a budget: first the candidates that every user gets (ATen, decompose_k, the DEFAULT space),
    then a selection of the plausible others that fit the device. Half of the selection is random,
    and half are neighbours of the fastest so far, so that the region of the best kernel is known
    best. Where the selection is of the DEFAULT space alone, there are no others. With a model's
    advice the selection has four quarters: the kernels that the model expects to be fastest; those
    with the smallest lower confidence bounds, which may be faster than expected; random ones, which
    keep the timings representative; and neighbours.

    With a limit on compiles: the others may have so many kernels that are not compiled yet
    (`is_compiled`); after these only compiled ones follow.
    """

    def __init__(
        self,
        problem: Problem,
        offered: Sequence[Candidate],
        default: Collection[Candidate],
        hardware: Hardware,
        *,
        selection: CandidateSelection = ALL,
        done: Mapping[str, float | None] = MappingProxyType({}),
        seed: int = 0,
        advise: Callable[[Sequence[Candidate]], Advice | None] = lambda _: None,
        is_compiled: Callable[[Candidate], bool] = lambda _: False,
    ) -> None:
        """`done` is what was timed before: microseconds by candidate key, None for a failure. It
        counts towards the budget, and neighbours of its fastest are tried too. `advise` is called
        once, and only with a budget. `is_compiled` says whether a candidate's kernel is compiled
        already; it is called for each batch, and only with a limit on compiles."""
        self._random = random.Random(f"{seed}/{problem.key}")
        self._times: dict[Candidate, float] = {}
        # Where all candidates are timed, and any number of them compiled, their order does not
        # matter.
        self._in_order = selection.budget is None and selection.compiles is None
        if selection.fixed is not None:
            wanted = set(selection.fixed)
            offered = [c for c in offered if c in wanted]
        budget = selection.budget
        usual = set(default)
        first = [c for c in offered if c in usual or c.tile is None]
        usual.update(first)
        rest = [] if selection.default else [c for c in offered if c not in usual]
        if budget is not None:
            rest = [c for c in rest if plausible(problem, c)]
            rest = list(itertools.compress(rest, fits(problem, rest, hardware)))
            self._random.shuffle(rest)
        for candidate in offered:
            self.record(candidate, done.get(candidate.key))
        known = sum(c.key in done for c in (first if selection.default else offered))
        self._first = [c for c in first if c.key not in done]
        self._rest = [c for c in rest if c.key not in done]
        near = [] if self._in_order else [_place(c) for c in self._rest]
        self._places = np.array(near).reshape(-1, 6)
        self._open = np.ones(len(self._rest), dtype=bool)
        self._compiles = selection.compiles
        self._is_compiled = is_compiled
        left = len(self._first) + len(self._rest)
        if budget is not None:
            left = min(left, max(0, budget - known))
        self.left = left
        spread = max(0, left - len(self._first))
        self._advice = advise(self._rest) if budget is not None and spread else None
        kinds = [_Reason.RANDOM] if self._in_order else [_Reason.RANDOM, _Reason.NEAR]
        if self._advice is not None:
            kinds = [_Reason.EXPECTED, _Reason.LOWER_BOUND, *kinds]
        # The reasons for the candidates after the first ones, from the last to the first: equal
        # numbers of each kind, in the kinds' order.
        self._kinds = [kinds[i * len(kinds) // spread] for i in range(spread)][::-1]

    def record(self, candidate: Candidate, time_us: float | None) -> None:
        """Takes note of a candidate's time; None where it failed."""
        if time_us is not None and not self._in_order:
            self._times[candidate] = time_us

    def next_batch(self, size: int) -> list[Candidate]:
        """The next `size` candidates or fewer; empty when the plan is done."""
        batch = self._first[: min(size, self.left)]
        del self._first[: len(batch)]
        orders: dict[_Reason, Iterator[int]] = {}  # times come in between batches only
        wanted = min(size, self.left) - len(batch)
        is_compiled = cache(lambda i: self._is_compiled(self._rest[i]))
        for _ in range(wanted):
            kind = self._kinds.pop()
            if kind not in orders:
                order = np.argsort(self._scores(kind), kind="stable")
                orders[kind] = iter(order[self._open[order]].tolist())
            chosen = next(
                (
                    i
                    for i in orders[kind]
                    if self._open[i] and (self._compiles != 0 or is_compiled(i))
                ),
                None,
            )
            if chosen is None:
                self.left = len(batch)
                break
            if self._compiles and not is_compiled(chosen):
                self._compiles -= 1
            self._open[chosen] = False
            batch.append(self._rest[chosen])
        self.left -= len(batch)
        return batch

    def _scores(self, kind: _Reason) -> npt.NDArray[np.float64]:
        """[n] scores of the candidates after the first ones; the smallest score is next."""
        if self._advice is not None and kind in (_Reason.EXPECTED, _Reason.LOWER_BOUND):
            return self._advice.expected if kind is _Reason.EXPECTED else self._advice.lower_bound
        if kind is _Reason.NEAR:
            tiled = (c for c in self._times if c.tile is not None)
            near = [_place(c) for c in heapq.nsmallest(ELITE, tiled, self._times.__getitem__)]
            if near:
                steps = np.abs(self._places[:, None, :] - np.array(near)[None]).sum(axis=2)
                steps += 0.5 * np.arange(len(near))  # neighbours of the fastest come first
                least: npt.NDArray[np.float64] = steps.min(axis=1)
                return least
        return np.zeros(len(self._rest))  # the list is shuffled: its first one is next


def plausible(problem: Problem, candidate: Candidate) -> bool:
    """False for kernels that are known to spill or to idle on any problem: too many accumulators
    for each thread, or more threads than a tile has work for."""
    elements = _number(candidate, "block_m") * _number(candidate, "block_n")
    warps = _number(candidate, "warps")
    if elements / (32 * warps) > MAX_ACCUMULATORS:
        return False
    return not (warps >= 8 and elements < 1024)


def _number(candidate: Candidate, column: str) -> int:
    value = (candidate.tile or {}).get(column, 1)
    return value if isinstance(value, int) else 1


@lru_cache(maxsize=1 << 13)  # most problems have the same candidates
def _place(candidate: Candidate) -> tuple[float, ...]:
    """6 coordinates of a candidate. Neighbours have the distance one: they differ by a factor of
    two in one block or in the warps, by two stages, or in whether they use TMA."""
    columns = ("block_m", "block_n", "block_k", "warps")
    sizes = [_number(candidate, column) for column in columns]
    tma = float(template_of(candidate.template).tma)
    return (*map(math.log2, sizes), 0.5 * _number(candidate, "stages"), tma)
