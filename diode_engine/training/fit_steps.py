"""The steps of the fits of one task, each a list of jobs that do not need each other: the members
that learn from timings alone; the labels of a student; the student."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diode_engine.core.table import TimingTable
from diode_engine.models.artifact import load_member
from diode_engine.models.coverage import Coverage
from diode_engine.models.fitting import Examples
from diode_engine.models.model_types import MODEL_TYPES, member_types
from diode_engine.models.protocol import TimingModel
from diode_engine.store.datasets.key import dataset_key
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.distillation import MAX_LABELS, problems_to_label
from diode_engine.training.fit_jobs import FitMember, LabelProblems, LabelRows, SharedModel
from diode_engine.training.fit_pool import Job, Pool
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import fitted_and_watched, thin_rows

Members = tuple[TimingModel, ...]
Steps = Generator[list[Job], list[Any], Members]

_PROBLEMS = 32  # problems of a job
_ANSWERS = 1 << 15  # rows of a job: whole blocks of a network's, on which the last bits depend
# A fit makes a copy of its rows, and for a moment a second one; a student also puts its labels
# together.
_COPIES, _STUDENT_COPIES = 2, 4


@dataclass(frozen=True, eq=False)
class FitTask:
    """The members of one model of this family, to be fitted to rows that are `learnable` and of one
    environment. Some of the problems are taken for early stopping. `name` ("fold 1 of 3") is that
    of the model in reports of the fits, where several are fitted."""

    learned: TimingTable
    family: str
    seed: int = 0
    settings: TrainingSettings | None = None
    name: str = ""


def fit_label(member: str, name: str) -> str:
    """Return how reports name the fit of a member of the model of this name."""
    return f"{member}, {name}" if name else member


def fit_labels(family: str, name: str) -> list[str]:
    """Return how reports name the fits of all members of a model of this family and name."""
    return [fit_label(f"{kind}-{i}", name) for i, kind in enumerate(member_types(family))]


class TaskSteps:
    """The steps of a task. Iterating yields the jobs of each step, takes the list of their results,
    and returns the task's members.

    With `checkpoints`, members that are finished there are not fitted again. Raises TrainingError
    where there is no such family, or there are too few problems.
    """

    def __init__(self, task: FitTask, pool: Pool, checkpoints: Checkpoints | None) -> None:
        self._task, self._pool, self._checkpoints = task, pool, checkpoints
        self._families = member_types(task.family)
        self._labels = fit_labels(task.family, task.name)
        self._settings = task.settings or TrainingSettings()
        self._key = None if checkpoints is None else dataset_key(task.learned)

    def __iter__(self) -> Steps:
        families = self._families
        made = {place: model for place in range(len(families)) if (model := self._finished(place))}
        teachers = [
            place for place, family in enumerate(families) if not MODEL_TYPES[family].teacher
        ]
        # At most one: a family learns from one teacher, or from none.
        student = next((place for place in range(len(families)) if place not in teachers), None)
        is_finished = student is not None and student in made
        for place in range(len(families)) if is_finished else made:
            self._pool.report(self._labels[place], None)
        if student is not None and is_finished:
            return (made[student],)
        self._share_rows()
        left = [place for place in teachers if place not in made]
        if left:
            contents = yield [self._fit(place, self._rows * _COPIES) for place in left]
            made |= {p: self._load(p, content) for p, content in zip(left, contents, strict=True)}
        members = tuple(made[place] for place in teachers)
        if student is None:
            return members
        (content,) = yield [(yield from self._teach(student, members))]
        return (self._load(student, content),)

    def _made_from(self, place: int) -> list[Any]:
        """What the member at this place is made from, as Checkpoints takes it."""
        return [self._key, self._task.seed, place, self._settings.to_dict()]

    def _finished(self, place: int) -> TimingModel | None:
        if self._checkpoints is None:
            return None
        return self._checkpoints.finished(self._made_from(place), self._families[place])

    def _load(self, place: int, content: bytes) -> TimingModel:
        """The member that a job has fitted. It is kept among the checkpoints, if its job could not
        do that."""
        family = self._families[place]
        model = load_member(family, content)
        if self._checkpoints is None or self._pool.has_local_files:
            return model
        made_from = self._made_from(place)
        return self._checkpoints.fitted(made_from, family, lambda _: model)

    def _share_rows(self) -> None:
        """Shares the rows to learn and those that early stopping watches."""
        seed = self._task.seed
        train, held_out = (
            Examples.make(thin_rows(part, self._settings.rows, seed=seed))
            for part in fitted_and_watched(self._task.learned, seed=seed)
        )
        self._rows, self._row_bytes = len(train.x), train.x.nbytes // len(train.x)
        self._train, self._held_out = (
            self._pool.share((each.x, each.log_us, each.problem)) for each in (train, held_out)
        )

    def _fit(self, place: int, rows: int, **labels: Any) -> FitMember:
        """Return the job that fits the member at this place, which needs memory for `rows` rows."""
        family, checkpoints, where = self._families[place], self._checkpoints, None
        if checkpoints is not None and self._pool.has_local_files:
            where = checkpoints.folder, checkpoints.seconds, self._made_from(place)
        return FitMember(
            family,
            replace(self._settings.find(family), seed=self._task.seed + place),
            self._train,
            self._held_out,
            label=self._labels[place],
            needed_bytes=rows * self._row_bytes,
            checkpoint=where,
            **labels,
        )

    def _teach(self, place: int, members: Members) -> Generator[list[Job], list[Any], FitMember]:
        """Yields the jobs for the labels of a student, and returns the job that fits it."""
        task, settings = self._task, self._settings
        coverage = Coverage.make(task.learned)
        kernels = frozenset(coverage.kernels)
        torch = task.learned.first_environment.torch
        problems = problems_to_label(task.learned, coverage, settings.lessons, seed=task.seed)
        parts = [tuple(problems[i : i + _PROBLEMS]) for i in range(0, len(problems), _PROBLEMS)]
        teacher = tuple(
            SharedModel(
                member.family, self._pool.share((np.frombuffer(member.to_bytes(), np.uint8),))
            )
            for member in members
        )
        labels = [
            LabelProblems(part, kernels, torch, teacher, (task.seed, number))
            for number, part in enumerate(parts)
        ]
        answers = [
            LabelRows(self._train, first, min(first + _ANSWERS, self._rows), teacher)
            for first in range(0, self._rows, _ANSWERS)
        ]
        arrays = yield [*labels, *answers]
        return self._fit(
            place,
            (len(problems) * MAX_LABELS + self._rows) * _STUDENT_COPIES,
            teacher=teacher,
            labels=tuple(arrays[: len(labels)]),
            answers=tuple(arrays[len(labels) :]),
        )
