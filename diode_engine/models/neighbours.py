"""How far apart two problems are. The confidence and the look-up of the nearest training problem
use this distance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from diode_engine.core.operand import Layout, Operand
from diode_engine.core.problem import Problem
from diode_engine.core.resources import SECTOR_BYTES

COORDINATES = 12  # of a problem
_COPY_BYTES = 16  # the widest copy; a better alignment changes nothing
_APART = 64  # problems in a group of `nearest`

Places = npt.NDArray[np.float32]


def places(problems: Sequence[Problem]) -> Places:
    """[COORDINATES, n] coordinates of the problems. One unit is a factor of two in a size, a factor
    of two in the copies that an operand's alignment allows, or another op or layout."""
    return np.array([_place(p) for p in problems], np.float32).reshape(-1, COORDINATES).T.copy()


def library_kinds(places: Places) -> npt.NDArray[np.float32]:
    """Return [n] a number for the type and the layouts of the problems at these places
    [COORDINATES, n]: what decides which of its kernels a library calls."""
    size, tf32, _, _, a, b = places[4:10]
    kinds: npt.NDArray[np.float32] = 8 * size + 4 * tf32 + 2 * a + b
    return kinds


def distances(problem: Problem, others: Places) -> npt.NDArray[np.float32]:
    """[n] Euclidean distances of a problem to others, whose coordinates are [COORDINATES, n]."""
    away: npt.NDArray[np.float32] = np.sqrt(_squares(problem, others))
    return away


def nearest(
    problem: Problem, others: Places, count: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """The places among the others of the `count` nearest, and their `distances`, the nearest first;
    all where there are no more."""
    away = _squares(problem, others)
    rows = len(away) // _APART
    if rows >= count:
        # The problems are divided into `rows` groups. `count` groups have a problem that is nearer
        # than the limit, so no problem beyond it is among the nearest. To partition all problems
        # takes five times as long.
        best_of_groups = away[: _APART * rows].reshape(_APART, rows).min(axis=0)
        found = np.flatnonzero(away <= np.partition(best_of_groups, count - 1)[count - 1])
    else:
        found = np.arange(len(away))
    first = found[away[found].argsort(kind="stable")[:count]]
    return first, np.sqrt(away[first])


def _squares(problem: Problem, others: Places) -> npt.NDArray[np.float32]:
    """[n] the squares of `distances`."""
    away = others - np.array(_place(problem), np.float32)[:, None]
    away *= away
    out: npt.NDArray[np.float32] = away.sum(axis=0)
    return out


def _place(p: Problem) -> tuple[float, ...]:
    size = p.dtype.itemsize
    return (
        math.log2(p.B), math.log2(p.M), math.log2(p.N), math.log2(p.K),
        size / 2, p.allow_tf32, p.op.batched, p.op.biased,
        p.a.layout is Layout.COL, p.b.layout is Layout.COL,
        _log2_copied(p, "a", p.a), _log2_copied(p, "b", p.b),
    )  # fmt: skip


def _log2_copied(p: Problem, name: str, operand: Operand) -> float:
    """Log2 of the bytes that a load instruction copies. Of an operand whose batch is innermost that
    is one element, and counts by its share of the sector that is read for it."""
    size = p.dtype.itemsize
    if name in p.inner_batches:
        return math.log2(size * size / SECTOR_BYTES)
    return math.log2(min(_COPY_BYTES, size * operand.align))
