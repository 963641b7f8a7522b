"""Fits side by side on the cores of a Ray cluster."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

from diode_engine.errors import TrainingError
from diode_engine.models.fitting import FitProgress
from diode_engine.ray_connection import MachineNames, RayConnection
from diode_engine.training.fit_pool import (
    Arrays,
    FitCallback,
    Job,
    Pool,
    SharedArrays,
    run_in_worker,
)
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import FitExecutor
from diode_engine.training.training_progress import NodeFitProgress
from diode_engine.version import __version__

STEP_SECONDS = 0.5  # between two reports of a fit, and between two reads of all reports
MAX_LOSSES = 3  # a fit is given up when it has lost so many processes
# The label of the fit, its progress, and the machine's id in Ray and its host name.
_Report = tuple[str, FitProgress, tuple[str, str]]


class RayFits(FitExecutor):
    """Makes each fit on one core of the Ray cluster at `address` (as Ray takes it: host:port, or
    auto). A context manager. A fit whose process is lost is made again, on any machine."""

    def __init__(self, address: str) -> None:
        self._connection = RayConnection(address, "Training", TrainingError)
        self._machines = MachineNames()

    def __enter__(self) -> RayFits:
        self._connection.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.disconnect()

    @property
    def slots(self) -> int:  # type: ignore[override]
        """As FitExecutor.slots: the cores of the cluster."""
        return max(1, int(self._connection.ray.cluster_resources().get("CPU", 1)))

    def pool(self, task: FitTask, report: FitCallback) -> contextlib.AbstractContextManager[Pool]:
        return RayPool(self._connection.ray, self.slots, self._machines, report)


@dataclass(frozen=True)
class ArraysInRay:
    """Arrays in the cluster's object store (SharedArrays)."""

    reference: Any

    def get(self) -> Arrays:
        import ray

        arrays: Arrays = ray.get(self.reference)
        return arrays


class RayPool(Pool):
    """A Pool of a cluster's cores. Leaving the context cancels its jobs."""

    has_local_files = False

    def __init__(
        self,
        ray: Any,
        size: int,
        machines: MachineNames,
        report: FitCallback,
    ) -> None:
        self.size = size
        self._ray, self._machines = ray, machines
        super().__init__(report)
        self._references: dict[Future[Any], tuple[Any, Any]] = {}  # of a job's end, and its arrays
        self._run = ray.remote(run_on_cluster).options(
            num_cpus=1, num_returns=2, max_retries=MAX_LOSSES - 1
        )

    def __enter__(self) -> RayPool:
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # The queue is on this machine, so that it is not lost with another one.
        here = NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        self._queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        self._read = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        for end, _ in self._references.values():
            self._ray.cancel(end, force=True)
        self._queue.shutdown(force=True)

    def share(self, arrays: Arrays) -> SharedArrays:
        return ArraysInRay(self._ray.put(arrays))

    def submit(self, job: Job) -> Future[Any]:
        end, arrays = self._run.remote(__version__, self._queue, job)
        future: Future[Any] = end.future()
        self._references[future] = end, ArraysInRay(arrays) if job.leaves_arrays else None
        return future

    def wait(self, running: Iterable[Future[Any]]) -> Iterable[Future[Any]]:
        ended, _ = wait(list(running), STEP_SECONDS, FIRST_COMPLETED)
        if ended or time.monotonic() - self._read >= STEP_SECONDS:
            self._read = time.monotonic()
            for reports in self._queue.get_nowait_batch(self._queue.qsize()):
                for label, progress, machine in reports:
                    node = self._machines.find_name(*machine)
                    self.report(label, NodeFitProgress(**vars(progress), node=node))
        return ended

    def result(self, future: Future[Any]) -> Any:
        _, arrays = self._references.pop(future)
        try:
            result = future.result()
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TrainingError):
                raise error.cause from None
            raise TrainingError(f"A fit on the cluster failed: {error.cause}") from error
        except self._ray.exceptions.RayError as error:
            raise TrainingError(f"The cluster lost a fit {MAX_LOSSES} times: {error}") from error
        return result if arrays is None else arrays


def run_on_cluster(version: str, queue: Any, job: Job) -> tuple[Any, Any]:
    """Do a job in a process of Ray's. Return (its result, None), or
    (None, its result) if it `leaves_arrays`. Raises TrainingError where this machine's Diode is not
    of this version: it might fit another model."""
    import ray

    if version != __version__:
        raise TrainingError(
            f"A machine of the cluster has Diode {__version__}, and this is {version}: install "
            "the same version on all machines."
        )
    reports: list[_Report] = []
    sent = time.monotonic()
    machine = ray.get_runtime_context().get_node_id(), platform.node()

    def report(progress: FitProgress) -> None:
        nonlocal reports, sent
        reports.append((job.label, progress, machine))
        if time.monotonic() - sent >= STEP_SECONDS:
            sent = time.monotonic()
            queue.put_nowait(reports)
            reports = []

    result = run_in_worker(job, report)
    if reports:
        queue.put_nowait(reports)  # before the result arrives
    return (None, result) if job.leaves_arrays else (result, None)
