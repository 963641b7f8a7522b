"""One problem in one environment: its candidates as measured and as models predict them, and
which one each chooser would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_app.data import predictors
from diode_app.data.predictors import Model, ModelAnswer
from diode_app.data.problem_columns import measured_columns, short
from diode_app.data.problems import rows_of
from diode_app.data.tables import MAX_ROWS, Row, make_row
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError, NothingError
from diode_engine.models.estimates import Roofline, roofline
from diode_engine.problems.spaces import default_space
from diode_engine.store import Store
from diode_engine.store.query import CandidateRow, ProblemRow, candidates
from diode_engine.validation.choosers import kernel_keys

MODELS_SHOWN = 3  # beside the measured times, where no others are chosen
BEST, ATEN, DEFAULT, ROOFLINE = "best measured", "ATen", "max-autotune DEFAULT", "roofline ranking"
_SIGNS = {BEST: "★", ATEN: "A", DEFAULT: "D", ROOFLINE: "R"}

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """What a chooser would take: one of the candidates' rows, None where the chooser has no answer.
    `sure` is a model's confidence in it."""

    sign: str
    chooser: str
    taken: Row | None
    sure: float | None


@dataclass(frozen=True)
class ProblemView:
    """All of a problem's page. `rows` are the candidates with a time, the fastest first; `failures`
    are those without one. `models` are shown beside the times; they are some of the `known` ones
    that can be taken for the hardware. `notes` are sentences."""

    row: ProblemRow
    environments: tuple[int, ...]
    roofline: Roofline | None
    known: tuple[Model, ...]
    models: tuple[Model, ...]
    choices: tuple[Choice, ...]
    rows: tuple[Row, ...]
    failures: tuple[Row, ...]
    measured_us: tuple[float, ...]  # of `rows`
    predicted_us: Mapping[str, tuple[float, ...]]  # by model, of `rows`
    roofline_us: tuple[float, ...]
    notes: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        return self.row.problem

    @property
    def reached(self) -> float | None:
        """The share of the roofline's limit that the best candidate reaches."""
        if self.roofline is None or self.row.best_us is None:
            return None
        return self.roofline.share(self.row.best_us)


class NoSuchProblemError(NothingError):
    """The store has no timings of the problem."""


def problem_view(
    store: Store,
    key: str,
    environment: int | None = None,
    references: Sequence[str] | None = None,
    before: ProblemView | None = None,
) -> ProblemView:
    """Return the problem with this content key, in this environment (None: the first in which it
    was measured), with the models of these references (None: the first that can be taken for its
    hardware). `before` is returned where nothing of it has changed. Raises NoSuchProblemError."""
    rows = rows_of(store, key)
    if not rows:
        raise NoSuchProblemError(f"The store has no timings of a problem {key}.")
    row = next((row for row in rows if row.environment_number == environment), rows[0])
    known = predictors.models_for(row.environment.hardware)
    models = known[:MODELS_SHOWN]
    if references is not None:
        models = tuple(m for m in known if m.reference in references)
    environments = tuple(each.environment_number for each in rows)
    if before is not None and (row, environments, known, models) == (
        before.row, before.environments, before.known, before.models
    ):  # fmt: skip
        return before
    found: list[CandidateRow] = []
    at = row.number, row.environment_number
    while page := candidates(store, *at, offset=len(found), limit=MAX_ROWS):
        found.extend(page)
    return _view(row, environments, known, models, found)


def _view(
    row: ProblemRow,
    environments: tuple[int, ...],
    known: tuple[Model, ...],
    models: tuple[Model, ...],
    found: Sequence[CandidateRow],
) -> ProblemView:
    problem, hardware = row.problem, row.environment.hardware
    candidates = tuple(c.candidate for c in found)
    notes = []
    answers: dict[Model, ModelAnswer] = {}
    for model in models:
        try:
            answers[model] = predictors.predict(model, problem, candidates, hardware)
        except ModelError as error:
            notes.append(f"{model.reference} cannot be asked: {error}")
    if not known:
        notes.append(f"There is no registered model for {hardware.name}.")
    space = in_default(problem, candidates, row.environment.torch)
    roof, base = roofline(problem, candidates, hardware)
    times = np.array([np.nan if c.time_us is None else c.time_us for c in found])
    extern = np.array([c.is_extern for c in candidates], np.bool_)

    takers: list[tuple[str, str, int | None, float | None]] = [
        (_SIGNS[BEST], BEST, _least(times), None),
        (_SIGNS[ATEN], ATEN, _least(np.where(extern, times, np.nan)), None),
        (_SIGNS[DEFAULT], DEFAULT, _least(np.where(space, times, np.nan)), None),
    ]
    takers += [
        (str(i), model.reference, answer.place, answer.prediction.confidence)
        for i, (model, answer) in enumerate(answers.items(), 1)
    ]
    takers.append((_SIGNS[ROOFLINE], ROOFLINE, _least(base), None))

    columns = measured_columns(tuple(model.reference for model in answers))
    shown = []
    for i, c in enumerate(found):
        predicted = {m.reference: float(a.prediction.predicted_us[i]) for m, a in answers.items()}
        why = _failures(c)
        record: dict[str, Any] = {
            **c.to_dict(row.best_us),
            "rank": i + 1,
            "candidate": short(c.candidate),
            **{f"{name} us": known_us(us) for name, us in predicted.items()},
            **{f"{name} error": _error(us, c.time_us) for name, us in predicted.items()},
            "roofline_us": known_us(float(base[i])),
            "space": "library" if extern[i] else "DEFAULT" if space[i] else "",
            "taken by": " ".join(sign for sign, _, at, _ in takers if at == i),
            "why": why,
        }
        shown.append(make_row(c.candidate.key, record, columns, {"why": why}))
    timed = int(np.count_nonzero(~np.isnan(times)))  # the failed ones come last
    return ProblemView(
        row=row,
        environments=environments,
        roofline=roof,
        known=known,
        models=models,
        choices=tuple(
            Choice(sign, name, None if at is None else shown[at], sure)
            for sign, name, at, sure in takers
        ),
        rows=tuple(shown[:timed]),
        failures=tuple(shown[timed:]),
        measured_us=tuple(times[:timed].tolist()),
        predicted_us={m.reference: tuple(a.prediction.predicted_us[:timed].tolist())
                      for m, a in answers.items()},
        roofline_us=tuple(base[:timed].tolist()),
        notes=tuple(notes),
    )  # fmt: skip


def in_default(
    problem: Problem, candidates: Sequence[Candidate], torch: str
) -> npt.NDArray[np.bool_]:
    """[n] whether max-autotune offers the candidate in its search space DEFAULT, in this torch."""
    offered = set(kernel_keys(default_space(problem, torch)))
    return np.array([key in offered for key in kernel_keys(candidates)], np.bool_)


def _least(values: Times) -> int | None:
    known = np.flatnonzero(~np.isnan(values))
    return int(known[np.argmin(values[known])]) if len(known) else None


def known_us(value: float) -> float | None:
    """Return the time; None for NaN."""
    return None if np.isnan(value) else value


def _error(predicted: float, measured: float | None) -> float | None:
    """Return the error of a prediction, as a share of the measured time."""
    return None if measured is None or np.isnan(predicted) else predicted / measured - 1


def _failures(c: CandidateRow) -> str:
    words = [f"{name} ×{n}" if n > 1 else name for name, n in c.failures.items()]
    return ", ".join(words).replace("_", " ")
