"""Worker processes on one or more GPUs, which may crash, hang or be killed.

A `Pool` hands each idle worker a conversation: a generator that yields requests and is sent
the answers. A worker that dies or overstays the deadline is killed with its whole process
group and replaced, and its conversation is told so with a `WorkerDied`.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Protocol

from diode_engine.collect import protocol
from diode_engine.collect.children import end
from diode_engine.collect.gpus import visible_to_a_child
from diode_engine.collect.scratch import Scratch
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError

# From one message of a worker to the next: the slowest kernel's compile, and its launches.
DEADLINE_SECONDS = 120.0
START_SECONDS = 300.0
# A pool whose workers die at once, again and again, is not going to get better.
MOST_FAILED_STARTS = 3

# Whoever runs the pool is heard at least so often, also while all workers wait for compilers.
TURN_SECONDS = 1.0

WORKER = (sys.executable, "-P", "-m", "diode_engine.collect.worker")


@dataclass(frozen=True)
class WorkerDied:
    """What a conversation is sent in place of an answer."""

    timed_out: bool
    gpu: int


@dataclass(frozen=True)
class Host:
    """What a worker works on: a GPU by its number in this process and by its own name (see
    `gpus.name_of`), and the software around it."""

    gpu: int
    name: str
    environment: Environment


class Pending(Protocol):
    """Something that a conversation waits for; its file descriptor becomes readable."""

    def fileno(self) -> int: ...


Message = protocol.Message
Request = Message | Pending | None
# Yields requests, or None to read on, and is sent the worker's messages, each with the number of
# its GPU as "gpu" (another one's, where the worker had to be replaced). Or yields what it waits
# for, and is sent READY; meanwhile its worker has no deadline.
Conversation = Generator[Request, Message | WorkerDied, None]
READY: Message = {"ready": True}
# Gives the next conversation with such a worker, or None if there is none left.
Conversations = Callable[[Host], Conversation | None]


@dataclass
class _Worker:
    """A process and how far it is."""

    device: int
    process: subprocess.Popen[bytes]
    connection: Connection
    caches: Path
    deadline: float
    host: Host | None = None
    conversation: Conversation | None = field(default=None)
    pending: Pending | None = None

    def kill(self) -> None:
        """Ends the process and all that it started (compilers), and its caches with it."""
        end(self.process)
        self.connection.close()
        shutil.rmtree(self.caches, ignore_errors=True)


class Pool:
    """`per_device` workers on each of the devices.

    `command` starts a worker, given the number of its connection's file descriptor;
    `deadline` is in seconds. A context manager: leaving it ends all workers at once.
    """

    def __init__(
        self,
        devices: Sequence[int],
        per_device: int,
        *,
        command: Sequence[str] = WORKER,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        self._devices = tuple(devices)
        self._per_device = per_device
        self._command = tuple(command)
        self._deadline = deadline
        self._visible = {device: visible_to_a_child(device) for device in devices}
        self._scratch = Scratch("diode-collect-")
        self._folder = self._scratch.path
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._started = 0

    def __enter__(self) -> Pool:
        for _ in range(self._per_device):
            for device in self._devices:
                self._start(device)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
        self._scratch.close()

    def _start(self, device: int) -> None:
        ours, theirs = Pipe()
        self._started += 1
        caches = self._folder / f"worker-{self._started}"
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": self._visible[device],
            "TORCHINDUCTOR_CACHE_DIR": str(caches),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "DIODE_DISABLE": "1",
        }
        with (self._folder / f"worker-{device}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for the run, which then ends its workers
            )
        theirs.close()
        deadline = time.monotonic() + START_SECONDS
        self._workers.append(_Worker(device, process, ours, caches, deadline))

    def run(self, conversations: Conversations) -> Iterator[None]:
        """Holds all conversations to their end; yields after every message, and at least every
        TURN_SECONDS, so that the caller can write, report and stop. Raises CollectionError if
        workers cannot be started."""
        orphans: list[Conversation] = []

        def begin(worker: _Worker) -> bool:
            """Gives the worker something to do; False if there is nothing left."""
            assert worker.host is not None
            while True:
                conversation = orphans.pop() if orphans else conversations(worker.host)
                worker.conversation = conversation
                if conversation is None:
                    return False
                request = next(conversation, None)
                if request is not None:
                    self._send(worker, request)
                    return True

        def hear(worker: _Worker, message: Message) -> bool:
            """Passes a message on; False if the worker has nothing left to do."""
            if worker.conversation is None:
                worker.host = Host(
                    worker.device, message["gpu"], Environment.from_dict(message["environment"])
                )
                self._failed_starts = 0
                return begin(worker)
            try:
                request = worker.conversation.send({**message, "gpu": worker.device})
            except StopIteration:
                return begin(worker)
            if request is not None:
                self._send(worker, request)
            return True

        idle: list[_Worker] = []
        while busy := [worker for worker in self._workers if worker not in idle]:
            now = time.monotonic()
            patience = max(0.0, min(worker.deadline for worker in busy) - now)
            awaited: list[Any] = [worker.connection for worker in busy]
            awaited += [worker.pending for worker in busy if worker.pending is not None]
            ready = wait(awaited, timeout=min(patience, TURN_SECONDS))
            if not ready:
                yield
            now = time.monotonic()
            for worker in busy:
                if worker.pending is not None and worker.pending in ready:
                    worker.pending = None
                    worker.deadline = now + self._deadline
                    if not hear(worker, READY):
                        idle.append(worker)
                    yield
                elif worker.connection in ready:
                    try:
                        message = protocol.unpack(worker.connection.recv_bytes())
                    except (EOFError, OSError):
                        self._replace(worker, orphans, timed_out=False)
                        continue
                    worker.deadline = now + self._deadline
                    if not hear(worker, message):
                        idle.append(worker)
                    yield
                elif worker.deadline <= now:
                    self._replace(worker, orphans, timed_out=True)

    def _send(self, worker: _Worker, request: Message | Pending) -> None:
        if not isinstance(request, dict):
            worker.pending, worker.deadline = request, math.inf
            return
        # If it has just died, the next read says so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send_bytes(protocol.pack(request))

    def _replace(self, worker: _Worker, orphans: list[Conversation], *, timed_out: bool) -> None:
        self._workers.remove(worker)
        worker.kill()
        if worker.host is None:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS:
                raise CollectionError(
                    f"Workers for GPU {worker.device} cannot be started; the last one said: "
                    f"{self._last_words(worker.device)}"
                )
        if worker.conversation is not None:
            with contextlib.suppress(StopIteration):
                # It yields what it would ask next; a fresh worker is asked that.
                request = worker.conversation.send(WorkerDied(timed_out, worker.device))
                orphans.append(_resumed(worker.conversation, request))
        self._start(worker.device)

    def _last_words(self, device: int) -> str:
        lines = (self._folder / f"worker-{device}.log").read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")


def _resumed(conversation: Conversation, request: Request) -> Conversation:
    """A conversation that goes on from a request that it has already made."""
    answer = yield request
    while True:
        try:
            request = conversation.send(answer)
        except StopIteration:
            return
        answer = yield request
