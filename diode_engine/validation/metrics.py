"""How good choices and predictions are.

The efficiency of a choice on a problem is the time of the best measured candidate over that of the
chosen one, so 1 is perfect. Of k chosen candidates, which would be timed before one is taken, the
best counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine.core.named_layers import models_of
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.problems.splits import held_out_by
from diode_engine.validation.pool import CandidatePool

Values = npt.NDArray[np.float64]

# An efficiency of 0 (the chosen kernel failed) would make a geometric mean 0. It counts as this
# instead: a kernel a hundred times slower than the best.
FLOOR = 0.01
M_BANDS = ((16, "M ≤ 16"), (64, "M 17–64"), (512, "M 65–512"))
M_ABOVE = "M > 512"
VECTOR = "M, N or K = 1"


@dataclass(frozen=True)
class Summary:
    """Efficiencies of several problems. `p10` is the 10th percentile."""

    problems: int
    geomean: float
    p10: float
    worst: float

    @classmethod
    def make(cls, efficiency: Values) -> Summary:
        """The summary of at least one value."""
        return cls(
            len(efficiency),
            geomean(efficiency),
            float(np.percentile(efficiency, 10)),
            float(efficiency.min()),
        )


def geomean(efficiency: Values) -> float:
    """The geometric mean of at least one value; each counts as at least FLOOR."""
    return float(np.exp(np.mean(np.log(np.maximum(efficiency, FLOOR)))))


def efficiencies(pool: CandidatePool, score: Values, ks: Sequence[int]) -> Values:
    """[len(ks), cases] for each k the efficiency of the k candidates with the least score (of
    fewer, where fewer have a score); equal ones in the pool's order. `score` is [n], NaN for what
    is never chosen.

    A chosen candidate that failed is ignored; the efficiency is 0 where all chosen ones failed. NaN
    where no candidate of the case has a score.
    """
    out = np.full((len(ks), len(pool.starts) - 1), np.nan)
    for case, (_, _, rows) in enumerate(pool.cases()):
        time, scored = pool.time_us[rows], score[rows]
        order = np.argsort(scored, kind="stable")[: max(ks)]
        order = order[~np.isnan(scored[order])]
        if not len(order):
            continue
        best_so_far = np.fmin.accumulate(time[order])
        reached = np.nan_to_num(np.nanmin(time) / best_so_far, nan=0.0)
        out[:, case] = reached[np.minimum(ks, len(order)) - 1]
    return out


@dataclass(frozen=True)
class Errors:
    """Of predicted against measured times, over `timings` candidates that have both.

    `mse_log` is the mean squared error of the natural logarithm, `rmse_log` its root, `exp_rmse`
    the exponential of that (a factor), `mape` the mean of abs(predicted / measured − 1), `spearman`
    the median over problems of the rank correlation within a problem (NaN where no problem has
    three candidates or more).
    """

    timings: int
    mse_log: float
    rmse_log: float
    exp_rmse: float
    mape: float
    spearman: float


def prediction_errors(pool: CandidatePool, predicted_us: Values) -> Errors | None:
    """The errors; None where nothing that was measured was predicted."""
    both = ~np.isnan(predicted_us) & ~np.isnan(pool.time_us)
    if not both.any():
        return None
    log_ratio = np.log(predicted_us[both] / pool.time_us[both])
    mse = float(np.mean(log_ratio**2))
    rmse = float(np.sqrt(mse))
    correlations = [
        spearman(predicted_us[rows][both[rows]], pool.time_us[rows][both[rows]])
        for _, _, rows in pool.cases()
        if np.count_nonzero(both[rows]) >= 3
    ]
    return Errors(
        timings=int(np.count_nonzero(both)),
        mse_log=mse,
        rmse_log=rmse,
        exp_rmse=float(np.exp(rmse)),
        mape=float(np.mean(np.abs(np.expm1(log_ratio)))),
        spearman=float(np.median(correlations)) if correlations else float("nan"),
    )


def spearman(x: Values, y: Values) -> float:
    """The correlation of ranks, equal values at their mean rank; 0 where all are equal."""
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm else 0.0


def _ranks(values: Values) -> Values:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: Values = (last - (count - 1) / 2)[place]
    return ranks


def groups(problem: Problem) -> Mapping[str, tuple[str, ...]]:
    """The groups to which a problem belongs, by kind. A problem may be a layer of several named
    transformers or of none."""
    bands = (name for limit, name in M_BANDS if limit >= problem.M)
    vector = min(problem.M, problem.N, problem.K) == 1
    return {
        "op": (str(problem.op),),
        "dtype": ("tf32" if problem.allow_tf32 else str(problem.dtype),),
        "M": (next(bands, M_ABOVE),),
        "layout": (f"{problem.a.layout}/{problem.b.layout}",),
        # Inductor lowers some of these without a matrix product.
        "dimension": (VECTOR,) if vector else (),
        "model": tuple(sorted(models_of(problem))),
        "held out by": held_out_by(problem),
    }


def by_group(
    problems: Iterable[Problem], efficiency: Values
) -> Mapping[str, Mapping[str, Summary]]:
    """For each kind of group a summary of each group, in the groups' natural order; `efficiency` is
    [problems], NaN where there is none."""
    members: dict[str, dict[str, list[float]]] = {}
    for problem, value in zip(problems, efficiency.tolist(), strict=True):
        if value == value:
            for kind, names in groups(problem).items():
                for name in names:
                    members.setdefault(kind, {}).setdefault(name, []).append(value)
    bands = [name for _, name in M_BANDS] + [M_ABOVE]
    return {
        kind: {
            name: Summary.make(np.array(found[name]))
            for name in (sorted(found) if kind != "M" else [b for b in bands if b in found])
        }
        for kind, found in members.items()
    }


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
