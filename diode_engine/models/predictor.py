"""A model as the rest of Diode asks it: problems and candidates in, microseconds out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.encoding import encode
from diode_engine.hardware import Hardware
from diode_engine.models.artifact import Artifact, Manifest, load_artifact, type_of
from diode_engine.models.distilled import DistilledNetwork
from diode_engine.models.members import Ensemble
from diode_engine.models.protocol import Matrix
from diode_engine.problem import Candidate, Problem
from diode_engine.table import TimingTable

Times = npt.NDArray[np.float64]
_ROWS = 1 << 17  # of a table at once, so that a large one does not need its features whole


class Predictor:
    """A loaded model. Immutable; may be shared by threads."""

    def __init__(self, artifact: Artifact) -> None:
        self.manifest: Manifest = artifact.manifest
        self.hardware: Hardware = artifact.manifest.hardware
        self.identity: str = artifact.manifest.identity
        self._model = artifact.model
        coverage = artifact.manifest.coverage
        self._templates = frozenset(coverage.templates)
        self._types = frozenset(coverage.types)
        self._ops = frozenset(coverage.ops)

    @classmethod
    def load(cls, folder: Path) -> Predictor:
        """Raises ModelError as load_artifact does."""
        return cls(load_artifact(folder))

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Times:
        """[n] microseconds that each candidate takes on the problem; NaN where the model
        cannot say: a template, type or op that it was not trained on."""
        n = len(candidates)
        if isinstance(self._model, DistilledNetwork):
            known = self._known_candidates(candidates) & self._known_problems((problem,))[0]
            out = np.full(n, np.nan)
            if known.any():
                space = features.space(problem, candidates, self.hardware)
                np.exp(self._model.predict_space(space), out=out, where=known, dtype=np.float64)
            return out
        return self._predict((problem,), candidates, np.zeros(n, np.intp), np.arange(n))

    def predict_table(self, table: TimingTable) -> Times:
        """[n] microseconds for each row of the table, whatever it says itself; NaN as in
        `predict_us`."""
        out = np.empty(len(table))
        for start in range(0, len(table), _ROWS):
            rows = slice(start, start + _ROWS)
            out[rows] = self._predict(
                table.problems, table.candidates, table.problem[rows], table.candidate[rows]
            )
        return out

    def predict_members_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Times:
        """[members, n] what each member of the model, asked alone, would answer: their spread
        tells how little is known. NaN as in `predict_us`."""
        members = self._model.members if isinstance(self._model, Ensemble) else (self._model,)
        n = len(candidates)
        known, x = self._known((problem,), candidates, np.zeros(n, np.intp), np.arange(n))
        out = np.full((len(members), n), np.nan)
        if known.any():
            out[:, known] = [np.exp(m.predict(x).astype(np.float64)) for m in members]
        return out

    def _predict(
        self,
        problems: Sequence[Problem],
        candidates: Sequence[Candidate],
        problem: npt.NDArray[np.integer],
        candidate: npt.NDArray[np.integer],
    ) -> Times:
        known, x = self._known(problems, candidates, problem, candidate)
        out = np.full(len(known), np.nan)
        if known.any():
            out[known] = np.exp(self._model.predict(x).astype(np.float64))
        return out

    def _known(
        self,
        problems: Sequence[Problem],
        candidates: Sequence[Candidate],
        problem: npt.NDArray[np.integer],
        candidate: npt.NDArray[np.integer],
    ) -> tuple[npt.NDArray[np.bool_], Matrix]:
        """[n] which rows the model can say something about, and their features."""
        known = self._known_problems(problems)[problem]
        known &= self._known_candidates(candidates)[candidate]
        x = features.matrix(problems, candidates, problem[known], candidate[known], self.hardware)
        return known, x

    def _known_problems(self, problems: Sequence[Problem]) -> npt.NDArray[np.bool_]:
        """[problems] which are of a type and op that the model was trained on."""
        return np.array(
            [
                p.dtype in features.DTYPES and type_of(p) in self._types and str(p.op) in self._ops
                for p in problems
            ],
            bool,
        )

    def _known_candidates(self, candidates: Sequence[Candidate]) -> npt.NDArray[np.bool_]:
        """[candidates] which have features and a template that the model was trained on."""
        columns = encode(candidates)
        trained = np.array([name in self._templates for name in columns.templates], bool)
        known: npt.NDArray[np.bool_] = trained[columns.template] & columns.known
        return known
