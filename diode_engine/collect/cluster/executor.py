"""The executor of a Ray cluster: a process for each of its GPUs of one kind, and compilers on its
cores.

A GPU's process (`hosts.GpuHost`) holds the GPU alone and supervises its workers. So a worker that
dies or hangs is replaced on its own machine, and this process only notices GPUs' processes that
are lost. `connection` connects to the cluster, `gpus` has the GPUs' processes and the sessions
of their workers, and `compilers` the compilers.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from diode_engine.collect.cluster.compilers import RayCompilers
from diode_engine.collect.cluster.connection import ClusterConnection, Machine, machines_with
from diode_engine.collect.cluster.gpus import CHECK_SECONDS, RayGpus
from diode_engine.collect.cluster.hosts import Setup
from diode_engine.collect.executor import Sessions
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.local import Direct, workers_of
from diode_engine.collect.processes.gpu_worker import DEADLINE_SECONDS, WORKER
from diode_engine.collect.session_runner import SessionRunner
from diode_engine.core.hardware import Environment

log = logging.getLogger(__name__)


class RayExecutor:
    """The GPUs of one kind in the cluster at `address` (as Ray takes it: host:port, or auto).

    `kind` is a type of accelerator as Ray names it (H200), or a custom resource that the machines
    have; it can be left out where the cluster's GPUs are of one type. With `direct`, kernels are
    launched directly (see Direct); each machine has its own folder of binaries at that path, or
    they share one. `command` starts a worker (without `direct`); `deadline` is a worker's, in
    seconds.
    """

    def __init__(
        self,
        address: str,
        *,
        kind: str | None = None,
        workers_per_gpu: int | None = None,
        direct: Direct | None = None,
        command: Sequence[str] = WORKER,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        self.gpus: tuple[int, ...] = ()
        self._kind = kind
        self._per_gpu = workers_per_gpu
        self._direct = direct
        self._setup = Setup(
            tuple(command) if direct is None else direct.worker,
            () if direct is None else direct.compiler,
            sys.executable,
            deadline,
            None if direct is None else direct.binaries.absolute(),
        )
        self._connection = ClusterConnection(address)
        self._compilers: dict[Environment, RayCompilers] = {}

    @property
    def spec(self) -> Mapping[str, Any]:
        return {
            "ray": self._connection.address,
            "accelerator": self._kind,
            "workers_per_gpu": self._per_gpu,
            **({} if self._direct is None else {"direct": True}),
        }

    def __enter__(self) -> RayExecutor:
        self._connection.connect()
        try:
            there = self._machines_with_gpus()
            cores, gpus = min(m.cores // m.gpus for m in there), sum(m.gpus for m in there)
            if self._per_gpu is None:
                self._per_gpu = workers_of(cores + 1, 1, direct=self._direct is not None)
            log.info("%d GPUs on %d machines, %d workers each", gpus, len(there), self._per_gpu)
        except BaseException:
            self._connection.disconnect()
            raise
        # Launched directly, one of a GPU's workers times and perhaps another gets ready: they need
        # two cores, and one is left to compilers.
        most = self._per_gpu if self._direct is None else min(2, cores - 1)
        self._compilers.clear()
        self._runner = SessionRunner()
        self._gpus = RayGpus(
            self._connection,
            self._runner,
            self._kind,
            self._setup,
            self._compilers,
            workers=self._per_gpu,
            cores=max(0, min(cores, most)),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()
        self._connection.close(self._gpus.ready_actors)
        for compilers in self._compilers.values():
            compilers.end()
        self._gpus.end()
        self._connection.disconnect()

    def count(self) -> int:
        """How many GPUs there are now. Connects to the cluster, and stays connected until the
        executor was left. Raises CollectionError where there is none."""
        self._connection.connect()
        return sum(machine.gpus for machine in self._machines_with_gpus())

    def run(self, sessions: Sessions) -> Iterator[None]:
        self._runner.begin(sessions)
        checked = -CHECK_SECONDS
        while self._runner.is_busy:
            if time.monotonic() - checked >= CHECK_SECONDS:
                checked = time.monotonic()
                if self._runner.has_waiting:
                    self._gpus.start_missing()  # machines may have come to the cluster
            self._runner.step()
            yield

    def compilers(self, environment: Environment) -> RayCompilers | None:
        if self._direct is None:
            return None
        if environment not in self._compilers:
            self._compilers[environment] = RayCompilers(
                self._connection.ray, self._setup, environment
            )
        return self._compilers[environment]

    def states(self) -> Mapping[int, GpuState]:
        return self._gpus.states()

    def _machines_with_gpus(self) -> list[Machine]:
        return machines_with(self._connection.ray, self._kind, self._connection.address)
