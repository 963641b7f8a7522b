"""Choosers: each chooses among the same candidates of the same problems. A chooser is a score for
each candidate; the least is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.resources import fits
from diode_engine.core.table import TimingTable
from diode_engine.models.neighbours import distances, places
from diode_engine.models.predictor import Predictor
from diode_engine.problems.spaces import default_space
from diode_engine.validation import nv_heuristics
from diode_engine.validation.metrics import Values
from diode_engine.validation.pool import CandidatePool

ATEN = "ATen"
DEFAULT = "max-autotune DEFAULT"
NV_HEURISTICS = "nvMatmulHeuristics"
NEIGHBOUR = "nearest problem"
ROOFLINE = "roofline"
MEDIAN = "median candidate"

_ROWS = 1 << 17  # whose features are computed at a time, to limit the memory


@dataclass(frozen=True, eq=False)
class ScoredChooser:
    """`score` is [n] over the pool, NaN for what is never chosen. `timed` is how many kernels are
    timed at compile to choose one (the mean over cases). `ranks` says whether the second and later
    ones are meaningful, so that several could be timed and the best of them taken."""

    name: str
    score: Values
    timed: float = 0.0
    ranks: bool = False


def model(
    pool: CandidatePool, judged: Predictor, predicted_us: Values, name: str
) -> tuple[ScoredChooser, list[tuple[float, ...] | None]]:
    """The least of the model's times [n] among the candidates that fit and that it ranks in a
    compile, and Prediction.reaches of each case's choice among them."""
    score, reaches = np.where(fitting(pool), predicted_us, np.nan), []
    for problem, _, rows in pool.cases():
        offered = rows.start + np.flatnonzero(~np.isnan(score[rows]))
        candidates = [pool.table.candidates[i] for i in pool.table.candidate[offered]]
        prediction = judged.predict(problem, candidates)
        score[offered[np.isnan(prediction.predicted_us)]] = np.nan
        reaches.append(prediction.reaches)
    return ScoredChooser(name, score, ranks=True), reaches


def aten(pool: CandidatePool) -> ScoredChooser:
    """The library's kernel, as torch.compile without max-autotune takes it; the best, where an
    op has two."""
    extern = np.array([c.is_extern for c in pool.table.candidates], np.bool_)
    return ScoredChooser(ATEN, np.where(extern[pool.table.candidate], pool.time_us, np.nan))


def max_autotune_default(pool: CandidatePool) -> ScoredChooser:
    """The best of what max-autotune times with its search space DEFAULT, among those that were
    measured."""
    table = pool.table
    keys = kernel_keys(table.candidates)
    place: dict[tuple[object, ...], list[int]] = {}
    for i, key in enumerate(keys):
        place.setdefault(key, []).append(i)
    offered = np.zeros(len(pool), np.bool_)
    cases = pool.cases()
    for problem, environment, rows in cases:
        space = kernel_keys(default_space(problem, environment.torch))
        wanted = [i for key in space for i in place.get(key, ())]
        offered[rows] = np.isin(table.candidate[rows], wanted)
    score = np.where(offered, pool.time_us, np.nan)
    timed = int(np.count_nonzero(~np.isnan(score))) / len(cases)
    return ScoredChooser(DEFAULT, score, timed=timed)


def nearest_problem(pool: CandidatePool, seen: TimingTable) -> ScoredChooser | None:
    """A look-up without a model: the kernel that was fastest on the nearest (models.neighbours) of
    the `seen` problems on the same hardware, among the candidates that were measured on both. None
    where `seen` has no timing on this hardware."""
    timed = seen.take(seen.failure == 0)
    score = np.full(len(pool), np.nan)
    kernels = {key: i for i, key in enumerate(dict.fromkeys(kernel_keys(timed.candidates)))}
    theirs = np.array([kernels[key] for key in kernel_keys(timed.candidates)], np.intp)
    ours = np.array([kernels.get(key, -1) for key in kernel_keys(pool.table.candidates)], np.intp)
    by_hardware = {}
    asked = {environment.hardware for _, environment, _ in pool.cases()}
    for hardware, timed_there in timed.rows_by(lambda environment: environment.hardware):
        if hardware in asked and len(timed_there):
            there = timed.take(timed_there)
            index = np.unique(there.problem)
            by_hardware[hardware] = (
                there, index, places([there.problems[i] for i in index]), dict(there.groups()),
            )  # fmt: skip
    for problem, environment, rows in pool.cases():
        if environment.hardware in by_hardware:
            there, index, where, rows_of = by_hardware[environment.hardware]
            near = rows_of[int(index[np.argmin(distances(problem, where))])]
            us = np.full(len(kernels) + 1, np.nan)  # the last one for kernels that were not seen
            np.fmin.at(us, theirs[there.candidate[near]], there.time_us[near])
            score[rows] = us[ours[pool.table.candidate[rows]]]
    return ScoredChooser(NEIGHBOUR, score, ranks=True) if by_hardware else None


def roofline(pool: CandidatePool) -> ScoredChooser:
    """The candidate with the shortest base time of the features, an estimate without learning."""
    table = pool.table
    score = np.full(len(pool), np.nan)
    known = fitting(pool) & features.supported(
        table.problems, table.candidates, table.problem, table.candidate
    )
    for place, environment in enumerate(table.environments):
        asked = np.flatnonzero(known & (table.environment == place))
        for start in range(0, len(asked), _ROWS):
            rows = asked[start : start + _ROWS]
            x = features.matrix(
                table.problems, table.candidates, table.problem[rows], table.candidate[rows],
                environment.hardware,
            )  # fmt: skip
            score[rows] = x[:, features.BASE]
    return ScoredChooser(ROOFLINE, score, ranks=True)


def median_candidate(pool: CandidatePool) -> ScoredChooser:
    """The candidate whose time is nearest to the problem's median: a blind choice."""
    score = np.full(len(pool), np.nan)
    for _, _, rows in pool.cases():
        log = np.log(pool.time_us[rows])
        score[rows] = np.abs(log - np.nanmedian(log))
    return ScoredChooser(MEDIAN, score)


def nv_matmul_heuristics(pool: CandidatePool) -> tuple[ScoredChooser | None, tuple[str, ...]]:
    """nvMatmulHeuristics, where it can be asked about any of the hardware, and the sentences
    that say why it cannot."""
    table = pool.table
    cases = pool.cases()
    hardware = {environment.hardware.key: environment.hardware for _, environment, _ in cases}
    why = {key: nv_heuristics.unavailable(h) for key, h in hardware.items()}
    notes = tuple(dict.fromkeys(sentence for sentence in why.values() if sentence))
    if all(why.values()):
        return None, notes
    score = np.full(len(pool), np.nan)
    everywhere = np.arange(len(table.candidates))
    for problem, environment, rows in cases:
        if why[environment.hardware.key] is None:
            timed = table.candidate[rows][~np.isnan(pool.time_us[rows])]
            # All candidates, so that their encoding is made once for all problems.
            rank = nv_heuristics.ranking(
                problem, table.candidates, np.isin(everywhere, timed), environment.hardware
            )
            score[rows] = rank[table.candidate[rows]]
    return ScoredChooser(NV_HEURISTICS, score, ranks=True), notes


def fitting(pool: CandidatePool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """[n] whether the device can launch the candidate, by the rules of core.resources."""
    table = pool.table
    out = np.zeros(len(pool), np.bool_)
    for problem, environment, rows in pool.cases():
        fit = fits(problem, table.candidates, environment.hardware)
        out[rows] = fit[table.candidate[rows]]
    return out


def kernel_keys(candidates: Sequence[Candidate]) -> list[tuple[object, ...]]:
    """What distinguishes kernels: the template and its parameters, with defaults for missing ones,
    so that GROUP_M = 8 and no GROUP_M are the same."""
    c = encode(candidates)
    columns = (c.block_m, c.block_n, c.block_k, c.stages, c.warps, c.group_m, c.k_split)
    return [
        (candidate.template, *values)
        for candidate, *values in zip(candidates, *(x.tolist() for x in columns), strict=True)
    ]
