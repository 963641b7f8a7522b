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


def of_rows(
    candidate: npt.NDArray[np.int64],
    seq: npt.NDArray[np.int64],
    times_us: tuple[npt.NDArray[np.float64], ...],
    repeats: npt.NDArray[np.int64],
    failure: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """[n] each timing's number, by a multiplicative hash of its columns. `times_us` are min_us,
    median_us and spread_us, NaN where the store has NULL; `failure` is 0 for none. All columns are
    [n]."""
    mixed = np.zeros(len(candidate), dtype=np.uint64)
    # -0.0 + 0.0 is 0.0, which is what SQLite makes of -0.0.
    times = (np.where(np.isnan(us), _UNKNOWN, us + 0.0).view(np.int64) for us in times_us)
    for column in (candidate, seq, *times, repeats, failure):
        mixed = (mixed ^ column.view(np.uint64)) * _PRIME
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(33)).astype(np.int64)


def of_timings(timings: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """As `of_rows`, for timings as an array of `bulk.TIMING_ROW`."""
    candidate, seq, repeats, failure = (
        np.ascontiguousarray(timings[name]) for name in ("candidate", "seq", "repeats", "failure")
    )
    times_us = (timings["min_us"], timings["median_us"], timings["spread_us"])
    return of_rows(candidate, seq, times_us, repeats, failure)


def of_sweeps(
    sweep: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct sweeps, ascending, and the checksum of each. `sweep` [n] is the sweep of each
    timing, in any order, and `rows` [n] its number (see `of_rows`)."""
    ids, place = np.unique(sweep, return_inverse=True)
    sums = np.zeros(len(ids), dtype=np.int64)
    np.add.at(sums, place, rows)
    return ids, sums
