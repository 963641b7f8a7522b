"""The problems counted by their sizes, as rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from diode_app.data.tables import Row
from diode_engine.store.problem_counts import SpaceMap

FEW = 3  # problems in a bin that a model could learn little from


def bins(first: int, count: int) -> list[tuple[int, int]]:
    """Return the (first, last) size of this many bins along an axis, from 2**first on."""
    return [(2**power, 2 ** (power + 1) - 1) for power in range(first, first + count)]


def count_gaps(counts: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return how many of the bins between measured ones, left and right or above and below, have no
    problem, and how many have some but fewer than FEW."""
    inside = counts[_is_between(counts, 0) | _is_between(counts, 1)]
    return int((inside == 0).sum()), int(((inside > 0) & (inside < FEW)).sum())


def _is_between(counts: npt.NDArray[np.int64], axis: int) -> npt.NDArray[np.bool_]:
    """Return for each bin whether there are problems on both sides of it along the axis."""
    before = np.cumsum(counts, axis) - counts
    after = counts.sum(axis, keepdims=True) - counts - before
    return np.asarray((before > 0) & (after > 0))


def map_rows(found: SpaceMap) -> list[Row]:
    """Return a row for each bin from top to bottom, the largest sizes first. Its key is the bin's
    filter query; the columns' keys are the first sizes of the bins across."""
    rows, columns = found.counts.shape
    names = [str(first) for first, _ in bins(found.x_first, columns)]
    made = []
    for (first, last), counts in zip(bins(found.y_first, rows), found.counts.tolist(), strict=True):
        record: dict[str, Any] = {"size": first, **dict(zip(names, counts, strict=True))}
        cells = {name: short_count(n) for name, n in zip(names, counts, strict=True)}
        term = f"{found.y}:{first}" if first == last else f"{found.y}:{first}..{last}"
        made.append(Row(term, {"size": short_size(first), **cells}, record))
    return made[::-1]


def short_size(number: int) -> str:
    """Return a power of two in at most four characters: 64, 2k, 1M."""
    for unit, size in (("G", 2**30), ("M", 2**20), ("k", 2**10)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def short_count(count: int) -> str:
    """Return a count in at most four characters: 998, 1.2k, 35k, 2.1M; a dot for none."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count or "·")
