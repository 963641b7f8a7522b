"""The jobs that the fits of a task consist of (see `fits`).

What several jobs need (rows, teachers, labels) they get as SharedArrays, which are sent to a
process once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine.models.artifact import load_member
from diode_engine.models.fitting import Checkpoint, Examples, ProgressCallback
from diode_engine.models.fitting_method import FitSettings
from diode_engine.models.model_types import MODEL_TYPES
from diode_engine.models.protocol import TimingModel, answers_of
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.distillation import (
    ProblemOnGpu,
    join_labels,
    make_labels,
    split_labels,
    with_timings,
)
from diode_engine.training.fit_pool import Arrays, Job, SharedArrays


@dataclass(frozen=True)
class SharedModel:
    """A fitted model of this model type, as jobs share it."""

    family: str
    content: SharedArrays  # one array with the bytes of its file


@lru_cache(maxsize=16)  # a process does many jobs with the same teacher
def _load(model: SharedModel) -> TimingModel:
    (content,) = model.content.get()
    return load_member(model.family, content.tobytes())


def _load_all(models: Sequence[SharedModel]) -> list[TimingModel]:
    return [_load(model) for model in models]


@dataclass(frozen=True)
class FitMember(Job):
    """Fits one member of a model, and returns the bytes of its file.

    `train` and `held_out` have the columns x, log_us and problem of Examples. A member whose model
    type has a `teacher` learns from `labels` and from the teacher's `answers` for the rows of
    `train` (see LabelProblems and LabelRows). With `checkpoint` (folder, seconds, and what the
    member is made from) a fit that was interrupted continues.
    """

    family: str
    settings: FitSettings
    train: SharedArrays
    held_out: SharedArrays
    label: str = ""
    needed_bytes: int = 0
    teacher: tuple[SharedModel, ...] = ()
    labels: tuple[SharedArrays, ...] = ()
    answers: tuple[SharedArrays, ...] = ()
    checkpoint: tuple[Path, float, Any] | None = None

    def __call__(self, report: ProgressCallback) -> bytes:
        """As Job.__call__. Raises TrainingError where there are no labels."""
        method = MODEL_TYPES[self.family].fitting_method()

        def fit(checkpoint: Checkpoint | None) -> TimingModel:
            train, held_out = (Examples(*each.get()) for each in (self.train, self.held_out))
            if self.teacher:
                train, held_out = self._labels(train)
            each = (train, held_out, self.settings, report, checkpoint)
            if method.fit_with_teacher is None:
                return method.fit(*each)
            return method.fit_with_teacher(_load_all(self.teacher), *each)

        if self.checkpoint is None:
            return fit(None).to_bytes()
        folder, seconds, made_from = self.checkpoint
        checkpoints = Checkpoints(folder, seconds=seconds)
        return checkpoints.fitted(made_from, self.family, fit).to_bytes()

    def _labels(self, timed: Examples) -> tuple[Examples, Examples]:
        """Return (what is learned, what early stopping watches) of the labels."""
        labelled = join_labels(each.get() for each in self.labels)
        learned, watched = split_labels(labelled)
        answers = np.concatenate([each.get()[0] for each in self.answers], axis=1)
        return with_timings(learned, answers, timed), watched


@dataclass(frozen=True)
class LabelProblems(Job):
    """Returns the labels of some problems (see `make_labels`)."""

    problems: tuple[ProblemOnGpu, ...]
    kernels: frozenset[str]
    torch: str  # the version of torch whose candidates are labelled
    teacher: tuple[SharedModel, ...]
    seed: tuple[int, ...]

    leaves_arrays = True

    def __call__(self, report: ProgressCallback) -> Arrays:
        teacher = _load_all(self.teacher)
        return make_labels(teacher, self.kernels, self.problems, torch=self.torch, seed=self.seed)


@dataclass(frozen=True)
class LabelRows(Job):
    """Returns the answers [m, n] of the teacher's members for some of the rows to learn."""

    train: SharedArrays
    first: int
    end: int
    teacher: tuple[SharedModel, ...]

    leaves_arrays = True

    def __call__(self, report: ProgressCallback) -> Arrays:
        rows = np.asarray(self.train.get()[0][self.first : self.end])
        return (answers_of(_load_all(self.teacher), rows),)
