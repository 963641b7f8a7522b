"""Keeps worker processes running: starts them, receives their messages, and replaces lost ones.

A worker is lost when it dies, sends something that it should not, or sends nothing until its
deadline. Then it is killed with its whole process group, and another one is started in its place.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from diode_engine.collect.processes import protocol
from diode_engine.collect.processes.children import end
from diode_engine.collect.processes.scratch import Scratch
from diode_engine.errors import CollectionError

START_SECONDS = 300.0  # until a worker must have sent its first message
# After so many workers in a row have died at their start, no other one is started.
MAX_FAILED_STARTS = 3


@dataclass(frozen=True)
class Start:
    """How a worker is started."""

    command: Sequence[str]  # the number of its connection's file descriptor is added
    who: str  # its name in errors, such as "Workers for GPU 0"
    environment: Mapping[str, str]  # variables that are added to this process's
    first: protocol.Message | None = None  # the first message to it


@dataclass(eq=False)
class Worker:
    """A worker process. It is ready when it has sent its first message."""

    start: Start
    process: subprocess.Popen[bytes]
    connection: Connection
    caches: Path
    log: Path
    deadline: float  # by time.monotonic(); infinite while nothing is expected of it
    ready: bool = False

    def send(self, message: protocol.Message) -> None:
        """Sends a message. Where the worker has just died, the next `step` reports that."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(protocol.pack(message))

    def kill(self) -> None:
        """Ends the process and all that it started (compilers), and removes its caches."""
        end(self.process)
        self.connection.close()
        shutil.rmtree(self.caches, ignore_errors=True)


@dataclass(frozen=True)
class MessageReceived:
    """An event: a worker has sent a message."""

    worker: Worker
    message: protocol.Message


@dataclass(frozen=True)
class WorkerLost:
    """An event: a worker was lost; `instead` was started in its place."""

    worker: Worker
    timed_out: bool  # it sent nothing until its deadline
    instead: Worker


@dataclass(frozen=True)
class WakeUp:
    """An event: `wake` was called."""


Event = MessageReceived | WorkerLost | WakeUp


class Supervisor:
    """The worker processes of one owner, which sends them messages and gets the events.

    `prefix` begins the names of temporary folders. `deadline` is the longest time from one message
    of a worker to the next, in seconds. `check` raises OSError for a message that this worker
    should not have sent.
    """

    def __init__(
        self,
        prefix: str,
        *,
        deadline: float,
        check: Callable[[Worker, protocol.Message], None] = lambda _, __: None,
    ) -> None:
        self.workers: list[Worker] = []
        self._deadline = deadline
        self._check = check
        self._scratch = Scratch(prefix)
        self._started = 0
        self._failed_starts: dict[str, int] = {}
        self._wake, self._waker = Pipe(duplex=False)

    def close(self) -> None:
        """Ends all workers at once."""
        for worker in self.workers:
            worker.kill()
        self.workers.clear()
        self._scratch.close()

    def start(self, start: Start) -> Worker:
        """Starts a worker, and sends it its first message."""
        ours, theirs = Pipe()
        self._started += 1
        caches = self._scratch.path / f"worker-{self._started}"
        log = self._scratch.path / f"{start.who}.log"
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(caches),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "DIODE_DISABLE": "1",
            **start.environment,
        }
        with log.open("ab") as file:
            process = subprocess.Popen(
                [*start.command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,  # so Ctrl-C interrupts the run, which ends its workers
            )
        theirs.close()
        deadline = time.monotonic() + START_SECONDS
        worker = Worker(start, process, ours, caches, log, deadline)
        if start.first is not None:
            worker.send(start.first)
        self.workers.append(worker)
        return worker

    def send(self, worker: Worker, message: protocol.Message) -> None:
        """Sends a message, which the worker must answer until its deadline."""
        worker.deadline = time.monotonic() + self._deadline
        worker.send(message)

    def rest(self, worker: Worker) -> None:
        """The worker has no deadline until it is sent the next message."""
        worker.deadline = math.inf

    def wake(self) -> None:
        """Makes the present or next `step` yield WakeUp. Any thread may call it."""
        self._waker.send_bytes(b"!")

    def step(self, *, seconds: float | None = None) -> Iterator[Event]:
        """Waits for an event, for at most `seconds`, and yields all events that there are. Raises
        CollectionError where workers cannot be started, with the last line of their log."""
        now = time.monotonic()
        deadline = min((worker.deadline for worker in self.workers), default=math.inf)
        if seconds is not None:
            deadline = min(deadline, now + seconds)
        timeout = None if deadline == math.inf else max(0.0, deadline - now)
        ready = wait([*(worker.connection for worker in self.workers), self._wake], timeout)
        now = time.monotonic()
        if self._wake in ready:
            self._wake.recv_bytes()
            yield WakeUp()
        for worker in list(self.workers):
            if worker.connection in ready:
                try:
                    for message in protocol.unpack_all(worker.connection.recv_bytes()):
                        self._check(worker, message)
                        if not worker.ready:
                            worker.ready = True
                            self._failed_starts.pop(worker.start.who, None)
                        if worker.deadline != math.inf:
                            worker.deadline = now + self._deadline
                        yield MessageReceived(worker, message)
                except (EOFError, OSError):
                    yield self._replaced(worker, timed_out=False)
            elif worker.deadline <= now:
                yield self._replaced(worker, timed_out=True)

    def _replaced(self, worker: Worker, *, timed_out: bool) -> WorkerLost:
        self.workers.remove(worker)
        worker.kill()
        if not worker.ready:
            who = worker.start.who
            failed = self._failed_starts[who] = self._failed_starts.get(who, 0) + 1
            if failed >= MAX_FAILED_STARTS:
                raise CollectionError(
                    f"{who} cannot be started; the last one said: {last_words(worker.log)}"
                )
        return WorkerLost(worker, timed_out, self.start(worker.start))


def last_words(log: Path) -> str:
    """The last line of a log that is not empty."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
