"""A model's times for the kernels that Inductor offers and the GPU can launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from diode_engine.choosing.prediction import Mask, Microseconds, Prediction
from diode_engine.choosing.stats import Stats
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateTable
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.inductor.choosing.predictor import TimePredictor

_CACHE_SIZE = 64  # products with a dynamic size whose times are remembered
_SHORTLIST = 8  # candidates of a product with a dynamic size that are judged by other sizes too


class Times:
    """A model's times on one GPU. `likeness` is that of the GPU to those that the model was trained
    on."""

    def __init__(
        self, predictor: TimePredictor, hardware: Hardware, stats: Stats, likeness: float = 1.0
    ) -> None:
        self._predictor = predictor
        self._hardware = hardware
        self._likeness = likeness
        self._stats = stats
        # What `over` has returned for several problems.
        self._over: dict[tuple[tuple[Problem, ...], CandidateTable], Microseconds] = {}

    def ranking(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        """The ranking of the candidates that can be launched, as that of a borrowed model where the
        model is one. A candidate that cannot be launched, or that the model has no prediction for,
        has the time NaN and is not in the order."""
        table = CandidateTable.of(candidates)
        fit = fits(problem, table, self._hardware)
        places = np.flatnonzero(fit)
        self._stats.count("configs_considered", len(table))
        self._stats.count("configs_filtered", len(table) - len(places))
        asked = table.take(fit)
        us = np.full(len(candidates), np.nan)
        if not len(asked):
            return Prediction(problem, table, us)
        predict = getattr(self._predictor, "predict", None)
        if predict is None:
            us[places] = self._predictor.predict_us(problem, asked)
            return Prediction(problem, table, us, likeness=self._likeness)
        found: Prediction = predict(problem, asked)
        us[places] = found.predicted_us
        proven = None
        if found.proven is not None:
            proven = np.zeros(len(candidates), np.bool_)
            proven[places] = found.proven
        whole = replace(found, candidates=table, predicted_us=us, proven=proven)
        return whole.borrowed(self._likeness)

    def over(
        self,
        problems: Sequence[Problem],
        candidates: CandidateTable,
        ranking: Prediction,
        library: Mask,
    ) -> Microseconds:
        """[problems, n] predicted times of the candidates; with one problem, those of its ranking.
        With several problems only these candidates are asked about: those among the fastest for the
        first, the middle or the last problem, and the library's; the others are NaN."""
        if len(problems) == 1:
            return ranking.predicted_us[None]
        key = tuple(problems), candidates
        if (remembered := self._over.get(key)) is not None:
            return remembered
        asked = library.copy()
        asked[ranking.order[:_SHORTLIST]] = True
        for problem in {problems[len(problems) // 2], problems[-1]}:
            asked[self.ranking(problem, candidates).order[:_SHORTLIST]] = True
        places, some = np.flatnonzero(asked), candidates.take(asked)
        times = np.full((len(problems), len(candidates)), np.nan)
        for row, problem in zip(times, problems, strict=True):
            row[places] = self._predictor.predict_us(problem, some)
            row[places[~fits(problem, some, self._hardware)]] = np.nan
        if len(self._over) >= _CACHE_SIZE:
            self._over.clear()
        self._over[key] = times
        return times
