"""The checksum of a sweep's timings. With it, a check of the store finds timings that were changed,
added or deleted by something other than Diode, such as a damaged disk.

Each timing is hashed to a number of 31 bits; the checksum is the sum of these numbers. So timings
can be added without reading those that are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_PRIME = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, odd
_UNKNOWN = -1.0  # stands for NULL; no time is less than 0
_HASHED = ("candidate", "seq", "min_us", "median_us", "spread_us", "repeats", "failure")


def of_timings(timings: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """[n] each timing's number, by a multiplicative hash of its columns other than the sweep.
    `timings` are [n] of `bulk.TIMING_ROW`."""
    mixed = np.zeros(len(timings), dtype=np.uint64)
    for name in _HASHED:
        column = np.ascontiguousarray(timings[name])
        if name.endswith("_us"):  # -0.0 + 0.0 is 0.0, which is what SQLite makes of -0.0
            column = np.where(np.isnan(column), _UNKNOWN, column + 0.0)
        mixed = (mixed ^ column.view(np.uint64)) * _PRIME
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(33)).astype(np.int64)


def of_sweeps(
    sweep: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct sweeps, ascending, and the checksum of each. `sweep` [n] is the sweep of each
    timing, in any order, and `rows` [n] its number (see `of_timings`)."""
    ids, place = np.unique(sweep, return_inverse=True)
    sums = np.zeros(len(ids), dtype=np.int64)
    np.add.at(sums, place, rows)
    return ids, sums
