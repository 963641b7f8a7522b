"""The model as the rest of Diode uses it: problems and candidates in, microseconds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.choosing.evidence import Evidence
from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.operators import Operator
from diode_engine.core.problem import Problem
from diode_engine.core.resources import many_loads
from diode_engine.core.table import TimingTable
from diode_engine.models.artifact import Artifact, load_artifact
from diode_engine.models.blas import one_thread
from diode_engine.models.coverage import kernel, op_type
from diode_engine.models.manifest import Manifest
from diode_engine.models.protocol import (
    Matrix,
    likely_of,
    mean_answer,
    prediction_of,
    space_answers_of,
)

Times = npt.NDArray[np.float64]
_CACHE_SIZE = 256  # pairs of an op and the templates of a space
_ROWS = 1 << 17  # of a table at a time, so that the features of a large one need little memory
# So many of a problem's candidates are ranked: those with the shortest base times, which nearly
# always have the best among them (docs/notes/experiments.md), and the library's. This saves the
# time to predict the others.
SHORTLIST = 320
# An overflow gives no prediction (see `_microseconds`), so NumPy need not warn of it.
_quiet = np.errstate(over="ignore", invalid="ignore")


class Predictor:
    """A loaded model, which predicts for one GPU. Immutable; may be shared by threads.

    `hardware` is the GPU to predict for (None: the one that the model has the most timings of).
    Features are made with the facts of the most alike of the model's GPUs.
    """

    def __init__(self, artifact: Artifact, hardware: Hardware | None = None) -> None:
        self.manifest: Manifest = artifact.manifest
        self.hardware: Hardware = artifact.manifest.hardware
        if hardware is not None:
            self.hardware = self.manifest.record_for(hardware).hardware
        self.identity: str = artifact.manifest.identity
        self._members = artifact.members
        self._confidence = confidence = artifact.confidence
        self.evidence: Evidence | None = None if confidence is None else confidence.evidence
        coverage = artifact.manifest.coverage
        self._kernels = frozenset(coverage.kernels)
        self._trained = lru_cache(_CACHE_SIZE)(self._trained_on)
        self._op_types = frozenset(coverage.op_types)
        self._likeness = cache(partial(self.manifest.likeness, self.hardware))  # by op type
        # The ops that it knows kernels of.
        self.ops = frozenset(name.partition(" ")[0] for name in coverage.kernels)

    @classmethod
    def load(cls, folder: Path, hardware: Hardware | None = None) -> Predictor:
        """Loads the model in this folder. Raises ModelError as load_artifact does."""
        return cls(load_artifact(folder), hardware)

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Times:
        """[n] the microseconds that each candidate takes on the problem. NaN where the model can
        say nothing: a type, or a template for this op, that it was not trained on, or a prediction
        that is not finite."""
        return self._one(problem, candidates)[0]

    @_quiet
    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        """Return the times of `predict_us`, and how sure they are. Of many candidates only the
        SHORTLIST with the shortest estimated base times are predicted, and the library's; of a
        model that says which ones are likely, those alone, and the library's."""
        predicted, members = self._one(problem, candidates, SHORTLIST)
        likeness = self._likeness(op_type(problem))
        prediction = Prediction(problem, candidates, predicted, likeness=likeness)
        known = ~np.isnan(predicted)
        if self._confidence is None or not known.any():
            return prediction
        library = encode(candidates).extern[known]
        reaches, error = self._confidence.judge(problem, members, library)
        proven = None if self.evidence is None else self.evidence.proven(problem, candidates)
        return replace(prediction, reaches=reaches, error=error, proven=proven)

    @_quiet
    def predict_table(self, table: TimingTable) -> Times:
        """[n] predicted microseconds of each row of the table, on the row's GPU; its measured times
        are not used. NaN as in `predict_us`."""
        of_table = table.problems, table.candidates
        out = np.full(len(table), np.nan)
        for hardware, places in table.rows_by(
            lambda e: self.manifest.record_for(e.hardware).hardware
        ):
            for start in range(0, len(places), _ROWS):
                rows = places[start : start + _ROWS]
                rows = rows[self._known(*of_table, table.problem[rows], table.candidate[rows])]
                if len(rows):
                    index = table.problem[rows], table.candidate[rows]
                    x = features.matrix(*of_table, *index, hardware)
                    out[rows] = _microseconds(prediction_of(self._members, x))
        return out

    @_quiet
    def predict_members_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Times:
        """[members, n] what each member of the model would predict alone; their spread says how
        uncertain the prediction is. NaN as in `predict_us`."""
        predicted, members = self._one(problem, candidates)
        out = np.full((len(members), len(candidates)), np.nan)
        out[:, ~np.isnan(predicted)] = _microseconds(members)
        return out

    def log_us(self, x: Matrix) -> Times:
        """[n] natural logarithms of microseconds for feature rows [n, F] (features.matrix),
        whether or not the model was trained on such problems."""
        return prediction_of(self._members, x).astype(np.float64)

    @_quiet
    def _one(
        self, problem: Problem, candidates: Sequence[Candidate], most: int | None = None
    ) -> tuple[Times, Times]:
        """[n] times as `predict_us` gives them, and [m, known] the log times (space_answers_of) of
        the candidates whose time is not NaN. With `most`, only the `most` candidates with the
        shortest base times and the library's are asked about, and the members may leave out some
        that are not likely; the others get NaN."""
        n = len(candidates)
        predicted = np.full(n, np.nan)
        index = np.zeros(n, np.intp), np.arange(n)
        known = self._known((problem,), candidates, *index)
        if not known.any():
            return predicted, np.empty((len(self._members), 0))
        space = features.space(problem, candidates, self.hardware)
        known &= _shortlist(space.base, known, candidates, most)
        asked = space if known.all() else space.take(known)
        with one_thread():
            likely = None if most is None else likely_of(self._members, asked)
            if likely is not None:
                likely |= ~encode(candidates).tiled[known]
                known[known] = likely
                asked = asked.take(likely)
            answers = space_answers_of(self._members, asked)
        predicted[known] = us = _microseconds(mean_answer(answers))
        return predicted, answers[:, ~np.isnan(us)].astype(np.float64)

    def _known(
        self,
        problems: Sequence[Problem],
        candidates: Sequence[Candidate],
        problem: npt.NDArray[np.integer],
        candidate: npt.NDArray[np.integer],
    ) -> npt.NDArray[np.bool_]:
        """[n] whether the model has a prediction for a row: the row has features, and the model was
        trained on its type, on its template for this op and, where its threads have many loads, on
        such kernels."""
        columns = encode(candidates)
        typed = [p.dtype in features.DTYPES and op_type(p) in self._op_types for p in problems]
        place = {op: i for i, op in enumerate(dict.fromkeys(p.op for p in problems))}
        trained = np.array([self._trained(op, columns.templates) for op in place], np.bool_)
        trained = trained.reshape(len(place), len(columns.templates), 2)  # also if one is 0
        many = many_loads(problems, candidates, problem, candidate).astype(np.intp)
        op = np.array([place[p.op] for p in problems], np.intp)
        known: npt.NDArray[np.bool_] = (
            trained[op[problem], columns.template[candidate], many]
            & columns.known[candidate]
            & np.array(typed, np.bool_)[problem]
        )
        return known

    def _trained_on(self, op: Operator, templates: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """[templates, 2] whether the model was trained on the template's kernels for this op: those
        with few loads per thread, and those with many."""
        return np.array(
            [
                [kernel(op, name, many=many) in self._kernels for many in (False, True)]
                for name in templates
            ],
            np.bool_,
        )


def _microseconds(log_us: npt.NDArray[np.floating]) -> Times:
    """The times of these logarithms; NaN where a result is not finite or is 0, as with weights that
    are much too large."""
    us = np.exp(log_us.astype(np.float64))
    return np.where(np.isfinite(us) & (us > 0), us, np.nan)


def _shortlist(
    base: Matrix, known: npt.NDArray[np.bool_], candidates: Sequence[Candidate], most: int | None
) -> npt.NDArray[np.bool_]:
    """[n] whether a candidate is on the shortlist: its base time is among the `most` shortest of
    the known candidates (all of equal times are in), or it is a library's."""
    if most is None or np.count_nonzero(known) <= most:
        return np.ones(len(base), np.bool_)
    limit = np.partition(base[known], most - 1)[most - 1]
    short: npt.NDArray[np.bool_] = (base <= limit) | ~encode(candidates).tiled
    return short
