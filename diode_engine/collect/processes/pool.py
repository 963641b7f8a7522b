"""Worker processes on one or more GPUs of this machine, each with one session at a time."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from diode_engine.collect.executor import (
    Answer,
    BatchAnswer,
    BatchRequest,
    Host,
    Session,
    Sessions,
    SpaceRequest,
)
from diode_engine.collect.gpu_state import GpuStates
from diode_engine.collect.gpus import visible_to_a_child
from diode_engine.collect.processes import protocol
from diode_engine.collect.processes.exchange import WorkerDied, ask
from diode_engine.collect.processes.supervisor import (
    Event,
    MessageReceived,
    Start,
    Supervisor,
    Worker,
    WorkerLost,
)
from diode_engine.core.hardware import Environment

# The longest time between two messages of a worker: enough for the slowest kernel's compile and its
# launches.
DEADLINE_SECONDS = 120.0
STEP_SECONDS = 1.0  # how long `run` waits for an event before it yields to its caller

WORKER = (sys.executable, "-P", "-m", "diode_engine.collect.workers.worker")


# A session as messages of one worker: a generator that yields messages for the worker, None to
# wait for the worker's next message, or a Future to wait for.
_Asked = protocol.Message | Future[None] | None
_Talk = Generator[_Asked, protocol.Message | WorkerDied | None, None]


@dataclass(eq=False)
class _WorkerState:
    """What a worker does."""

    gpu: int
    host: Host | None = None  # known when the worker is ready
    talk: _Talk | None = None  # its session
    unsent: protocol.Message | None = None  # is sent when the worker is ready
    waits_for: Future[None] | None = None  # what its session waits for
    asked: int = 0  # how many candidates it was last asked for
    answered: int = 0  # how many of these it has answered


class Pool:
    """`per_gpu` workers on each of the GPUs.

    `command` starts a worker; the number of its connection's file descriptor is added to it.
    `deadline` is a worker's, in seconds. With `in_turn` workers time the candidates of a batch in
    turn (see `asking.ask`). `run` may be called again when it has ended. A context manager: leaving
    it ends all workers at once.
    """

    def __init__(
        self,
        gpus: Sequence[int],
        per_gpu: int,
        *,
        states: GpuStates,
        command: Sequence[str] = WORKER,
        deadline: float = DEADLINE_SECONDS,
        in_turn: bool = False,
    ) -> None:
        self._starts = [
            (gpu, Start(command, f"Workers for GPU {gpu}", {"CUDA_VISIBLE_DEVICES": visible}))
            for gpu, visible in ((gpu, visible_to_a_child(gpu)) for gpu in gpus)
        ] * per_gpu
        self._states = states
        self._in_turn = in_turn
        self._at: dict[Worker, _WorkerState] = {}
        self._supervisor = Supervisor("diode-collect-", deadline=deadline, check=self._check)

    def __enter__(self) -> Pool:
        for gpu, start in self._starts:
            self._at[self._supervisor.start(start)] = _WorkerState(gpu)
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.close()
        self._at.clear()

    def run(self, sessions: Sessions) -> Iterator[None]:
        """Holds all sessions to their end. Yields after every message and once a second.
        Raises CollectionError where workers cannot be started."""
        for event in self._supervisor.step(seconds=0.0):  # what has died since the last time
            self._handle(event, sessions)
        for worker, at in self._at.items():
            if at.host is not None and at.talk is None:
                self._begin(worker, at, sessions)
        while any(at.host is None or at.talk is not None for at in self._at.values()):
            for event in self._supervisor.step(seconds=STEP_SECONDS):
                self._handle(event, sessions)
                yield
            yield

    def _handle(self, event: Event, sessions: Sessions) -> None:
        if isinstance(event, WorkerLost):
            self._lost(event)
        elif isinstance(event, MessageReceived):
            self._heard(event.worker, event.message, sessions)
        else:
            self._resume(sessions)

    def _begin(self, worker: Worker, at: _WorkerState, sessions: Sessions) -> None:
        """Gives the worker the next session, if there is one."""
        assert at.host is not None
        while (session := sessions(at.host)) is not None:
            at.talk = self._talk(session)
            if self._go_on(worker, at):
                return
        self._supervisor.rest(worker)

    def _go_on(
        self, worker: Worker, at: _WorkerState, answer: protocol.Message | WorkerDied | None = None
    ) -> bool:
        """Gives the session an answer (None at its beginning, and after a Future), and the
        worker the next request. Returns False where the session has ended."""
        assert at.talk is not None
        try:
            request = at.talk.send(answer)
        except StopIteration:
            at.talk = None
            return False
        if isinstance(request, dict):
            at.answered, at.asked = 0, len(request.get("candidates", ()))
            if worker.ready:
                self._supervisor.send(worker, request)
            else:
                at.unsent = request
        elif request is not None:
            at.waits_for = request
            if worker.ready:
                self._supervisor.rest(worker)
            request.add_done_callback(lambda _: self._supervisor.wake())
        return True

    def _heard(self, worker: Worker, message: protocol.Message, sessions: Sessions) -> None:
        at = self._at[worker]
        if at.host is not None:
            if not self._go_on(worker, at, {**message, "gpu": at.gpu}):
                self._begin(worker, at, sessions)
            return
        at.host = _host(at.gpu, message)
        self._states.add(at.gpu, at.host.name)
        if at.waits_for is not None:
            self._supervisor.rest(worker)
        elif at.unsent is not None:
            unsent, at.unsent = at.unsent, None
            self._supervisor.send(worker, unsent)
        else:
            self._begin(worker, at, sessions)

    def _resume(self, sessions: Sessions) -> None:
        """Goes on with the sessions whose Futures are done."""
        for worker, at in self._at.items():
            if at.waits_for is not None and at.waits_for.done():
                at.waits_for = None
                if not self._go_on(worker, at) and worker.ready:
                    self._begin(worker, at, sessions)

    def _lost(self, event: WorkerLost) -> None:
        """Continues with the worker that was started instead, on the same GPU."""
        at = self._at.pop(event.worker)
        self._at[event.instead] = at
        asked = at.host is not None and at.talk is not None and at.waits_for is None
        at.host = None
        if asked:
            self._go_on(event.instead, at, WorkerDied(event.timed_out, at.gpu))

    def _talk(self, session: Session) -> _Talk:
        """The session as messages."""
        request = next(session, None)
        while request is not None:
            answer: Answer = None
            if isinstance(request, SpaceRequest | BatchRequest):
                began = time.monotonic()
                answer = yield from ask(request, in_turn=self._in_turn)
                if isinstance(answer, BatchAnswer):
                    state = self._states.read(answer.gpu)
                    throttled = self._states.throttled_since(answer.gpu, began)
                    answer = dataclasses.replace(answer, state=state, throttled=throttled)
            else:
                yield request
            try:
                request = session.send(answer)
            except StopIteration:
                return

    def _check(self, worker: Worker, message: protocol.Message) -> None:
        """Raises OSError for a message that the worker should not have sent; then the supervisor
        replaces the worker."""
        at = self._at[worker]
        try:
            if at.host is None:
                _host(at.gpu, message)
            elif at.talk is None:
                raise ValueError("it was not asked for anything")
            elif at.asked:
                at.answered += protocol.check_answer(message, at.answered, at.asked)
            elif "refused" not in message:
                protocol.unpack_candidates(message["offered"])
                protocol.unpack_candidates(message["default"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise OSError(f"its message is not valid: {error}") from error


def _host(gpu: int, hello: dict[str, Any]) -> Host:
    """The host of a worker, from its first message. Raises ValueError, KeyError or TypeError where
    the message is not such a one."""
    if not isinstance(hello["gpu"], str):
        raise TypeError("a GPU's name is a text")
    return Host(gpu, hello["gpu"], Environment.from_dict(hello["environment"]))
