"""How much two timings of the same candidate on the same problem differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diode_engine.core.table import TimingTable


@dataclass(frozen=True)
class Noise:
    """How much timings differ, as shares of the time."""

    repeats: int  # pairs of successive timings of one candidate on one problem in one environment
    # Over these pairs, of the larger time over the smaller one, less 1; None without pairs.
    median: float | None
    p90: float | None  # the 90th percentile
    # The median over timings of the interquartile range of a timing's launches over its time; None
    # where no timing has the range.
    spread: float | None


def noise(table: TimingTable) -> Noise:
    """The noise of the table's successful timings."""
    timed = table.take(table.failure == 0)
    order = np.lexsort((timed.candidate, timed.environment, timed.problem))
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in (timed.problem, timed.environment, timed.candidate):
        same &= np.diff(column[order]) == 0
    log_us = np.log(timed.time_us[order])
    apart = np.expm1(np.abs(np.diff(log_us)))[same]
    known = ~np.isnan(timed.spread_us)
    return Noise(
        repeats=len(apart),
        median=float(np.median(apart)) if len(apart) else None,
        p90=float(np.percentile(apart, 90)) if len(apart) else None,
        spread=float(np.median(timed.spread_us[known] / timed.time_us[known]))
        if known.any()
        else None,
    )
