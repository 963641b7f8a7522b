"""The executor of a Ray cluster: a process for each of its GPUs of one kind, and compilers on its
cores.

A GPU's process (`hosts.GpuHost`) holds the GPU alone and supervises its workers. So a worker that
dies or hangs is replaced on its own machine, and this process only notices GPUs' processes that are
lost, alone or with their machines. The requests that these had are given to others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from diode_engine.collect.cluster.compilers import RayCompilers
from diode_engine.collect.cluster.connection import (
    ClusterConnection,
    Machine,
    ProcessLost,
    machines_with,
)
from diode_engine.collect.cluster.hosts import GpuHost, Hello
from diode_engine.collect.executor import (
    Answer,
    BatchAnswer,
    BatchRequest,
    Host,
    Sessions,
    SpaceRequest,
)
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.local import Setup, workers_of
from diode_engine.collect.session_runner import SessionRunner
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError
from diode_engine.ray_connection import MachineNames
from diode_engine.version import __version__

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0  # between two checks of the cluster, and of each GPU's state
PATIENCE_SECONDS = 60.0  # for the answer to the question about a GPU's state
MAX_FAILED_STARTS = 3  # of GPUs' processes in a row
_SHARE = 0.001  # of a resource that only says on which machines a process may run


@dataclass(eq=False)
class RayGpu:
    """A process that holds one GPU (`hosts.GpuHost`).

    It is in use while it has a `host`: from its first answer until it is lost. A GPU that cannot be
    used is set aside: its process stays and holds the GPU, so that Ray does not offer it again.
    """

    actor: Any
    set_aside: bool = False
    host: Host | None = None
    machine: str = ""

    def __str__(self) -> str:
        return f"A GPU on {self.machine}" if self.machine else "A GPU"


class RayExecutor:
    """The GPUs of one kind in the cluster at `address` (as Ray takes it: host:port, or auto).

    `kind` is a type of accelerator as Ray names it (H200), or a custom resource that the machines
    have; it can be left out where the cluster's GPUs are of one type. Each machine has its own
    folder of binaries at the path in `setup`, or they share one. All GPUs must have the environment
    of the first one.
    """

    def __init__(
        self,
        address: str,
        *,
        kind: str | None = None,
        workers_per_gpu: int | None = None,
        setup: Setup | None = None,
    ) -> None:
        self.gpus: tuple[int, ...] = ()
        self._kind = kind
        self._per_gpu = workers_per_gpu
        self._setup = setup or Setup()
        self._connection = ClusterConnection(address)
        self._machines = MachineNames()

    @property
    def spec(self) -> Mapping[str, Any]:
        return {
            "ray": self._connection.address,
            "accelerator": self._kind,
            "workers_per_gpu": self._per_gpu,
            **({"direct": True} if self._setup.is_direct else {}),
        }

    def __enter__(self) -> RayExecutor:
        self._connection.connect()
        try:
            there = self._machines_with_gpus()
            cores, gpus = min(m.cores // m.gpus for m in there), sum(m.gpus for m in there)
            usual = workers_of(cores + 1, 1, direct=self._setup.is_direct)
            self._workers = self._per_gpu or usual
            log.info("%d GPUs on %d machines, %d workers each", gpus, len(there), self._workers)
        except BaseException:
            self._connection.disconnect()
            raise
        # Launched directly, one of a GPU's workers times and perhaps another gets ready: they need
        # two cores, and one is left to compilers.
        most = min(2, cores - 1) if self._setup.is_direct else self._workers
        self._cores = max(0, min(cores, most))
        self._runner = SessionRunner()
        self._compilers: dict[Environment, RayCompilers] = {}
        self._gpus: list[RayGpu] = []
        self._numbers: dict[tuple[str, str], int] = {}  # in the run, by machine and GPU
        self._environment: Environment | None = None
        self._failed_starts = 0
        self._waiting_since: float | None = None
        self._states: dict[int, GpuState] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()
        self._connection.close(self._ready_actors())
        for compilers in self._compilers.values():
            compilers.end()
        for gpu in self._gpus:
            self._connection.end(gpu.actor)
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
                    self._start_missing()  # machines may have come to the cluster
            self._runner.step()
            yield

    def compilers(self, environment: Environment) -> RayCompilers | None:
        if not self._setup.is_direct:
            return None
        if environment not in self._compilers:
            self._compilers[environment] = RayCompilers(
                self._connection.ray, self._setup, environment
            )
        return self._compilers[environment]

    def states(self) -> Mapping[int, GpuState]:
        states, self._states = self._states, {}
        return states

    def _machines_with_gpus(self) -> list[Machine]:
        return machines_with(self._connection.ray, self._kind, self._connection.address)

    def _ready_actors(self) -> list[Any]:
        """The processes that have workers."""
        return [gpu.actor for gpu in self._gpus if gpu.host is not None]

    def _start_missing(self) -> None:
        """Starts a process for each GPU that has none. Raises CollectionError where the cluster has
        no such GPU."""
        try:
            there = self._machines_with_gpus()
        except CollectionError:
            if not self._ready_actors():
                raise
            return  # it has none at the moment, though some are in use
        now = time.monotonic()
        if self._waiting_since is None or self._ready_actors():
            self._waiting_since = now
        elif now - self._waiting_since > PATIENCE_SECONDS:
            log.warning("No GPU of the cluster is free yet, or none has cores beside it; waiting.")
            self._waiting_since = now
        for _ in range(sum(machine.gpus for machine in there) - len(self._gpus)):
            gpu = RayGpu(self._start(there[0].resource(self._kind)))
            self._gpus.append(gpu)
            self._runner.start(self._hold(gpu))

    def _start(self, resource: str | None) -> Any:
        return (
            self._connection.ray.remote(GpuHost)
            .options(
                num_gpus=1,
                num_cpus=self._cores,
                resources={} if resource is None else {resource: _SHARE},
                max_concurrency=self._workers + 2,
                max_restarts=0,
            )
            .remote(self._setup, self._workers)
        )

    async def _hold(self, gpu: RayGpu) -> None:
        """Uses a GPU's process until it is lost or set aside."""
        jobs: list[asyncio.Task[None]] = []
        try:
            gpu.host = await self._greet(gpu)
            workers = [
                self._runner.work(gpu.host, partial(self._ask, gpu, gpu.host, place))
                for place in range(self._workers)
            ]
            watch = self._watch(gpu, gpu.host)
            jobs += [asyncio.create_task(each) for each in (watch, *workers)]
            await asyncio.gather(*jobs)
        except ProcessLost as lost:
            gpu.host = None
            if lost.is_there:
                self._set_aside(gpu, str(lost))
            else:
                log.warning("%s is lost; its requests go to other GPUs: %s", gpu, lost)
                self._gpus.remove(gpu)
                self._connection.end(gpu.actor)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    def _set_aside(self, gpu: RayGpu, why: str) -> None:
        """Raises CollectionError where all GPUs are set aside."""
        log.warning("%s is left out: %s", gpu, why)
        gpu.set_aside = True
        if all(each.set_aside for each in self._gpus):
            raise CollectionError(f"None of the cluster's GPUs can be used; of the last one: {why}")

    async def _greet(self, gpu: RayGpu) -> Host:
        """The host, when a process has its GPU and its first worker is ready. Raises ProcessLost,
        also where the GPU is not like the others; raises CollectionError where several processes in
        a row were lost."""
        try:
            hello: Hello = await self._connection.answer(gpu.actor.hello.remote())
        except ProcessLost as lost:
            self._failed_starts += not lost.is_there
            if not lost.is_there and self._failed_starts >= MAX_FAILED_STARTS:
                message = f"Processes for the cluster's GPUs cannot be started: {lost}"
                raise CollectionError(message) from None
            raise
        self._failed_starts = 0
        gpu.machine = self._machines.find_name(hello.node, hello.machine)
        if hello.version != __version__:
            why = f"it has Diode {hello.version}, and this is {__version__}"
            raise ProcessLost(why, is_there=True)
        host = hello.host
        if self._environment is None:
            self._environment = host.environment
        if host.environment != self._environment:
            raise ProcessLost(_difference(host.environment, self._environment), is_there=True)
        number = self._numbers.setdefault((gpu.machine, host.name), len(self._numbers))
        return replace(host, gpu=number, node=gpu.machine)

    async def _watch(self, gpu: RayGpu, host: Host) -> None:
        """Asks for the GPU's state again and again. A process that has not answered for
        PATIENCE_SECONDS is lost."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            state = self._connection.answer(gpu.actor.state.remote())
            try:
                found = await asyncio.wait_for(state, PATIENCE_SECONDS)
            except TimeoutError:
                why = f"it has not answered for {PATIENCE_SECONDS:.0f} s"
                raise ProcessLost(why) from None
            if found is not None:
                self._states[host.gpu] = found

    async def _ask(
        self, gpu: RayGpu, host: Host, worker: int, request: SpaceRequest | BatchRequest
    ) -> Answer:
        """The answer of the GPU's worker with this number."""
        compilers = self.compilers(host.environment)
        references: Mapping[str, Any] = {}
        if compilers is not None and isinstance(request, BatchRequest):
            references = compilers.references(request.classes)
        asked = gpu.actor.ask.remote(worker, request, references)
        answer: Answer = await self._connection.answer(asked)
        return replace(answer, gpu=host.gpu) if isinstance(answer, BatchAnswer) else answer


def _difference(one: Environment, other: Environment) -> str:
    """What `one` has that the other does not, as the end of a sentence."""
    said = [
        f"{name} {getattr(one, name)} instead of {getattr(other, name)}"
        for name in ("driver", "torch", "triton")
        if getattr(one, name) != getattr(other, name)
    ]
    if one.hardware != other.hardware:
        said.append(f"{one.hardware.name} that differs from the {other.hardware.name}")
    return f"it has {', '.join(said)}"
