"""Which problems a model is fitted to and which it is judged on.

The sizes of a problem decide on which side it is: by a hash of them and a seed, by whether a
program of a held-out family of models has them, by whether only layers of held-out models have
them, and by whether a test set has them. So the side stays the same as timings are added.

Problems that differ only in op, dtype, layout or bias are on the same side: a model that learned
the time of one would know the time of the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from diode_engine.core.named_layers import HELD_OUT_MODELS, NAMES, models_of
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.problems.harvested import is_of_held_out_family

HELD_OUT_SHARE = 0.2  # of all problems, by their sizes: a model is judged on them
LARGEST_SHARE = 0.1  # of the problems: the largest, on which a model of smaller ones is judged
VALIDATION_SHARE = 0.15  # of the problems that are not held out: early stopping watches them
_VALIDATION_SEED = "validation"

# The ways in which problems are held out (see the top). Models up to gemm@6 were trained with SIZES
# alone, gemm@7 and gemm@8 without MODELS, gemm@11 without TESTS.
SIZES, FAMILIES, MODELS, TESTS = "sizes", "families", "models", "tests"
HELD_OUT_BY = (SIZES, FAMILIES, MODELS, TESTS)


def is_held_out_by_size(problem: Problem, *, share: float = HELD_OUT_SHARE) -> bool:
    """Whether the problem is held out by its sizes; `share` of all problems are."""
    return _place(problem, "held out 0") < share


def fold(problem: Problem, k: int, *, seed: int = 0) -> int:
    """Which of k folds, from 0, the problem is in."""
    return int(_place(problem, f"fold {seed}") * k)


class SplitPart(NamedTuple):
    """One part of a cross-validation: the rows that a model learns from, and those that it is
    judged on."""

    name: str
    learned: TimingTable
    judged: TimingTable


def folds(table: TimingTable, k: int, *, seed: int = 0) -> list[SplitPart]:
    """The k folds of a cross-validation: each is judged by a model that learned from the others."""
    places = np.array([fold(problem, k, seed=seed) for problem in table.problems], np.intp)
    rows = places[table.problem]
    return [
        SplitPart(f"fold {i + 1} of {k}", table.take(rows != i), table.take(rows == i))
        for i in range(k)
    ]


def leave_one_named_out(table: TimingTable) -> list[SplitPart]:
    """A part for each named model (of NAMES) that the table has problems of: these problems are
    judged by a model that learned without them. A layer whose sizes several named models share is
    judged with each of them."""
    there = {model for problem in table.problems for model in models_of(problem)}
    parts = [SplitPart(model, *split_named(table, (model,))) for model in NAMES if model in there]
    return [part for part in parts if len(part.judged)]


def largest(table: TimingTable, *, share: float = LARGEST_SHARE) -> list[SplitPart]:
    """Extrapolation: the `share` of the problems with the most flops is judged by a model that
    learned from smaller ones. One part; none for an empty table."""
    if not len(table):
        return []
    work = np.array([problem.flops for problem in table.used_problems])
    least = float(np.quantile(work, 1 - share))
    learned, judged = _parted(table, lambda problem: problem.flops > least)
    return [SplitPart(f"more than {least / 1e9:.3g} GFLOP", learned, judged)] if len(judged) else []


def is_of_held_out_model(problem: Problem) -> bool:
    """Whether only held-out models have a layer with this product, at any number of tokens. No
    model may be trained on it; a product that another named model has too may be learned."""
    names = models_of(problem)
    return bool(names) and names <= HELD_OUT_MODELS


@cache
def _test_sizes() -> frozenset[tuple[int, ...]]:
    shipped = resources.files("diode_engine.problems").joinpath("shapes/test_sizes.json")
    return frozenset(tuple(sizes) for sizes in json.loads(shipped.read_text()))


def is_in_test_set(problem: Problem) -> bool:
    """Whether a problem of a test set has these sizes (shapes/test_sizes.json: B, M, N, K of
    each). No model may be trained on it."""
    return tuple(problem.sizes.values()) in _test_sizes()


def held_out_by(problem: Problem) -> tuple[str, ...]:
    """Which of HELD_OUT_BY keep the problem from being learned; empty: a model may learn from
    it."""
    ways = {
        SIZES: is_held_out_by_size(problem),
        FAMILIES: is_of_held_out_family(problem),
        MODELS: is_of_held_out_model(problem),
        TESTS: is_in_test_set(problem),
    }
    return tuple(way for way in HELD_OUT_BY if ways[way])


def split(table: TimingTable, by: Collection[str] = HELD_OUT_BY) -> tuple[TimingTable, TimingTable]:
    """(the rows to learn from, the rows of problems that are held out in one of these ways)."""
    return _parted(table, lambda problem: not set(by).isdisjoint(held_out_by(problem)))


def split_named(
    table: TimingTable, models: Collection[str] = NAMES
) -> tuple[TimingTable, TimingTable]:
    """(the rows to learn from, the rows of problems of a layer of one of these named
    models)."""
    return _parted(table, lambda problem: not models_of(problem).isdisjoint(models))


def split_validation(table: TimingTable, *, seed: int = 0) -> tuple[TimingTable, TimingTable]:
    """(the rows to fit to, the rows that early stopping watches), of the rows to learn from."""
    return _parted(
        table, lambda problem: _place(problem, f"{_VALIDATION_SEED} {seed}") < VALIDATION_SHARE
    )


def _parted(
    table: TimingTable, second: Callable[[Problem], bool]
) -> tuple[TimingTable, TimingTable]:
    """(the rows of the other problems, the rows of problems that are `second`)."""
    side = np.array([second(problem) for problem in table.problems], np.bool_)
    rows = side[table.problem]
    return table.take(~rows), table.take(rows)


def _place(problem: Problem, salt: str) -> float:
    """A number from 0 to 1, by a hash of the sizes; evenly distributed over different sizes."""
    sizes = f"{salt}: {problem.B} {problem.M} {problem.N} {problem.K}"
    digest = hashlib.sha256(sizes.encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
