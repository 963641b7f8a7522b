"""A worker process of this machine, which is replaced when it is lost.

It is lost when it dies, sends what is no answer, or sends nothing until its deadline. Then it is
killed with its whole process group, and the next request goes to another process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from diode_engine.collect.processes.children import end
from diode_engine.collect.processes.scratch import Scratch
from diode_engine.errors import CollectionError, explain_os_error

START_SECONDS = 300.0  # until a process must have sent its first message
# How many processes may die at their start, one after another, before no more are started.
MAX_FAILED_STARTS = 3


class WorkerLost(Exception):
    """The process was lost; `timed_out` says that it had sent nothing until its deadline."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("it hung" if timed_out else "it died")
        self.timed_out = timed_out


class WorkerProcess:
    """A worker process, or the one that was started in its place.

    `command` starts it; the number of its connection's file descriptor is added to the command.
    Requests and answers are pickled. `who` is its name in errors, such as "Workers for GPU 0".
    `environment` has variables that are added to this process's, and `first` is sent to it at once,
    if it is not None. `deadline` is the longest time from a request to its answer, in seconds.
    Raises OSError where there can be no folder for its caches and its log.

    One thread at a time may use it; any thread may call `close`.
    """

    def __init__(
        self,
        command: Sequence[str],
        who: str,
        *,
        environment: Mapping[str, str],
        deadline: float,
        first: object = None,
    ) -> None:
        self._command = command
        self._who = who
        self._scratch = Scratch("diode-worker-")
        self._log = self._scratch.path / "log"
        self._environment = environment
        self._deadline = deadline
        self._first = first
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection
        self._caches = ""
        self._hello: Any = None  # of the process that runs; None where it is not ready
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
            self._hello = None
        if self._first is not None:
            self._send(self._first)

    def ready(self) -> Any:
        """Starts the process, unless it runs already, and returns what it sends first, when it is
        ready. Raises CollectionError, with the last line of its log, where it cannot be started."""
        while self._hello is None:
            self.start()
            try:
                self._hello = self._receive(START_SECONDS)
                self._failed_starts = 0
            except WorkerLost:
                self._failed_starts += 1
                if self._failed_starts >= MAX_FAILED_STARTS and not self._closed:
                    said = last_words(self._log)
                    raise CollectionError(
                        f"{self._who} cannot be started; the last one said: {said}"
                    ) from None
        return self._hello

    def ask(self, request: object, *kinds: type) -> Any:
        """The answer to the request, which is sent when the process is ready. Raises WorkerLost
        where none of these kinds comes, and what `ready` does."""
        if self._hello is not None and self._connection.poll():
            self.replace()  # it has died since the last time, or says what it was not asked for
        self.ready()
        self._send(request)
        answer = self._receive(self._deadline)
        if not isinstance(answer, kinds):
            self.replace()
            raise WorkerLost(timed_out=False)
        return answer

    def replace(self) -> None:
        """Ends the process and all that it started (compilers), and removes its caches; the next
        request starts another one."""
        with self._lock:
            if self._process is not None and not self._closed:
                end(self._process)
                shutil.rmtree(self._caches, ignore_errors=True)
            self._process = self._hello = None
            self._connection.close()

    def close(self) -> None:
        """Ends the process at once. A thread that uses it gets WorkerLost or CollectionError."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                _shut_down(self._connection)
                end(self._process)
            self._scratch.close()

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `_receive` reports it
            self._connection.send(message)

    def _receive(self, seconds: float) -> Any:
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
            timed_out = True
        except Exception:  # noqa: BLE001  # what is no pickle may raise anything
            timed_out = False
        self.replace()
        raise WorkerLost(timed_out=timed_out)


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
