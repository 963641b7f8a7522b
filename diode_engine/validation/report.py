"""The report on a model: it and others choosing on the same problems."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Candidate, Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.confidence import MOST
from diode_engine.validation import choosers
from diode_engine.validation.calibration import Calibration, calibration
from diode_engine.validation.choosers import Chooser
from diode_engine.validation.compile_time import Asked, CompileTime, at_compile_time
from diode_engine.validation.document import document
from diode_engine.validation.metrics import (
    Errors,
    Summary,
    Values,
    by_group,
    efficiencies,
    geomean,
    prediction_errors,
)
from diode_engine.validation.noise import Noise, noise
from diode_engine.validation.pool import Pool
from diode_engine.validation.render import render

KS = (1, 3, 5, 10)


@dataclass(frozen=True)
class Row:
    """One chooser. `top` has a summary for each k of KS, or only for 1 where the chooser does
    not rank; `answered` is the number of problems on which it could say something: on the
    others ATen is taken, and what has no ATen either is not among `top[1].problems`.
    `timed` is the mean number of kernels timed at compile for the choice of one; `speed` the
    geometric mean of max-autotune DEFAULT's time over that of the choice, None where DEFAULT was
    not measured; `groups` has a summary of the first choice for each op, dtype, M, layout,
    dimension and named transformer."""

    chooser: str
    timed: float
    answered: int
    speed: float | None
    top: Mapping[int, Summary]
    groups: Mapping[str, Mapping[str, Summary]]


@dataclass(frozen=True)
class Case:
    """One problem in one environment, and what the model chose: times in microseconds, None
    where it failed, was not measured or nothing was predicted.

    `efficiency` has the model's for each k of KS, ATen's where the model cannot say; None where
    there is neither. `chosen` is None where the model cannot say. `compiled` is its choice among
    all that Inductor offers; `confidence` is in the choice among what was measured.
    """

    problem: Problem
    environment: Environment
    efficiency: Mapping[int, float] | None
    confidence: float | None
    chosen: Candidate | None
    chosen_us: float | None
    chosen_predicted_us: float | None
    best: Candidate
    best_us: float
    best_predicted_us: float | None
    others: Mapping[str, float]  # by chooser: the efficiency of its first choice
    compiled: CompileTime | None


@dataclass(frozen=True)
class Report:
    """What `evaluate` found; the model's row is the first. A problem here is one in one
    environment; `left_out` are those with fewer than two timed candidates.

    `unseen` tells whether the model had seen none of the problems in training; None: nobody
    knows. `errors` is None where nothing was predicted, `calibration` where the model does not
    say how sure it is.
    """

    model: str
    hardware: tuple[str, ...]
    unseen: bool | None
    problems: int
    candidates: int
    left_out: int
    rows: tuple[Row, ...]
    errors: Errors | None
    calibration: Calibration | None
    noise: Noise
    cases: tuple[Case, ...]
    notes: tuple[str, ...]

    def row(self, chooser: str) -> Row | None:
        """The row of this name (choosers.ATEN, …); None where it could not be asked."""
        return next((row for row in self.rows if row.chooser == chooser), None)

    @property
    def efficiency(self) -> float:
        """The model's: geometric mean of its first choices."""
        return self.rows[0].top[1].geomean

    @property
    def unmeasured(self) -> int | None:
        """On how many problems the model would take a kernel at compile time that was not
        measured; None of predictions alone."""
        compiled = [case.compiled for case in self.cases if case.compiled is not None]
        if not compiled:
            return None
        return sum(c.choice is not None and not c.measured for c in compiled)

    def worst(self, n: int) -> list[Case]:
        """The cases that the model chose worst on, the worst first; only those where another
        candidate was faster."""
        chosen = [case for case in self.cases if case.chosen is not None and case.efficiency]
        chosen.sort(key=lambda case: (case.efficiency or {})[1])
        return [case for case in chosen[:n] if (case.efficiency or {})[1] < 1]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (docs/validation.md): NaN is None, a k is a text."""
        return document(self)

    def render(self, worst: int = 5) -> str:
        """As plain text, with so many of the worst choices."""
        return render(self, worst)


def evaluate(
    table: TimingTable,
    asked: Asked | Values,
    *,
    name: str = "model",
    unseen: bool | None = None,
    seen: TimingTable | None = None,
) -> Report:
    """Judges a model (or its predictions, [n] microseconds for the table's rows, NaN where it
    cannot say) against ATen, max-autotune's DEFAULT space, nvMatmulHeuristics, a roofline and
    the median candidate, on all problems of the table. `name` is the model's in the report,
    `unseen` is Report.unseen; with `seen`, timings that the model may have learned from, a
    look-up among these is compared with too.

    Raises TrainingError where no problem has two timed candidates, or the predictions are not
    one for each row.
    """
    pool = Pool.of(table)
    if isinstance(asked, np.ndarray):
        if asked.shape != (len(table),):
            raise TrainingError("There must be one prediction for each timing of the table.")
        predicted = asked[pool.rows].astype(np.float64)
    else:
        predicted = asked.predict_table(pool.table)
    model = choosers.model(pool, predicted, name)
    heuristics, notes = choosers.nv_matmul_heuristics(pool)
    everyone = [
        model,
        choosers.aten(pool),
        choosers.max_autotune_default(pool),
        heuristics,
        None if seen is None else choosers.nearest_problem(pool, seen),
        choosers.roofline(pool),
        choosers.median_candidate(pool),
    ]
    there = [chooser for chooser in everyone if chooser is not None]
    ks = tuple(range(1, MOST + 1))
    found = {c.name: efficiencies(pool, c.score, ks if c.ranks else (1,)) for c in there}
    instead, default = found[choosers.ATEN][0], found[choosers.DEFAULT][0]
    rows = [row for c in there if (row := _row(pool, c, found[c.name], instead, default))]
    if not rows or rows[0].chooser != name:
        raise TrainingError(
            f"The model {name} can say nothing about these timings, and there is no ATen among "
            "them to fall back to; give it timings of what it was trained on."
        )
    cases = pool.cases()
    answered = ~np.isnan(found[name][0])
    if not answered.all():
        notes = (
            f"The model cannot say anything about {np.count_nonzero(~answered)} of the problems: "
            "ATen counts as its choice there. In max-autotune Inductor benchmarks instead.",
            *notes,
        )
    reaches: list[tuple[float, ...] | None] = [None] * len(cases)
    compiled: list[CompileTime] = []
    if not isinstance(asked, np.ndarray):
        reaches = _reaches(pool, asked, model.score)
        compiled = at_compile_time(pool, asked)
    sure = [i for i, reach in enumerate(reaches) if reach is not None]
    return Report(
        model=name,
        hardware=tuple(dict.fromkeys(e.hardware.name for _, e, _ in cases)),
        unseen=unseen,
        problems=len(cases),
        candidates=len(pool),
        left_out=pool.left_out,
        rows=tuple(rows),
        errors=prediction_errors(pool, predicted),
        calibration=calibration([reaches[i] or () for i in sure], found[name][:, sure])
        if sure
        else None,
        noise=noise(table),
        cases=_cases(pool, model, predicted, found, reaches, compiled),
        notes=notes,
    )


def _row(
    pool: Pool, chooser: Chooser, found: Values, instead: Values, default: Values
) -> Row | None:
    """None where neither the chooser nor ATen has an answer to any problem. `found` is
    [k, cases], `instead` and `default` [cases] are ATen's and DEFAULT's efficiencies."""
    answered = ~np.isnan(found[0])
    found = np.where(answered, found, instead)
    judged = ~np.isnan(found[0])
    if not judged.any() or (chooser.name != choosers.ATEN and not answered.any()):
        return None
    both = judged & ~np.isnan(default)
    return Row(
        chooser=chooser.name,
        timed=chooser.timed,
        answered=int(np.count_nonzero(answered)),
        speed=geomean(found[0][both]) / geomean(default[both]) if both.any() else None,
        top={k: Summary.of(found[k - 1][judged]) for k in KS if k <= len(found)},
        groups=by_group([problem for problem, _, _ in pool.cases()], found[0]),
    )


def _reaches(pool: Pool, asked: Asked, score: Values) -> list[tuple[float, ...] | None]:
    """How sure the model is of each case's choice among what was measured and may be chosen."""
    out = []
    for problem, _, rows in pool.cases():
        offered = pool.table.candidate[rows][~np.isnan(score[rows])]
        ranking = asked.rank(problem, [pool.table.candidates[i] for i in offered])
        out.append(ranking.reaches)
    return out


def _cases(
    pool: Pool,
    model: Chooser,
    predicted: Values,
    found: Mapping[str, Values],
    reaches: Sequence[tuple[float, ...] | None],
    compiled: Sequence[CompileTime],
) -> tuple[Case, ...]:
    ours, instead = found[model.name], found[choosers.ATEN][0]
    out = []
    for i, (problem, environment, rows) in enumerate(pool.cases()):

        def candidate(row: int) -> Candidate:
            return pool.table.candidates[int(pool.table.candidate[row])]

        answered = not np.isnan(ours[0, i])
        chosen = rows.start + int(np.nanargmin(model.score[rows])) if answered else None
        best = rows.start + int(np.nanargmin(pool.time_us[rows]))
        efficiency = ours[:, i] if answered else np.repeat(instead[i], len(ours))
        reach = reaches[i]
        out.append(
            Case(
                problem=problem,
                environment=environment,
                efficiency=None
                if np.isnan(efficiency[0])
                else {k: float(efficiency[k - 1]) for k in KS},
                confidence=None if reach is None else reach[0],
                chosen=None if chosen is None else candidate(chosen),
                chosen_us=None if chosen is None else _known(pool.time_us[chosen]),
                chosen_predicted_us=None if chosen is None else _known(predicted[chosen]),
                best=candidate(best),
                best_us=float(pool.time_us[best]),
                best_predicted_us=_known(predicted[best]),
                others={
                    name: float(values[0, i])
                    for name, values in found.items()
                    if name != model.name and not np.isnan(values[0, i])
                },
                compiled=compiled[i] if compiled else None,
            )
        )
    return tuple(out)


def _known(value: float) -> float | None:
    """None for NaN."""
    return None if math.isnan(value) else float(value)
