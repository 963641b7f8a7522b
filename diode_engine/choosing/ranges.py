"""Kernels for ranges of M, among which a program chooses at run time by the real M.

One kernel for all values of a dynamic M is far from the fastest at some. The ranges and their
kernels are those with the least geometric mean of the predicted times over the values of M, and as
few as come near it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diode_engine.choosing.choice import Choice, Why
from diode_engine.choosing.policy import Comparison
from diode_engine.choosing.prediction import is_known

MOST_KERNELS = 4
GAIN = 1.02  # by which more kernels must be faster in the mean

_Logs = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RowRange:
    """The kernel at `place` of a comparison. It is taken for up to `most_rows` rows that no range
    before it has; None where there is no limit."""

    place: int
    most_rows: int | None = None


def choose_ranges(comparison: Comparison, most: int = MOST_KERNELS) -> tuple[RowRange, ...]:
    """Return the kernels to take, `most` at most, for the fewest rows first; none where no kernels
    are known for all rows.

    Of the comparison's problems the first is the one that is compiled, and the others have the
    values of a dynamic size. There is one kernel where these differ in more than M."""
    problems = comparison.problems[1:] or comparison.problems
    rows = [problem.M for problem in problems]
    order = np.argsort(rows, kind="stable")
    us = comparison.predicted_us[-len(rows) :][order]
    known = is_known(us)
    if (known & comparison.proven).any(axis=1).all():
        known &= comparison.proven
    logs = np.where(known, np.log(np.where(known, us, 1.0)), np.inf)
    if len(set(rows)) < len(rows) or len({problem.B for problem in problems}) > 1:
        most = 1
    found: tuple[RowRange, ...] = ()
    least = math.inf
    for total, ends, places in _split(logs, most):
        if total < least - len(rows) * math.log(GAIN):
            least = total
            limits = [rows[order[end - 1]] for end in ends[:-1]]
            found = tuple(map(RowRange, places, [*limits, None]))
    return found


def choice_of(
    comparison: Comparison, ranges: Sequence[RowRange], why: Why = Why.INVARIANT
) -> Choice:
    """Return the choice of the kernels of these ranges, of which there is one at least."""
    rows = comparison.problems[0].M
    own = next(e for e in ranges if e.most_rows is None or rows <= e.most_rows)
    choice = comparison.choice([own.place], why)
    if len(ranges) == 1:
        return choice
    by_rows = tuple((each.most_rows, comparison.candidates[each.place]) for each in ranges)
    return replace(choice, by_rows=by_rows)


def _split(logs: _Logs, most: int) -> Iterator[tuple[float, list[int], list[int]]]:
    """Yield the best splits of the rows of `logs` [m, n] into 1, 2, … `most` ranges with one column
    each: the sum of the logs there, the ends of the ranges, and their columns."""
    count = len(logs)
    # [start, end] of a range: the least sum of a column, and which column has it.
    least = np.full((count, count + 1), np.inf)
    column = np.zeros((count, count + 1), np.intp)
    for start in range(count):
        sums = np.cumsum(logs[start:], axis=0)
        least[start, start + 1 :] = sums.min(axis=1)
        column[start, start + 1 :] = sums.argmin(axis=1)
    # By the end of the rows that are split: the sum, and the ends.
    best = [(float(least[0, end]), [end]) for end in range(count + 1)]
    for _ in range(most):
        total, ends = best[count]
        starts = [0, *ends[:-1]]
        yield total, ends, [int(column[s, e]) for s, e in zip(starts, ends, strict=True)]
        best = [
            min(
                ((best[cut][0] + float(least[cut, end]), [*best[cut][1], end]) for cut in range(end)
                 if cut),
                default=(math.inf, [end]),
            )
            for end in range(count + 1)
        ]  # fmt: skip
