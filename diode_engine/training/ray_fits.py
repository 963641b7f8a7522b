"""Fits on the cores of a Ray cluster, side by side."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from diode_engine import ray_connection
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.fitting import FitProgress
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit_nodes import NodeFitProgress
from diode_engine.training.fits import FitTask, Members, TaskProgressCallback
from diode_engine.version import __version__

STEP_SECONDS = 0.5  # between two reports of a fit, and between two queries of all reports
MAX_LOSSES = 3  # a fit is given up when it has lost so many processes
# For each report: the task's place, the member, its progress, and the machine's id in Ray and name.
_Told = list[tuple[int, str, FitProgress, tuple[str, str]]]


class Board:
    """A Ray actor that keeps the fits' reports until the process that asked for the fits takes
    them."""

    def __init__(self) -> None:
        self._told: _Told = []

    def tell(self, told: _Told) -> None:
        """Adds reports."""
        self._told += told

    def take(self) -> _Told:
        """The reports since the last call, in their order."""
        told, self._told = self._told, []
        return told


def make_fit(
    version: str,
    board: Any,
    place: int,
    learned: TimingTable,
    what: Mapping[str, Any],
) -> Members:
    """The members of one task, fitted in a process of Ray's. `what` has the fields of the FitTask
    but `learned`. Raises TrainingError where this machine's Diode is not of this version: it might
    fit another model."""
    import ray

    if version != __version__:
        raise TrainingError(
            f"A machine of the cluster has Diode {__version__}, and this is {version}: install "
            "the same version on all machines."
        )
    told: _Told = []
    when = 0.0
    machine = ray.get_runtime_context().get_node_id(), platform.node()

    def report(member: str, progress: FitProgress) -> None:
        nonlocal told, when
        told.append((place, member, progress, machine))
        if time.monotonic() - when >= STEP_SECONDS:
            when = time.monotonic()
            board.tell.remote(told)
            told = []

    members = FitTask(learned, **what).fitted(report)
    ray.get(board.tell.remote(told))  # so that the last report arrives before the result
    return members


class RayFits:
    """Makes each fit on one core of the Ray cluster at `address` (as Ray takes it: host:port, or
    auto). A context manager. A fit whose process is lost is made again, on any machine."""

    divides_tasks = False

    def __init__(self, address: str) -> None:
        self._address = address
        self._machines = ray_connection.MachineNames()
        self._owns_connection = False

    def __enter__(self) -> RayFits:
        self._ray = ray_connection.imported("Training", TrainingError)
        self._owns_connection = ray_connection.connect(self._ray, self._address, TrainingError)
        return self

    def __exit__(self, *_: object) -> None:
        if self._owns_connection:
            self._ray.shutdown()

    @property
    def slots(self) -> int:
        """As FitExecutor.slots: the cores of the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def run(
        self,
        tasks: Iterable[FitTask],
        report: TaskProgressCallback,
        checkpoints: Checkpoints | None = None,
    ) -> Iterator[tuple[FitTask, Members]]:
        """As FitExecutor.run, without checkpoints: the machines may not see their folder. Raises
        TrainingError also where the cluster loses a fit MAX_LOSSES times."""
        ray = self._ray
        tasks = list(tasks)
        # The board is on this machine, so that it is not lost with another one.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        board = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        make = ray.remote(make_fit).options(num_cpus=1, max_retries=MAX_LOSSES - 1)
        tables = {id(task.learned): task.learned for task in tasks}
        put = {key: ray.put(table) for key, table in tables.items()}
        left = [
            make.remote(__version__, board, place, put[id(task.learned)], _rest(task))
            for place, task in enumerate(tasks)
        ]
        try:
            while left:
                done, _ = ray.wait(left[:1], timeout=STEP_SECONDS)
                for place, member, progress, machine in ray.get(board.take.remote()):
                    there = NodeFitProgress(**vars(progress), node=self._machines.of(*machine))
                    report(place, member, there)
                if done:
                    yield tasks[-len(left)], ray.get(left[0])
                    left.pop(0)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, TrainingError):
                raise cause from error
            raise TrainingError(f"A fit on the cluster failed: {cause}") from error
        except ray.exceptions.RayError as error:
            raise TrainingError(f"The cluster lost a fit {MAX_LOSSES} times: {error}") from error
        finally:
            for reference in left:
                ray.cancel(reference, force=True)
            ray.kill(board)


def _rest(task: FitTask) -> Mapping[str, Any]:
    """The task without its timings, which many tasks share."""
    return {f.name: getattr(task, f.name) for f in fields(task) if f.name != "learned"}
