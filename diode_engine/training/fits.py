"""Fits that do not depend on each other: where they are made, in this process one after the other,
or side by side on the cores of this machine (`process_fits`) or of a cluster (`ray_fits`). What is
made of the same task is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Protocol

from diode_engine.core.table import TimingTable
from diode_engine.models.families import FAMILIES
from diode_engine.models.fitting import FitProgress
from diode_engine.models.protocol import TimingModel
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit import (
    MemberFits,
    MemberProgressCallback,
    families_of,
    fit,
    made_from,
)
from diode_engine.training.settings import TrainingSettings

# Is told the place of a task, the member that is being fitted, and how far it is.
TaskProgressCallback = Callable[[int, str, FitProgress], None]
Members = tuple[TimingModel, ...]


@dataclass(frozen=True, eq=False)
class FitTask:
    """What `fit` is asked for; with `member` only the member of this place, which learns from
    `teacher` where its family learns from one."""

    learned: TimingTable
    family: str
    seed: int = 0
    settings: TrainingSettings | None = None
    member: int | None = None
    teacher: Members = ()

    def fitted(
        self, report: MemberProgressCallback, checkpoints: Checkpoints | None = None
    ) -> Members:
        of, seed, settings = self.family, self.seed, self.settings
        if self.member is None:
            return fit(
                self.learned, of, seed=seed, settings=settings, report=report,
                checkpoints=checkpoints,
            )  # fmt: skip
        fits = MemberFits(self.learned, of, seed=seed, settings=settings)
        return (fits.fit(self.member, self.teacher, report=report, checkpoints=checkpoints),)


class FitExecutor(Protocol):
    """Makes fits."""

    @property
    def slots(self) -> int:
        """How many tasks it should be asked for at a time, so that no core waits."""

    @property
    def divides_tasks(self) -> bool:
        """Whether it makes the members of one task side by side (see `by_members`)."""

    def run(
        self,
        tasks: Iterable[FitTask],
        report: TaskProgressCallback,
        checkpoints: Checkpoints | None = None,
    ) -> Iterator[tuple[FitTask, Members]]:
        """Each task with the members that were fitted, in the tasks' order. What `report` raises
        ends all of them. With `checkpoints` the fits continue where they were interrupted, if they
        are made on this machine. Raises TrainingError as `fit` does."""


class LocalFits:
    """In this process, one after the other."""

    slots = 1
    divides_tasks = False

    def run(
        self,
        tasks: Iterable[FitTask],
        report: TaskProgressCallback,
        checkpoints: Checkpoints | None = None,
    ) -> Iterator[tuple[FitTask, Members]]:
        for place, task in enumerate(tasks):

            def told(member: str, progress: FitProgress, place: int = place) -> None:
                report(place, member, progress)

            yield task, task.fitted(told, checkpoints)


def by_members(
    tasks: Sequence[FitTask],
    fits: FitExecutor,
    report: TaskProgressCallback,
    checkpoints: Checkpoints | None = None,
) -> list[Members]:
    """What `fit` makes of each of these tasks, but with a fit for each member, side by side. Those
    with a teacher follow when their teachers are fitted. With `checkpoints` a member that was
    finished before an interruption is not fitted again. A fit that would be alone is made here, and
    continues where it was."""
    if fits.divides_tasks:
        return [members for _, members in fits.run(tasks, report, checkpoints)]
    made: list[Members] = [()] * len(tasks)
    for wave in zip_longest(*(_waves(families_of(task.family)) for task in tasks), fillvalue=()):
        parts = [
            replace(task, member=place, teacher=made[i] if _learns(task, place) else ())
            for i, (task, places) in enumerate(zip(tasks, wave, strict=True))
            for place in places
        ]
        whole = [i for i, places in enumerate(wave) for _ in places]
        fitted = _fitted(parts, whole, fits, report, checkpoints)
        for i, part, model in zip(whole, parts, fitted, strict=True):
            made[i] = (model,) if part.teacher else (*made[i], model)
    return made


def _waves(families: Sequence[str]) -> list[list[int]]:
    """The places of the members, those together that do not need each other."""
    waves: list[list[int]] = [[]]
    for place, member in enumerate(families):
        if FAMILIES[member].teacher:
            waves.append([])
        waves[-1].append(place)
    return waves


def _learns(task: FitTask, place: int) -> bool:
    return bool(FAMILIES[families_of(task.family)[place]].teacher)


def _fitted(
    parts: Sequence[FitTask],
    whole: Sequence[int],
    fits: FitExecutor,
    report: TaskProgressCallback,
    checkpoints: Checkpoints | None,
) -> list[TimingModel]:
    """The models of these parts; `whole` has the place of the task that each is a part of."""
    if len(parts) == 1:
        (only,), (place,) = parts, whole
        return list(only.fitted(partial(report, place), checkpoints))
    found = [None if checkpoints is None else _kept(part, checkpoints) for part in parts]
    left = [i for i, model in enumerate(found) if model is None]

    def told(place: int, member: str, progress: FitProgress) -> None:
        report(whole[left[place]], member, progress)

    for i, (part, (model,)) in zip(left, fits.run([parts[i] for i in left], told), strict=True):
        found[i] = model if checkpoints is None else _kept(part, checkpoints, model)
    return [model for model in found if model is not None]


def _kept(
    part: FitTask, checkpoints: Checkpoints, model: TimingModel | None = None
) -> TimingModel | None:
    """The model of a part that is kept already, or else `model`, which is kept from now on."""
    assert part.member is not None
    settings = part.settings or TrainingSettings()
    what = made_from(part.learned, part.seed, part.member, settings)
    family, sees = families_of(part.family)[part.member], settings.feature_set
    if model is None:
        return checkpoints.finished(what, family, sees)
    return checkpoints.fitted(what, family, lambda _: model, sees)
