"""Fits that do not depend on each other: where they are made, here one after the other or on a
cluster side by side (`ray_fits`). What is made of the same task is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from diode_engine.core.table import TimingTable
from diode_engine.models.fitting import FitProgress
from diode_engine.models.protocol import TimingModel
from diode_engine.training.fit import fit
from diode_engine.training.settings import TrainingSettings

# Is told the place of a task, the member that is being fitted, and how far it is.
TaskProgressCallback = Callable[[int, str, FitProgress], None]
Members = tuple[TimingModel, ...]


@dataclass(frozen=True, eq=False)
class FitTask:
    """What `fit` is asked for."""

    learned: TimingTable
    family: str
    seed: int = 0
    settings: TrainingSettings | None = None


class FitExecutor(Protocol):
    """Makes fits."""

    @property
    def slots(self) -> int:
        """How many fits it makes at a time."""

    def run(
        self, tasks: Iterable[FitTask], report: TaskProgressCallback
    ) -> Iterator[tuple[FitTask, Members]]:
        """Each task with the members that were fitted, in the tasks' order. What `report` raises
        ends all of them. Raises TrainingError as `fit` does."""


class LocalFits:
    """In this process, one after the other."""

    slots = 1

    def run(
        self, tasks: Iterable[FitTask], report: TaskProgressCallback
    ) -> Iterator[tuple[FitTask, Members]]:
        for place, task in enumerate(tasks):

            def told(member: str, progress: FitProgress, place: int = place) -> None:
                report(place, member, progress)

            members = fit(
                task.learned, task.family, seed=task.seed, settings=task.settings, report=told
            )
            yield task, members
