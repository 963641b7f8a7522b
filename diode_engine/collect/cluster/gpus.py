"""The processes that hold a cluster's GPUs. Where one is lost, alone or with its machine, the
requests that it had are given to another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from diode_engine.collect.cluster.compilers import RayCompilers
from diode_engine.collect.cluster.connection import ClusterConnection, ProcessLost, machines_with
from diode_engine.collect.cluster.hosts import GpuHost, Hello, Setup
from diode_engine.collect.executor import (
    Answer,
    BatchAnswer,
    BatchRequest,
    Host,
    SpaceRequest,
)
from diode_engine.collect.gpu_state import GpuState
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


class RayGpus:
    """The GPUs of one kind in a cluster, with a process for each that Ray gives. Each has `workers`
    workers, of which each holds a session, and `cores` of its machine's cores.

    All GPUs must have the environment of the first one. `compilers` are those of each environment,
    which sessions have ordered their classes from.
    """

    def __init__(
        self, connection: ClusterConnection, runner: SessionRunner, kind: str | None, setup: Setup,
        compilers: Mapping[Environment, RayCompilers], *, workers: int, cores: int,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._runner = runner
        self._kind = kind
        self._setup = setup
        self._compilers = compilers
        self._workers = workers
        self._cores = cores
        self._gpus: list[RayGpu] = []
        self._numbers: dict[tuple[str, str], int] = {}  # in the run, by machine and GPU
        self._machines = MachineNames()
        self._environment: Environment | None = None
        self._failed_starts = 0
        self._waiting_since: float | None = None
        self._states: dict[int, GpuState] = {}

    @property
    def ready_actors(self) -> list[Any]:
        """The processes that have workers."""
        return [gpu.actor for gpu in self._gpus if gpu.host is not None]

    def states(self) -> Mapping[int, GpuState]:
        """The states that came in since the last call, by the GPUs' numbers."""
        states, self._states = self._states, {}
        return states

    def end(self) -> None:
        """Ends all processes at once."""
        for gpu in self._gpus:
            self._connection.end(gpu.actor)
        self._gpus.clear()

    def start_missing(self) -> None:
        """Starts a process for each GPU that has none. Raises CollectionError where the cluster has
        no such GPU."""
        try:
            there = machines_with(self._connection.ray, self._kind, self._connection.address)
        except CollectionError:
            if not self.ready_actors:
                raise
            return  # it has none at the moment, though some are in use
        now = time.monotonic()
        if self._waiting_since is None or self.ready_actors:
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
        references: Mapping[str, Any] = {}
        if isinstance(request, BatchRequest) and request.classes:
            references = self._compilers[host.environment].references(request.classes)
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
