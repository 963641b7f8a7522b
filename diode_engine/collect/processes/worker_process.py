"""A worker process of this machine, which is replaced when it is lost.

It is lost when it dies, sends something that it should not, or sends nothing until its deadline.
Then it is killed with its whole process group, and the next message goes to another process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Generic, TypeVar

from diode_engine.collect.processes import protocol
from diode_engine.collect.processes.children import end
from diode_engine.collect.processes.scratch import Scratch
from diode_engine.errors import CollectionError, explain_os_error

START_SECONDS = 300.0  # until a process must have sent its first message
# How many processes may die at their start, one after another, before no more are started.
MAX_FAILED_STARTS = 3

Hello = TypeVar("Hello")
T = TypeVar("T")


class WorkerLost(Exception):
    """The process was lost; `timed_out` says that it had sent nothing until its deadline."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("it hung" if timed_out else "it died")
        self.timed_out = timed_out


class WorkerProcess(Generic[Hello]):
    """A worker process, or the one that was started in its place.

    `command` starts it; the number of its connection's file descriptor is added to the command.
    `who` is its name in errors, such as "Workers for GPU 0", and `read_hello` reads its first
    message. `environment` has variables that are added to this process's, and `first` is sent to it
    at once. `deadline` is the longest time from one message to the next, in seconds. Raises OSError
    where there can be no folder for its caches and its log.

    One thread at a time may use it; any thread may call `close`.
    """

    def __init__(
        self,
        command: Sequence[str],
        who: str,
        read_hello: Callable[[protocol.Message], Hello],
        *,
        environment: Mapping[str, str],
        deadline: float,
        first: protocol.Message | None = None,
    ) -> None:
        self._command = command
        self._who = who
        self._read_hello = read_hello
        self._scratch = Scratch("diode-worker-")
        self._log = self._scratch.path / "log"
        self._environment = environment
        self._deadline = deadline
        self._first = first
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection
        self._caches = ""
        self._unread: list[protocol.Message] = []
        self._hello: Hello | None = None  # of the process that runs
        self._failed_starts = 0
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Starts the process, unless it runs already. Raises CollectionError after `close`, and
        where the operating system refuses it (the disk is full)."""
        with self._lock, explain_os_error(CollectionError, f"{self._who} cannot be started"):
            if self._closed:
                raise CollectionError(f"{self._who} were ended.")
            if self._process is not None:
                return
            self._connection, theirs = Pipe()
            self._caches = tempfile.mkdtemp(dir=self._scratch.path)
            environment = {
                **os.environ,
                "TORCHINDUCTOR_CACHE_DIR": self._caches,
                "TRITON_CACHE_DIR": f"{self._caches}/triton",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "DIODE_DISABLE": "1",
                **self._environment,
            }
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._command, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,  # so Ctrl-C interrupts the run, which ends its workers
                )
            theirs.close()
            self._unread, self._hello = [], None
        if self._first is not None:
            self._send(self._first)

    def ready(self) -> Hello:
        """Starts the process, unless it runs already, and returns its first message when it is
        ready. Raises CollectionError, with the last line of its log, where it cannot be started."""
        while self._hello is None:
            self.start()
            try:
                self._hello = self._receive(self._read_hello, START_SECONDS)
                self._failed_starts = 0
            except WorkerLost:
                self._failed_starts += 1
                if self._failed_starts >= MAX_FAILED_STARTS and not self._closed:
                    said = last_words(self._log)
                    raise CollectionError(
                        f"{self._who} cannot be started; the last one said: {said}"
                    ) from None
        return self._hello

    def send(self, message: protocol.Message) -> None:
        """Sends a message, when the process is ready. Raises what `ready` does."""
        if self._hello is not None and (self._unread or self._connection.poll()):
            self._lose()  # it has died since the last time, or says what it was not asked for
        self.ready()
        self._send(message)

    def receive(self, read: Callable[[protocol.Message], T]) -> T:
        """What `read` returns for the next message. Raises WorkerLost where none comes, and where
        `read` raises for a message that is not valid."""
        return self._receive(read, self._deadline)

    def close(self) -> None:
        """Ends the process at once. A thread that uses it gets WorkerLost or CollectionError."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                _shut_down(self._connection)
                end(self._process)
            self._scratch.close()

    def _send(self, message: protocol.Message) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `receive` reports it
            self._connection.send_bytes(protocol.pack(message))

    def _receive(self, read: Callable[[protocol.Message], T], seconds: float) -> T:
        try:
            if not self._unread:
                if not self._connection.poll(seconds):
                    self._lose()
                    raise WorkerLost(timed_out=True)
                self._unread = protocol.unpack_all(self._connection.recv_bytes())
            return read(self._unread.pop(0))
        except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError):
            self._lose()
            raise WorkerLost(timed_out=False) from None

    def _lose(self) -> None:
        """Ends the process and all that it started (compilers), and removes its caches."""
        with self._lock:
            if self._process is not None and not self._closed:
                end(self._process)
                shutil.rmtree(self._caches, ignore_errors=True)
            self._process = self._hello = None
            self._connection.close()


def _shut_down(connection: Connection) -> None:
    """Wakes a thread that waits for the other side of this `Pipe()`, which is a pair of sockets."""
    with (
        contextlib.suppress(OSError),
        socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as shared,
    ):
        shared.shutdown(socket.SHUT_RDWR)


def last_words(log: Path) -> str:
    """The last line of a log that is not empty."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
