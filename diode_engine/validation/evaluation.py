"""The evaluation of a model: the model and others choose on the same problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from diode_engine.choosing.chooser import Chooser
from diode_engine.core.table import TimingTable, known_number
from diode_engine.errors import NothingError, TrainingError
from diode_engine.models.confidence import MAX_K
from diode_engine.models.predictor import Predictor
from diode_engine.problems.predicted_choice import choose_offered
from diode_engine.validation import choosers
from diode_engine.validation.calibration import calibration
from diode_engine.validation.choosers import ScoredChooser
from diode_engine.validation.metrics import (
    Summary,
    Values,
    by_group,
    efficiencies,
    geomean,
    noise,
    prediction_errors,
)
from diode_engine.validation.pool import CandidatePool
from diode_engine.validation.report import KS, Case, ChooserRow, CompiledChoice, Report, TimedKernel


def evaluate(
    table: TimingTable,
    judged: Predictor,
    *,
    name: str = "model",
    unseen: bool | None = None,
    seen: TimingTable | None = None,
) -> Report:
    """Judges a model against ATen, max-autotune's DEFAULT space, nvMatmulHeuristics, a roofline and
    the median candidate, on all problems of the table.

    `name` is the model's in the report; `unseen` is Report.unseen. With `seen`, timings that the
    model may have learned from, a look-up among these is compared too. Raises TrainingError where
    no problem has two timed candidates, or the model has no prediction for any of them.
    """
    pool = CandidatePool.make(table)
    predicted = judged.predict_table(pool.table)
    model, reaches = choosers.model(pool, judged, predicted, name)
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
    ks = tuple(range(1, MAX_K + 1))
    found = {c.name: efficiencies(pool, c.score, ks if c.ranks else (1,)) for c in there}
    instead, default = found[choosers.ATEN][0], found[choosers.DEFAULT][0]
    rows = [row for c in there if (row := _row(pool, c, found[c.name], instead, default))]
    if not rows or rows[0].chooser != name:
        raise TrainingError(
            f"The model {name} has no prediction for any of these timings; give it timings of "
            "operators and types that it was trained on."
        )
    cases = pool.cases()
    answered = ~np.isnan(found[name][0])
    if not answered.all():
        notes = (
            f"The model has no prediction for {np.count_nonzero(~answered)} of the problems: "
            "ATen's kernel counts as its choice there.",
            *notes,
        )
    compiled = _at_compile_time(pool, judged)
    return Report(
        model=name,
        hardware=tuple(dict.fromkeys(e.hardware.name for _, e, _ in cases)),
        unseen=unseen,
        problems=len(cases),
        candidates=len(pool),
        left_out=pool.left_out,
        errors=prediction_errors(pool, predicted),
        calibration=calibration(reaches, found[name]),
        noise=noise(table),
        cases=_cases(pool, model, predicted, found, reaches, compiled),
        notes=notes,
        choosers=tuple(rows),
    )


def _row(
    pool: CandidatePool, chooser: ScoredChooser, found: Values, instead: Values, default: Values
) -> ChooserRow | None:
    """The row of a chooser; None where neither the chooser nor ATen has an answer to any problem.
    `found` is [k, cases]; `instead` and `default` [cases] are the efficiencies of ATen and of
    DEFAULT."""
    answered = ~np.isnan(found[0])
    found = np.where(answered, found, instead)
    judged = ~np.isnan(found[0])
    if not judged.any() or (chooser.name != choosers.ATEN and not answered.any()):
        return None
    both = judged & ~np.isnan(default)
    return ChooserRow(
        chooser=chooser.name,
        timed=chooser.timed,
        answered=int(np.count_nonzero(answered)),
        speed=geomean(found[0][both]) / geomean(default[both]) if both.any() else None,
        top={k: Summary.make(found[k - 1][judged]) for k in KS if k <= len(found)},
        groups=by_group([problem for problem, _, _ in pool.cases()], found[0]),
    )


def _at_compile_time(pool: CandidatePool, judged: Predictor) -> list[CompiledChoice | None]:
    """Return what a compile would take for each case, among all that Inductor offers."""
    out: list[CompiledChoice | None] = []
    keys = choosers.kernel_keys(pool.table.candidates)
    for problem, environment, rows in pool.cases():
        try:
            chooser = Chooser(judged, environment.hardware)
            _, found = choose_offered(problem, chooser, environment.torch)
        except NothingError:
            out.append(None)
            continue
        measured = {keys[candidate] for candidate in pool.table.candidate[rows].tolist()}
        (key,) = choosers.kernel_keys(found.candidates)
        out.append(CompiledChoice(found.candidates[0], key in measured, found.confidence))
    return out


def _cases(
    pool: CandidatePool,
    model: ScoredChooser,
    predicted: Values,
    found: Mapping[str, Values],
    reaches: Sequence[tuple[float, ...] | None],
    compiled: Sequence[CompiledChoice | None],
) -> tuple[Case, ...]:
    ours, instead = found[model.name], found[choosers.ATEN][0]

    def lowest(values: Values, rows: slice) -> TimedKernel:
        """Return the kernel of these rows that has the lowest value."""
        row = rows.start + int(np.nanargmin(values[rows]))
        candidate = pool.table.candidates[pool.table.candidate[row]]
        return TimedKernel(candidate, known_number(pool.time_us[row]), known_number(predicted[row]))

    out = []
    for i, (problem, environment, rows) in enumerate(pool.cases()):
        answered = not np.isnan(ours[0, i])
        efficiency = ours[:, i] if answered else np.repeat(instead[i], len(ours))
        known = not np.isnan(efficiency[0])
        others = {name: values[0, i] for name, values in found.items() if name != model.name}
        out.append(
            Case(
                problem=problem,
                environment=environment,
                efficiency={k: float(efficiency[k - 1]) for k in KS} if known else None,
                confidence=(reaches[i] or (None,))[0],
                chosen=lowest(model.score, rows) if answered else None,
                best=lowest(pool.time_us, rows),
                others={name: float(us) for name, us in others.items() if not np.isnan(us)},
                compiled=compiled[i],
            )
        )
    return tuple(out)
