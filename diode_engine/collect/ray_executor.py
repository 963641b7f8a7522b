"""The executor of a Ray cluster: a process for each of its GPUs of one kind, and compilers on its
cores.

A process of a GPU (`ray_hosts.GpuHost`) holds it whole and supervises its workers there, so what
kernels do to workers is dealt with on their machine. This end holds the conversations. What was
asked of a process that is lost, with its machine or alone, is asked again of another one.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from diode_engine import ray_connection
from diode_engine.collect.executor import (
    READY,
    Answer,
    Batch,
    Conversation,
    Conversations,
    Host,
    Offer,
    Offered,
    Pending,
    Refused,
    Request,
    Timed,
)
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.local import Direct, workers_of
from diode_engine.collect.pool import DEADLINE_SECONDS, WORKER
from diode_engine.collect.ray_compilers import RayCompilers, RayOrder
from diode_engine.collect.ray_hosts import CompileHost, GpuHost, Hello, Missing, Setup
from diode_engine.collect.ray_machines import Machine, machines, machines_with
from diode_engine.collect.ray_messages import RequestPacker, unpack_timed
from diode_engine.collect.timed_rows import TIMED
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError
from diode_engine.ray_connection import error_line
from diode_engine.version import __version__

log = logging.getLogger(__name__)

STEP_SECONDS = 1.0  # after which the caller has its turn at the latest
LOOK_SECONDS = 5.0  # between two looks at the cluster, and two questions how a GPU is
PATIENCE_SECONDS = 60.0  # for the answer to such a question
CLOSE_SECONDS = 15.0  # for processes to end their workers
MAX_LOSSES = 3  # of processes on one request, before it is given up
MAX_FAILED_STARTS = 3  # of GPUs' processes, with none that starts between them
_SHARE = 0.001  # of a resource that only says where


@dataclass(eq=False)
class _Gpu:
    """A GPU's process. It has a host and slots from its hello on. Where the GPU cannot be used it
    is set aside, and keeps the GPU from being tried again."""

    actor: Any
    aside: bool = False
    host: Host | None = None
    machine: str = ""
    slots: list[_Slot] = field(default_factory=list)
    asked_since: float | None = None  # how it is
    binaries: set[str] = field(default_factory=set)  # keys that its machine has


@dataclass(eq=False)
class _Slot:
    """A worker of a GPU's, and what it is at."""

    gpu: _Gpu
    place: int
    at: _ConversationState | None = None


@dataclass(eq=False)
class _ConversationState:
    """A conversation, what it wants to know, how many processes were lost over that, and whether
    binaries that it needs were."""

    conversation: Conversation
    request: Request
    losses: int = 0
    compile_again: bool = False


class RayExecutor:
    """The GPUs of one kind in the cluster at `address` (as Ray takes it: host:port, or auto).

    `kind` is a type of accelerator as Ray names it (H200), or a custom resource that the machines
    have; it can be left out where the cluster's GPUs are of one type. With `direct` kernels are
    launched directly (see Direct); the folder of binaries is one on each machine, which may be
    shared. `command` starts a worker (without `direct`), `deadline` is a worker's, in seconds.
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
        self._address = address
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
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gpus: list[_Gpu] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._machines = ray_connection.MachineNames()
        self._environment: Environment | None = None
        self._failed_starts = 0
        self._looked = 0.0
        self._waiting_since: float | None = None
        self._states: dict[int, GpuState] = {}
        self._orphans: list[_ConversationState] = []
        self._exhausted = False
        self._compilers: dict[Environment, RayCompilers] = {}
        self._owns_connection = False
        self._pack = RequestPacker()

    @property
    def spec(self) -> Mapping[str, Any]:
        return {
            "ray": self._address,
            "accelerator": self._kind,
            "workers_per_gpu": self._per_gpu,
            **({} if self._direct is None else {"direct": True}),
        }

    def __enter__(self) -> RayExecutor:
        self._connect()
        try:
            there = self._machines_with_gpus()
            cores, gpus = min(m.cores // m.gpus for m in there), sum(m.gpus for m in there)
            if self._per_gpu is None:
                self._per_gpu = workers_of(cores + 1, 1, direct=self._direct is not None)
            # Launched directly, one of a GPU's workers times and perhaps another gets ready; a
            # core is left to compilers.
            most = self._per_gpu if self._direct is None else min(2, cores - 1)
            self._cores = max(0, min(cores, most))
            log.info("%d GPUs on %d machines, %d workers each", gpus, len(there), self._per_gpu)
        except BaseException:
            self._disconnect()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        actors = [gpu.actor for gpu in self._gpus if gpu.host is not None]
        actors += [actor for each in self._compilers.values() for actor in each.ready]
        with contextlib.suppress(self._ray.exceptions.RayError):
            closed = [actor.close.remote() for actor in actors]
            if closed:
                self._ray.wait(closed, num_returns=len(closed), timeout=CLOSE_SECONDS)
        waiting = [actor for each in self._compilers.values() for actor in each.hosts]
        for actor in [*waiting, *(gpu.actor for gpu in self._gpus)]:
            self.end(actor)
        self._gpus.clear()
        self._compilers.clear()
        self._disconnect()

    def count(self) -> int:
        """How many GPUs there are now. Connects to the cluster, and stays so until the executor
        was left."""
        self._connect()
        return sum(machine.gpus for machine in self._machines_with_gpus())

    def _connect(self) -> None:
        self._ray = ray_connection.imported("Collecting", CollectionError)
        if ray_connection.connect(self._ray, self._address, CollectionError):
            self._owns_connection = True

    def _disconnect(self) -> None:
        if self._owns_connection:
            self._ray.shutdown()
            self._owns_connection = False

    # The cluster

    def _machines_with_gpus(self) -> list[Machine]:
        return machines_with(self._ray, self._kind, self._address)

    def _look_after(self) -> None:
        """Has a process for each GPU there is, and asks how the GPUs are."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for gpu in [gpu for gpu in self._gpus if gpu.slots]:
            if gpu.asked_since is None:
                gpu.asked_since = now
                self.later(gpu.actor.state.remote(), partial(self._told, gpu))
            elif now - gpu.asked_since > PATIENCE_SECONDS:
                self._lose(gpu, f"it has not answered for {PATIENCE_SECONDS:.0f} s")
        if self._exhausted and not self._orphans:
            return
        try:
            there = self._machines_with_gpus()
        except CollectionError:
            if not any(gpu.slots for gpu in self._gpus):
                raise
            return
        if self._waiting_since is None or any(gpu.slots for gpu in self._gpus):
            self._waiting_since = now
        elif now - self._waiting_since > PATIENCE_SECONDS:
            log.warning("No GPU of the cluster is free yet, or none has cores beside it; waiting.")
            self._waiting_since = now
        for _ in range(sum(machine.gpus for machine in there) - len(self._gpus)):
            self._start(there[0].resource(self._kind))
        for compilers in self._compilers.values():
            compilers.grow()

    def _start(self, resource: str | None) -> None:
        assert self._per_gpu is not None
        actor = (
            self._ray.remote(GpuHost)
            .options(
                num_gpus=1,
                num_cpus=self._cores,
                resources={} if resource is None else {resource: _SHARE},
                max_concurrency=self._per_gpu + 2,
                max_restarts=0,
            )
            .remote(self._setup, self._per_gpu)
        )
        gpu = _Gpu(actor)
        self._gpus.append(gpu)
        self.later(actor.hello.remote(), partial(self._greeted, gpu))

    def later(self, reference: Any, then: Callable[[Future[Any]], None]) -> None:
        """Has `then` called in this thread when there is an answer."""
        reference.future().add_done_callback(lambda future: self._events.put(partial(then, future)))

    def end(self, actor: Any) -> None:
        """Ends a process at once."""
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(actor, no_restart=True)

    def is_own_error(self, error: BaseException) -> bool:
        """Whether it was raised by what was called, which goes on living."""
        return isinstance(error, self._ray.exceptions.RayTaskError)

    # What comes in, each in this thread

    def _greeted(self, gpu: _Gpu, future: Future[Any]) -> None:
        if gpu not in self._gpus:
            return
        error = future.exception()
        if error is not None and self.is_own_error(error):
            self._set_aside(gpu, error_line(error))
        elif error is not None:
            self._failed_starts += 1
            self._lose(gpu, error_line(error))
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise CollectionError(
                    f"Processes for the cluster's GPUs cannot be started: {error_line(error)}"
                )
        else:
            hello: Hello = future.result()
            self._failed_starts = 0
            gpu.machine = self._machines.of(hello.node, hello.machine)
            if hello.version != __version__:
                self._set_aside(gpu, f"it has Diode {hello.version}, and this is {__version__}")
                return
            host = hello.host
            if self._environment is None:
                self._environment = host.environment
            if host.environment != self._environment:
                self._set_aside(gpu, _differs(host.environment, self._environment))
                return
            number = self._numbers.setdefault((gpu.machine, host.name), len(self._numbers))
            gpu.host = replace(host, gpu=number, node=gpu.machine)
            assert self._per_gpu is not None
            gpu.slots = [_Slot(gpu, place) for place in range(self._per_gpu)]
            for slot in gpu.slots:
                self._begin(slot)

    def _set_aside(self, gpu: _Gpu, why: str) -> None:
        """The GPU is not used, and its process keeps it, so that it is not tried again."""
        log.warning("A GPU%s is left out: %s", _on(gpu), why)
        gpu.aside = True
        self._give_up(gpu)
        if all(each.aside for each in self._gpus):
            raise CollectionError(f"None of the cluster's GPUs can be used; of the last one: {why}")

    def _lose(self, gpu: _Gpu, why: str) -> None:
        log.warning("A GPU%s is lost; what it was asked is asked again: %s", _on(gpu), why)
        self._gpus.remove(gpu)
        self.end(gpu.actor)
        self._give_up(gpu)

    def _give_up(self, gpu: _Gpu) -> None:
        slots, gpu.slots, gpu.host = gpu.slots, [], None
        for slot in slots:
            if slot.at is not None:
                slot.at.losses += 1
                self._orphans.append(slot.at)
                slot.at = None
        for each in self._gpus:
            for slot in each.slots:
                if slot.at is None and self._orphans:
                    self._begin(slot)

    def _told(self, gpu: _Gpu, future: Future[Any]) -> None:
        gpu.asked_since = None
        if gpu.host is None:
            return
        error = future.exception()
        if error is not None:
            self._lose(gpu, error_line(error))
        elif (state := future.result()) is not None:
            self._states[gpu.host.gpu] = state

    def _answered(self, slot: _Slot, at: _ConversationState, future: Future[Any]) -> None:
        if slot.at is not at:
            return  # it was given up meanwhile
        gpu, request = slot.gpu, at.request
        assert gpu.host is not None
        error = future.exception()
        if error is not None:
            if self.is_own_error(error):
                self._set_aside(gpu, error_line(error))
            else:
                self._lose(gpu, error_line(error))
            return
        answer = future.result()
        if isinstance(answer, bytes):
            answer = unpack_timed(answer)
        if isinstance(answer, Missing):
            at.losses += 1
            at.compile_again = True
            gpu.binaries.difference_update(answer.keys)
            self._issue(slot)
        elif not _answers(request, answer):
            self._lose(gpu, "what it answered makes no sense")
        else:
            if isinstance(answer, Timed):
                gpu.binaries.update(cls.key for cls in getattr(request, "classes", ()))
                answer = replace(answer, gpu=gpu.host.gpu)
            self._pass_on(slot, answer)

    # The conversations

    def run(self, conversations: Conversations) -> Iterator[None]:
        self._conversations = conversations
        self._exhausted = False
        while not self._exhausted or self._orphans or self._busy():
            self._look_after()
            with contextlib.suppress(queue.Empty):
                self._events.get(timeout=STEP_SECONDS)()
            yield

    def _busy(self) -> bool:
        return any(slot.at is not None for gpu in self._gpus for slot in gpu.slots)

    def _begin(self, slot: _Slot) -> None:
        """Gives the worker something to do, if there is something left."""
        assert slot.gpu.host is not None
        while slot.at is None:
            if self._orphans:
                slot.at = self._orphans.pop()
                self._issue(slot)
                continue
            conversation = self._conversations(slot.gpu.host)
            if conversation is None:
                self._exhausted = True
                return
            request = next(conversation, None)
            if request is not None:
                slot.at = _ConversationState(conversation, request)
                self._issue(slot)

    def _pass_on(self, slot: _Slot, answer: Answer) -> None:
        """Gives the conversation its answer, and asks the worker what is asked next."""
        at = slot.at
        assert at is not None
        try:
            at.request, at.losses = at.conversation.send(answer), 0
        except StopIteration:
            slot.at = None
            self._begin(slot)
        else:
            self._issue(slot)

    def _issue(self, slot: _Slot) -> None:
        at, gpu = slot.at, slot.gpu
        assert at is not None
        request = at.request
        if at.losses >= MAX_LOSSES:
            self._pass_on(slot, Refused(f"{at.losses} processes were lost over it"))
        elif isinstance(request, Offer | Batch):
            references: tuple[Mapping[str, Any], ...] = ()
            if isinstance(request, Batch) and request.classes:
                compilers = self._compilers[gpu.host.environment]  # type: ignore[union-attr]
                wanted = [cls for cls in request.classes if cls.key not in gpu.binaries]
                if at.compile_again:
                    at.compile_again = False
                    again = compilers.again(wanted)
                    self._wait(slot, again, partial(self._issue_again, slot, at, again))
                    return
                references = tuple(filter(None, [compilers.references(wanted)]))
            asked = gpu.actor.ask.remote(self._pack(slot.place, request), *references)
            self.later(asked, partial(self._answered, slot, at))
        else:
            self._wait(slot, request, partial(self._waited, slot, at))

    def _issue_again(self, slot: _Slot, at: _ConversationState, order: RayOrder) -> None:
        order.result()
        if slot.at is at:
            self._issue(slot)

    def _waited(self, slot: _Slot, at: _ConversationState) -> None:
        if slot.at is at:
            self._pass_on(slot, READY)

    def _wait(self, slot: _Slot, order: Pending, then: Callable[[], None]) -> None:
        assert isinstance(order, RayOrder)
        order.when_done(lambda: self._events.put(then))

    # What a collection asks besides

    def compilers(self, environment: Environment) -> RayCompilers | None:
        if self._direct is None:
            return None
        if environment not in self._compilers:
            self._compilers[environment] = RayCompilers(self, self._setup, environment)
        return self._compilers[environment]

    def compile_host(self, setup: Setup, environment: Environment) -> Any:
        """A new process that compiles, on a core of any machine."""
        made = self._ray.remote(CompileHost).options(num_cpus=1, num_gpus=0, max_restarts=0)
        return made.remote(setup, environment)

    def compile_cores(self) -> int:
        """How many processes are to compile: one for each core that the GPUs' workers leave."""
        assert self._direct is not None
        if self._direct.compilers is not None:
            return self._direct.compilers
        there = machines(self._ray)
        taken = self._cores * sum(machine.gpus for machine in there)
        return max(1, sum(machine.cores for machine in there) - taken)

    def states(self) -> Mapping[int, GpuState]:
        states, self._states = self._states, {}
        return states


def _answers(request: Request, answer: object) -> bool:
    """Whether it can be the answer to the request. What workers said was looked at where they
    are."""
    if isinstance(request, Offer):
        return isinstance(answer, Offered | Refused)
    if not isinstance(request, Batch) or not isinstance(answer, Timed):
        return False
    rows = answer.rows
    if not isinstance(rows, np.ndarray) or rows.dtype != TIMED or rows.ndim != 1:
        return False
    places = rows["place"].tolist()
    return len(set(places)) == len(places) and set(places) <= set(range(len(request.candidates)))


def _on(gpu: _Gpu) -> str:
    return f" on {gpu.machine}" if gpu.machine else ""


def _differs(one: Environment, other: Environment) -> str:
    said = [
        f"{name} {getattr(one, name)} instead of {getattr(other, name)}"
        for name in ("driver", "torch", "triton")
        if getattr(one, name) != getattr(other, name)
    ]
    if one.hardware != other.hardware:
        said.append(f"{one.hardware.name} that differs from the {other.hardware.name}")
    return f"it has {', '.join(said)}"
