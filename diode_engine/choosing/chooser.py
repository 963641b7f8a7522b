"""The chooser: a model predicts a problem's candidates on one GPU, and the policy chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from diode_engine.choosing.choice import Choice
from diode_engine.choosing.policy import Policy, plain_library_call
from diode_engine.choosing.prediction import Microseconds, Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateTable
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits

_CACHE_SIZE = 64  # products with a dynamic size whose times are remembered
SHORTLIST = 8  # candidates of a product with a dynamic size that are judged by other sizes too


class TimePredictor(Protocol):
    """Predicts kernels' times. A predictor with `predict`, such as
    diode_engine.models.predictor.Predictor, also says how sure it is."""

    @property
    def identity(self) -> str:
        """A hash of everything that its predictions depend on."""

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Microseconds:
        """[n] microseconds; NaN where it has no prediction."""


class Chooser:
    """Chooses by one model for one GPU. `keep` and `threshold` are as in `Policy`."""

    def __init__(
        self, predictor: Any, hardware: Hardware, *, keep: int = 1, threshold: float = 1.0
    ) -> None:
        self.predictor: TimePredictor = predictor
        self.hardware = hardware
        self.trained_on: Hardware = getattr(predictor, "hardware", hardware)
        self.policy = Policy(hardware.likeness(self.trained_on), keep, threshold)
        # What `predict_over` has returned for several problems.
        self._over: dict[tuple[tuple[Problem, ...], CandidateTable], Microseconds] = {}

    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        """Return the prediction for the candidates that the GPU can launch; the others have the
        time NaN. The confidence of a borrowed model, and of one that learned such problems on
        another GPU only, is multiplied by the likeness of the GPUs."""
        table = CandidateTable.make(candidates)
        fit = fits(problem, table, self.hardware)
        places, us = np.flatnonzero(fit), np.full(len(table), np.nan)
        found = Prediction(problem, table, us)
        if len(places):
            found = self._ask(problem, table.take(fit))
            us[places] = found.predicted_us
        proven = None
        if found.proven is not None:
            proven = np.zeros(len(table), np.bool_)
            proven[places] = found.proven
        likeness = self.policy.likeness * found.likeness
        return Prediction(
            problem,
            table,
            us,
            reaches=found.reaches and tuple(likeness * reached for reached in found.reaches),
            error=found.error,
            proven=proven,
            launchable=len(places),
            likeness=found.likeness,
        )

    def _ask(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        predict = getattr(self.predictor, "predict", None)
        if predict is None:
            return Prediction(problem, candidates, self.predictor.predict_us(problem, candidates))
        found: Prediction = predict(problem, candidates)
        return found

    def predict_over(self, problems: Sequence[Problem], prediction: Prediction) -> Microseconds:
        """Return [problems, n] the times for several values of a dynamic size, the first of which
        are the prediction's. Only these candidates are asked about: those among the fastest for the
        first, the middle or the last problem, and the library's; the others are NaN."""
        if len(problems) == 1:
            return prediction.predicted_us[None]
        candidates = CandidateTable.make(prediction.candidates)
        key = tuple(problems), candidates
        if (remembered := self._over.get(key)) is not None:
            return remembered
        asked = plain_library_call(candidates).copy()
        asked[prediction.order[:SHORTLIST]] = True
        for problem in {problems[len(problems) // 2], problems[-1]}:
            asked[self.predict(problem, candidates).order[:SHORTLIST]] = True
        places, some = np.flatnonzero(asked), candidates.take(asked)
        times = np.full((len(problems), len(candidates)), np.nan)
        for row, problem in zip(times, problems, strict=True):
            row[places] = self.predictor.predict_us(problem, some)
            row[places[~fits(problem, some, self.hardware)]] = np.nan
        if len(self._over) >= _CACHE_SIZE:
            self._over.clear()
        self._over[key] = times
        return times

    def choose_by_default(self, prediction: Prediction) -> Choice | None:
        """Return the choice among the predicted candidates that Inductor offers with its default
        options; None where the model has no prediction for any of them."""
        return self.policy.choose(prediction.offered_by_default())
