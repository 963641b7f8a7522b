"""Many processes that compile kernel classes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from diode_engine.collect import protocol
from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.children import end
from diode_engine.collect.scratch import Scratch
from diode_engine.core.problem import Failure
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass

log = logging.getLogger(__name__)

COMPILER = (sys.executable, "-P", "-m", "diode_engine.collect.compile_worker")
# For one kernel. The slowest seen took half a minute: hundreds of kilobytes of spilled code.
DEADLINE_SECONDS = 180.0
START_SECONDS = 300.0
# Classes of one family share what they are rendered from, and so are compiled in one job; of
# few, each is a job of its own, since somebody waits.
MOST_JOB_CLASSES = 8
MOST_ATTEMPTS = 2  # at a class that ends its compiler
MOST_FAILED_STARTS = 3


class Order:
    """Classes being compiled for someone. `fileno` becomes readable when all are done."""

    def __init__(self, classes: Sequence[KernelClass]) -> None:
        self.left = {cls.key for cls in classes}
        self.error: CollectionError | None = None
        self._reader, self._writer = os.pipe()
        if not self.left:
            self.finish()

    def fileno(self) -> int:
        return self._reader

    @property
    def pending(self) -> bool:
        return self._writer >= 0

    def done(self, key: str) -> None:
        self.left.discard(key)
        if not self.left:
            self.finish()

    def finish(self, error: CollectionError | None = None) -> None:
        self.error = error
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def result(self) -> None:
        """Waits. Raises CollectionError where the compilers cannot be started."""
        os.read(self._reader, 1)
        if self.error is not None:
            raise self.error

    def __del__(self) -> None:
        self.finish(self.error)
        os.close(self._reader)


@dataclass
class _Compiler:
    """A process and what it is at."""

    process: subprocess.Popen[bytes]
    connection: Connection
    caches: Path
    deadline: float
    ready: bool = False
    job: list[KernelClass] = field(default_factory=list)
    finished: int = 0
    begun: int | None = None

    def kill(self) -> None:
        end(self.process)
        self.connection.close()
        shutil.rmtree(self.caches, ignore_errors=True)


class Farm:
    """`workers` compilers that fill a folder of binaries.

    A class that ends its compiler or overstays the deadline (seconds) is given another try,
    and then recorded as failed; the rest of its job goes to another compiler. A context
    manager: leaving it ends all compilers at once. What they have finished stays.
    """

    def __init__(
        self,
        binaries: Binaries,
        workers: int,
        *,
        command: Sequence[str] = COMPILER,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        self._binaries = binaries
        self._count = workers
        self._command = tuple(command)
        self._deadline = deadline
        self._scratch = Scratch("diode-compile-")
        self._folder = self._scratch.path
        self._compilers: list[_Compiler] = []
        self._started = self._failed_starts = 0
        self._jobs: deque[list[KernelClass]] = deque()
        self._orders: list[Order] = []
        self._underway: set[str] = set()
        self._compiled = binaries.keys()
        self._attempts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._wake, self._waker = Pipe(duplex=False)
        self._closing = False
        self._error: CollectionError | None = None
        self._thread = threading.Thread(target=self._run, name="compilers", daemon=True)

    def __enter__(self) -> Farm:
        for _ in range(self._count):
            self._start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._waker.send_bytes(b"!")
        self._thread.join()
        for compiler in self._compilers:
            compiler.kill()
        for order in self._orders:
            order.finish(CollectionError("The compilers were ended."))
        self._scratch.close()

    def has(self, key: str | None) -> bool:
        """Whether nothing has to be compiled for the class of this key; None stands for what
        needs no binary."""
        return key is None or key in self._compiled or key in self._underway

    def order(self, classes: Sequence[KernelClass]) -> Order:
        """Has those compiled that were not yet; what is under way is not begun again."""
        todo = self._binaries.missing(classes)
        order = Order(todo)
        families: dict[str, list[KernelClass]] = {}
        size = min(MOST_JOB_CLASSES, 1 + len(todo) // self._count)
        with self._lock:
            if self._error is not None:
                order.finish(self._error)
                return order
            self._orders.append(order)
            for cls in todo:
                if cls.key not in self._underway:
                    self._underway.add(cls.key)
                    families.setdefault(cls.family, []).append(cls)
            for members in families.values():
                for at in range(0, len(members), size):
                    self._jobs.append(members[at : at + size])
        self._waker.send_bytes(b"!")
        return order

    def _start(self) -> None:
        ours, theirs = Pipe()
        self._started += 1
        caches = self._folder / f"compiler-{self._started}"
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",  # compiling needs no context on a GPU
            "TORCHINDUCTOR_CACHE_DIR": str(caches),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "DIODE_DISABLE": "1",
        }
        with (self._folder / "log").open("ab") as file:
            process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
        theirs.close()
        start = {
            "environment": self._binaries.environment.to_dict(),
            "root": str(self._binaries.root),
        }
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            ours.send_bytes(protocol.pack(start))
        deadline = time.monotonic() + START_SECONDS
        self._compilers.append(_Compiler(process, ours, caches, deadline))

    def _run(self) -> None:
        try:
            while not self._closing:
                self._step()
        except Exception as error:
            log.debug("The compilers' thread ends.", exc_info=True)
            with self._lock:  # whoever waits has no deadline
                self._error = CollectionError(f"Nothing more can be compiled: {error}")
                for order in self._orders:
                    order.finish(self._error)

    def _step(self) -> None:
        for compiler in self._compilers:
            if compiler.ready and not compiler.job:
                with self._lock:
                    if not self._jobs:
                        break
                    compiler.job = self._jobs.popleft()
                compiler.finished, compiler.begun = 0, None
                compiler.deadline = time.monotonic() + self._deadline
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    classes = [cls.to_dict() for cls in compiler.job]
                    compiler.connection.send_bytes(protocol.pack({"classes": classes}))
        busy = [c for c in self._compilers if c.job or not c.ready]
        patience = min((c.deadline for c in busy), default=None)
        if patience is not None:
            patience = max(0.0, patience - time.monotonic())
        ready = wait([c.connection for c in self._compilers] + [self._wake], timeout=patience)
        if self._wake in ready:
            self._wake.recv_bytes()
        now = time.monotonic()
        for compiler in list(self._compilers):
            if compiler.connection in ready:
                try:
                    message = protocol.unpack(compiler.connection.recv_bytes())
                except (EOFError, OSError):
                    self._replace(compiler, Failure.CRASH)
                    continue
                compiler.deadline = now + self._deadline
                self._hear(compiler, message)
            elif compiler in busy and compiler.deadline <= now:
                self._replace(compiler, Failure.TIMEOUT)

    def _hear(self, compiler: _Compiler, message: dict[str, object]) -> None:
        if "ready" in message:
            compiler.ready = True
            self._failed_starts = 0
        elif "begin" in message:
            compiler.begun = compiler.finished
        elif "end" in message:
            self._done(compiler.job[compiler.finished])
            compiler.finished += 1
            compiler.begun = None
        else:
            compiler.job = []

    def _done(self, cls: KernelClass) -> None:
        with self._lock:
            self._underway.discard(cls.key)
            self._compiled.add(cls.key)
            for order in self._orders:
                order.done(cls.key)
            self._orders = [order for order in self._orders if order.left]

    def _replace(self, compiler: _Compiler, failure: Failure) -> None:
        self._compilers.remove(compiler)
        compiler.kill()
        if not compiler.ready:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS:
                raise CollectionError(
                    f"Compilers cannot be started; the last one said: {self._last_words()}"
                )
        rest = compiler.job[compiler.finished :]
        if rest and compiler.begun is not None:
            culprit = rest[0]
            attempts = self._attempts[culprit.key] = self._attempts.get(culprit.key, 0) + 1
            if attempts >= MOST_ATTEMPTS:
                log.info("%s ended its compiler: %s", culprit.candidate, failure)
                reason = "it took too long" if failure is Failure.TIMEOUT else "the compiler died"
                self._binaries.put(culprit, Unbuilt(failure, reason))
                self._done(culprit)
                rest = rest[1:]
        if rest:
            with self._lock:
                self._jobs.appendleft(rest)
        self._start()

    def _last_words(self) -> str:
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
