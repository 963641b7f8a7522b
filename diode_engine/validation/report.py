"""The report on a model: it and others choosing on the same problems."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from diode_engine.errors import TrainingError
from diode_engine.problem import Candidate, Problem
from diode_engine.table import TimingTable
from diode_engine.validation import choosers
from diode_engine.validation.choosers import Chooser
from diode_engine.validation.metrics import (
    Errors,
    Summary,
    Values,
    by_group,
    efficiencies,
    prediction_errors,
)
from diode_engine.validation.pool import Pool
from diode_engine.validation.text import aligned

KS = (1, 3, 5, 10)


class PredictsTables(Protocol):
    """What `evaluate` asks, such as models.predictor.Predictor."""

    def predict_table(self, table: TimingTable) -> Values:
        """[n] microseconds for each row; NaN where it cannot say."""


@dataclass(frozen=True)
class Row:
    """One chooser. `top` has a summary for each k of KS, or only for 1 where the chooser does
    not rank; `answered` is the number of problems on which it could say something: on the
    others ATen is taken, and what has no ATen either is not among `top[1].problems`.
    `timed` is the mean number of kernels timed at compile for the choice of one; `groups` has
    a summary of the first choice for each op, dtype, M and layout."""

    chooser: str
    timed: float
    answered: int
    top: Mapping[int, Summary]
    groups: Mapping[str, Mapping[str, Summary]]


@dataclass(frozen=True)
class Worst:
    """A problem that the model chose badly on: times in microseconds, None where it failed or
    nothing was predicted."""

    problem: Problem
    environment: str
    efficiency: float
    chosen: Candidate
    chosen_us: float | None
    chosen_predicted_us: float | None
    best: Candidate
    best_us: float
    best_predicted_us: float | None


@dataclass(frozen=True)
class Report:
    """What `evaluate` found; the model's row is the first. A problem here is one in one
    environment; `left_out` are those with fewer than two timed candidates."""

    model: str
    hardware: tuple[str, ...]
    problems: int
    candidates: int
    left_out: int
    rows: tuple[Row, ...]
    errors: Errors | None
    worst: tuple[Worst, ...]
    notes: tuple[str, ...]

    def row(self, chooser: str) -> Row | None:
        """The row of this name (choosers.ATEN, …); None where it could not be asked."""
        return next((row for row in self.rows if row.chooser == chooser), None)

    @property
    def efficiency(self) -> float:
        """The model's: geometric mean of its first choices."""
        return self.rows[0].top[1].geomean

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: NaN is None, a k is a text."""
        return {
            "model": self.model,
            "hardware": list(self.hardware),
            "problems": self.problems,
            "candidates": self.candidates,
            "left_out": self.left_out,
            "choosers": [
                {
                    "chooser": row.chooser,
                    "timed": row.timed,
                    "answered": row.answered,
                    "top": {str(k): asdict(summary) for k, summary in row.top.items()},
                    "groups": {
                        kind: {name: asdict(summary) for name, summary in found.items()}
                        for kind, found in row.groups.items()
                    },
                }
                for row in self.rows
            ],
            "errors": None
            if self.errors is None
            else {name: _known(value) for name, value in asdict(self.errors).items()},
            "worst": [
                {
                    "problem": w.problem.to_dict(),
                    "environment": w.environment,
                    "efficiency": w.efficiency,
                    "chosen": {
                        **w.chosen.to_dict(),
                        "us": w.chosen_us,
                        "predicted_us": w.chosen_predicted_us,
                    },
                    "best": {
                        **w.best.to_dict(),
                        "us": w.best_us,
                        "predicted_us": w.best_predicted_us,
                    },
                }
                for w in self.worst
            ],
            "notes": list(self.notes),
        }

    def render(self) -> str:
        """As plain text."""
        parts = [
            f"{self.model}: {self.problems} problems, {self.candidates} candidates, "
            f"{', '.join(self.hardware)}",
            "Efficiency: time of the best measured candidate / time of the chosen one.\n"
            + self._choosers(),
            "Geometric mean of the first choices, by group:\n" + self._groups(),
        ]
        if self.errors is not None:
            e = self.errors
            parts.append(
                f"Predicted times of {e.timings} candidates: log-RMSE {e.rmse_log:.3f} "
                f"(a factor of {e.exp_rmse:.2f}), MAPE {100 * e.mape:.1f} %, median Spearman "
                f"correlation within a problem {e.spearman:.3f}."
            )
        if self.worst:
            parts.append("The worst choices (times in µs, measured and predicted):\n" + self._bad())
        notes = list(self.notes)
        if self.left_out:
            notes.append(
                f"{self.left_out} problems with fewer than two timed candidates are left out."
            )
        if notes:
            parts.append("\n".join(notes))
        return "\n\n".join(parts)

    def _choosers(self) -> str:
        rows = []
        for row in self.rows:
            first = row.top[1]
            rows.append(
                [
                    row.chooser,
                    f"{row.timed:.0f}",
                    *(f"{x:.3f}" for x in (first.geomean, first.p10, first.worst)),
                    *(f"{row.top[k].geomean:.3f}" if k in row.top else "" for k in KS[1:]),
                    str(first.problems),
                    str(row.answered),
                ]
            )
        header = ["chooser", "timed", "geomean", "p10", "worst"]
        return aligned([*header, *(f"top-{k}" for k in KS[1:]), "problems", "answered"], rows)

    def _groups(self) -> str:
        rows = []
        for kind, found in self.rows[0].groups.items():
            for name, summary in found.items():
                others = [row.groups.get(kind, {}).get(name) for row in self.rows[1:]]
                rows.append(
                    [
                        name if kind != "layout" else f"{name} (a/b)",
                        str(summary.problems),
                        f"{summary.geomean:.3f}",
                        *("" if s is None else f"{s.geomean:.3f}" for s in others),
                    ]
                )
        return aligned(["group", "problems", *(row.chooser for row in self.rows)], rows)

    def _bad(self) -> str:
        rows = [
            [
                f"{w.problem}",
                f"{w.chosen}",
                f"{w.best}",
                f"{w.efficiency:.3f}",
                _us(w.chosen_us, "failed"),
                _us(w.chosen_predicted_us, ""),
                _us(w.best_us, ""),
                _us(w.best_predicted_us, ""),
            ]
            for w in self.worst
        ]
        header = ["problem", "chosen", "best", "efficiency", "chosen", "pred.", "best", "pred."]
        return aligned(header, rows, left=3)


def evaluate(
    table: TimingTable,
    asked: PredictsTables | Values,
    *,
    name: str = "model",
    worst: int = 5,
) -> Report:
    """Judges a model (or its predictions, [n] microseconds for the table's rows, NaN where it
    cannot say) against ATen, max-autotune's DEFAULT space, nvMatmulHeuristics, a roofline and
    the median candidate, on all problems of the table. `name` is the model's in the report;
    it lists the `worst` problems.

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
        choosers.roofline(pool),
        choosers.median_candidate(pool),
    ]
    instead = efficiencies(pool, everyone[1].score, (1,))[0]  # type: ignore[union-attr]
    rows = [row for c in everyone if c is not None and (row := _row(pool, c, instead)) is not None]
    if not rows or rows[0].chooser != name:
        raise TrainingError(
            f"The model {name} can say nothing about these timings, and there is no ATen among "
            "them to fall back to; give it timings of what it was trained on."
        )
    cases = pool.cases()
    unanswered = len(cases) - rows[0].answered
    if unanswered:
        notes = (
            f"The model cannot say anything about {unanswered} of the problems: there ATen "
            "counts as its choice.",
            *notes,
        )
    return Report(
        model=name,
        hardware=tuple(dict.fromkeys(e.hardware.name for _, e, _ in cases)),
        problems=len(cases),
        candidates=len(pool),
        left_out=pool.left_out,
        rows=tuple(rows),
        errors=prediction_errors(pool, predicted),
        worst=tuple(_worst(pool, model, predicted, worst)),
        notes=notes,
    )


def _row(pool: Pool, chooser: Chooser, instead: Values) -> Row | None:
    """None where neither the chooser nor ATen has an answer to any problem."""
    ks = KS if chooser.ranks else KS[:1]
    found = efficiencies(pool, chooser.score, ks)
    answered = ~np.isnan(found[0])
    found = np.where(answered, found, instead)
    judged = ~np.isnan(found[0])
    if not judged.any() or (chooser.name != choosers.ATEN and not answered.any()):
        return None
    return Row(
        chooser=chooser.name,
        timed=chooser.timed,
        answered=int(np.count_nonzero(answered)),
        top={k: Summary.of(found[i][judged]) for i, k in enumerate(ks)},
        groups=by_group([problem for problem, _, _ in pool.cases()], found[0]),
    )


def _worst(pool: Pool, model: Chooser, predicted: Values, n: int) -> list[Worst]:
    efficiency = efficiencies(pool, model.score, (1,))[0]
    cases = pool.cases()
    out = []
    for case in np.argsort(efficiency, kind="stable")[:n].tolist():
        if np.isnan(efficiency[case]) or efficiency[case] == 1:
            break
        problem, environment, rows = cases[case]
        chosen = rows.start + int(np.nanargmin(model.score[rows]))
        best = rows.start + int(np.nanargmin(pool.time_us[rows]))
        out.append(
            Worst(
                problem=problem,
                environment=environment.hardware.name,
                efficiency=float(efficiency[case]),
                chosen=pool.table.candidates[pool.table.candidate[chosen]],
                chosen_us=_known(pool.time_us[chosen]),
                chosen_predicted_us=_known(predicted[chosen]),
                best=pool.table.candidates[pool.table.candidate[best]],
                best_us=float(pool.time_us[best]),
                best_predicted_us=_known(predicted[best]),
            )
        )
    return out


def _known(value: float) -> Any:
    """None for NaN; a plain number otherwise."""
    return None if math.isnan(value) else value if isinstance(value, int) else float(value)


def _us(value: float | None, none: str) -> str:
    return none if value is None else f"{value:.1f}"
