"""The processes that hold a cluster's GPUs: started, watched, and replaced when they are lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from diode_engine.collect.cluster.calls import RayCalls
from diode_engine.collect.cluster.hosts import GpuHost, Hello, Setup
from diode_engine.collect.cluster.machines import Machine, machines_with
from diode_engine.collect.executor import Host
from diode_engine.collect.gpu_state import GpuState
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError
from diode_engine.ray_connection import MachineNames, error_line
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
    state_asked: float | None = None  # when, by time.monotonic(); None: no question is open
    binaries: set[str] = field(default_factory=set)  # keys of the classes that its machine has


class RayGpus:
    """The GPUs of one kind in a cluster, with a process for each that Ray gives.

    A process has `workers` workers and as many as `cores` of its machine's cores. `started` is
    called when a GPU can be used, and `lost` when it cannot be used any more. All GPUs must have
    the environment of the first one.
    """

    def __init__(
        self,
        calls: RayCalls,
        kind: str | None,
        setup: Setup,
        *,
        workers: int,
        cores: int,
        started: Callable[[RayGpu], None],
        lost: Callable[[RayGpu], None],
    ) -> None:
        self._calls = calls
        self._kind = kind
        self._setup = setup
        self._workers = workers
        self._cores = cores
        self._on_start = started
        self._on_loss = lost
        self._gpus: list[RayGpu] = []
        self._numbers: dict[tuple[str, str], int] = {}  # in the run, by machine and GPU
        self._machines = MachineNames()
        self._environment: Environment | None = None
        self._failed_starts = 0
        self._checked = 0.0
        self._waiting_since: float | None = None
        self._states: dict[int, GpuState] = {}

    @property
    def ready(self) -> list[Any]:
        """The processes that have workers."""
        return [gpu.actor for gpu in self._gpus if gpu.host is not None]

    def end(self) -> None:
        """Ends all processes at once."""
        for gpu in self._gpus:
            self._calls.end(gpu.actor)
        self._gpus.clear()

    def states(self) -> Mapping[int, GpuState]:
        """The states that came in since the last call, by the GPUs' numbers."""
        states, self._states = self._states, {}
        return states

    def is_check_due(self) -> bool:
        """True once every CHECK_SECONDS: then call `ask_states` and `start_missing`."""
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return False
        self._checked = now
        return True

    def ask_states(self) -> None:
        """Asks for the state of each GPU. A process that has not answered for PATIENCE_SECONDS is
        lost."""
        now = time.monotonic()
        for gpu in [gpu for gpu in self._gpus if gpu.host is not None]:
            if gpu.state_asked is None:
                gpu.state_asked = now
                self._calls.later(gpu.actor.state.remote(), partial(self._told, gpu))
            elif now - gpu.state_asked > PATIENCE_SECONDS:
                self._lose(gpu, f"it has not answered for {PATIENCE_SECONDS:.0f} s")

    def start_missing(self) -> bool:
        """Starts a process for each GPU that has none. Returns False where the cluster has no such
        GPU at the moment, though some are in use; raises CollectionError where none is in use."""
        try:
            there = self._machines_with_gpus()
        except CollectionError:
            if not self.ready:
                raise
            return False
        now = time.monotonic()
        if self._waiting_since is None or self.ready:
            self._waiting_since = now
        elif now - self._waiting_since > PATIENCE_SECONDS:
            log.warning("No GPU of the cluster is free yet, or none has cores beside it; waiting.")
            self._waiting_since = now
        for _ in range(sum(machine.gpus for machine in there) - len(self._gpus)):
            self._start(there[0].resource(self._kind))
        return True

    def failed(self, gpu: RayGpu, error: BaseException) -> None:
        """To be called when a call of the GPU's process has raised this."""
        if self._calls.is_own_error(error):
            self._leave_out(gpu, error_line(error))
        else:
            self._lose(gpu, error_line(error))

    def answered_nonsense(self, gpu: RayGpu) -> None:
        """To be called when an answer of the GPU's process cannot be one."""
        self._lose(gpu, "its answer is not valid")

    def _machines_with_gpus(self) -> list[Machine]:
        return machines_with(self._calls.ray, self._kind, self._calls.address)

    def _start(self, resource: str | None) -> None:
        actor = (
            self._calls.ray.remote(GpuHost)
            .options(
                num_gpus=1,
                num_cpus=self._cores,
                resources={} if resource is None else {resource: _SHARE},
                max_concurrency=self._workers + 2,
                max_restarts=0,
            )
            .remote(self._setup, self._workers)
        )
        gpu = RayGpu(actor)
        self._gpus.append(gpu)
        self._calls.later(actor.hello.remote(), partial(self._greeted, gpu))

    def _greeted(self, gpu: RayGpu, future: Future[Any]) -> None:
        """Handles the first answer of a process."""
        if gpu not in self._gpus:
            return
        error = future.exception()
        if error is None:
            self._failed_starts = 0
            self._use(gpu, future.result())
            return
        lost = not self._calls.is_own_error(error)
        self._failed_starts += lost
        self.failed(gpu, error)
        if lost and self._failed_starts >= MAX_FAILED_STARTS:
            raise CollectionError(
                f"Processes for the cluster's GPUs cannot be started: {error_line(error)}"
            )

    def _use(self, gpu: RayGpu, hello: Hello) -> None:
        """Begins to use the GPU, if it is like the others."""
        gpu.machine = self._machines.of(hello.node, hello.machine)
        if hello.version != __version__:
            self._leave_out(gpu, f"it has Diode {hello.version}, and this is {__version__}")
            return
        host = hello.host
        if self._environment is None:
            self._environment = host.environment
        if host.environment != self._environment:
            self._leave_out(gpu, _difference(host.environment, self._environment))
            return
        number = self._numbers.setdefault((gpu.machine, host.name), len(self._numbers))
        gpu.host = replace(host, gpu=number, node=gpu.machine)
        self._on_start(gpu)

    def _told(self, gpu: RayGpu, future: Future[Any]) -> None:
        """Handles the answer to the question about a GPU's state."""
        gpu.state_asked = None
        if gpu.host is None:
            return
        error = future.exception()
        if error is not None:
            self._lose(gpu, error_line(error))
        elif (state := future.result()) is not None:
            self._states[gpu.host.gpu] = state

    def _leave_out(self, gpu: RayGpu, why: str) -> None:
        """Sets the GPU aside. Raises CollectionError where all are."""
        log.warning("A GPU%s is left out: %s", _on(gpu), why)
        gpu.set_aside = True
        self._give_up(gpu)
        if all(each.set_aside for each in self._gpus):
            raise CollectionError(f"None of the cluster's GPUs can be used; of the last one: {why}")

    def _lose(self, gpu: RayGpu, why: str) -> None:
        log.warning("A GPU%s is lost; its requests go to other GPUs: %s", _on(gpu), why)
        self._gpus.remove(gpu)
        self._calls.end(gpu.actor)
        self._give_up(gpu)

    def _give_up(self, gpu: RayGpu) -> None:
        gpu.host = None
        self._on_loss(gpu)


def _on(gpu: RayGpu) -> str:
    return f" on {gpu.machine}" if gpu.machine else ""


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
