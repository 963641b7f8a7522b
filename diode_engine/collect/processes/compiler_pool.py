"""Many processes that compile kernel classes."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Pipe

from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.processes import protocol
from diode_engine.collect.processes.compile_jobs import jobs_of
from diode_engine.collect.processes.supervisor import (
    Lost,
    OtherReady,
    Received,
    Start,
    Supervisor,
    Worker,
)
from diode_engine.core.timing import Failure
from diode_engine.documents import shortened
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass

log = logging.getLogger(__name__)

COMPILER = (sys.executable, "-P", "-m", "diode_engine.collect.workers.compile_worker")
# For one kernel. The slowest one so far took half a minute: hundreds of kilobytes of spilled code.
DEADLINE_SECONDS = 180.0
MAX_ATTEMPTS = 2  # to compile a class that ends its compiler


class Order:
    """Classes that a conversation waits for. `fileno` becomes readable when all are compiled."""

    def __init__(self, classes: Sequence[KernelClass]) -> None:
        """`classes` are those that are not compiled yet."""
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
        """Takes note that the class of this key is compiled."""
        self.left.discard(key)
        if not self.left:
            self.finish()

    def finish(self, error: CollectionError | None = None) -> None:
        """Ends the order; `result` raises the error, if there is one."""
        self.error = error
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def result(self) -> None:
        """Waits for the end of the order. Raises CollectionError where the compilers cannot be
        started."""
        os.read(self._reader, 1)
        if self.error is not None:
            raise self.error

    def __del__(self) -> None:
        self.finish(self.error)
        os.close(self._reader)


@dataclass(eq=False)
class _CompilerState:
    """What a compiler does."""

    job: list[KernelClass] = field(default_factory=list)  # empty: nothing
    finished: int = 0  # how many classes of the job are compiled
    begun: bool = False  # whether the next one is being compiled


class CompilerPool:
    """`workers` compilers that fill a folder of binaries.

    A class that ends its compiler, or takes longer than the deadline (seconds), is tried once more
    and then recorded as failed; the rest of its job goes to another compiler. A context manager:
    leaving it ends all compilers at once. The binaries that they have finished stay.
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
        self._start = Start(
            command,
            "Compilers",
            {"CUDA_VISIBLE_DEVICES": ""},  # compiling needs no context on a GPU
            {"environment": binaries.environment.to_dict(), "root": str(binaries.root)},
        )
        self._at: dict[Worker, _CompilerState] = {}
        self._supervisor = Supervisor("diode-compile-", deadline=deadline, check=self._check)
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

    def __enter__(self) -> CompilerPool:
        for _ in range(self._count):
            self._at[self._supervisor.start(self._start)] = _CompilerState()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._waker.send_bytes(b"!")
        self._thread.join()
        self._supervisor.close()
        for order in self._orders:
            order.finish(CollectionError("The compilers were ended."))

    def has(self, key: str | None) -> bool:
        """Whether the class of this key is compiled or being compiled; True for None, which stands
        for a candidate that needs no binary."""
        return key is None or key in self._compiled or key in self._underway

    def order(self, classes: Sequence[KernelClass]) -> Order:
        """Compiles the classes that have no binary; those that are being compiled already are not
        begun a second time."""
        # The lock is taken before the folder is read: a class that is finished in between would
        # otherwise be begun a second time.
        with self._lock:
            todo = self._binaries.missing(classes)
            order = Order(todo)
            if self._error is not None:
                order.finish(self._error)
                return order
            self._orders.append(order)
            new = [cls for cls in todo if cls.key not in self._underway]
            self._underway.update(cls.key for cls in new)
            self._jobs.extend(jobs_of(new, ordered=len(todo), compilers=self._count))
        self._waker.send_bytes(b"!")
        return order

    def _run(self) -> None:
        try:
            while not self._closing:
                self._step()
        except Exception as error:
            log.debug("The compilers' thread ends.", exc_info=True)
            with self._lock:  # those who wait for an order have no deadline
                self._error = CollectionError(f"Nothing more can be compiled: {error}")
                for order in self._orders:
                    order.finish(self._error)

    def _step(self) -> None:
        for compiler, at in self._at.items():
            if compiler.ready and not at.job:
                with self._lock:
                    if not self._jobs:
                        break
                    at.job = self._jobs.popleft()
                at.finished, at.begun = 0, False
                classes = [cls.to_dict() for cls in at.job]
                self._supervisor.send(compiler, {"classes": classes})
        for event in self._supervisor.step([self._wake]):
            if isinstance(event, OtherReady):
                self._wake.recv_bytes()
            elif isinstance(event, Received):
                self._hear(event.worker, event.message)
            else:
                self._lost(event)

    def _check(self, compiler: Worker, message: protocol.Message) -> None:
        """Raises OSError for a message that the compiler should not have sent."""
        at = self._at[compiler]
        place = at.finished if at.job else None
        if "begin" in message:
            right = compiler.ready and message["begin"] == place and not at.begun
        elif "end" in message:
            right = compiler.ready and message["end"] == place and at.begun
        elif "done" in message:
            right = compiler.ready and place == len(at.job)
        else:
            right = "ready" in message and not compiler.ready
        if not right:
            raise OSError(f"a compiler has sent the unexpected message {shortened(str(message))}")

    def _hear(self, compiler: Worker, message: protocol.Message) -> None:
        at = self._at[compiler]
        if "begin" in message:
            at.begun = True
        elif "end" in message:
            self._done(at.job[at.finished])
            at.finished += 1
            at.begun = False
        else:
            at.job = []
            self._supervisor.rest(compiler)

    def _done(self, cls: KernelClass) -> None:
        with self._lock:
            self._underway.discard(cls.key)
            self._compiled.add(cls.key)
            for order in self._orders:
                order.done(cls.key)
            self._orders = [order for order in self._orders if order.left]

    def _lost(self, event: Lost) -> None:
        at = self._at.pop(event.worker)
        self._at[event.instead] = _CompilerState()
        failure = Failure.TIMEOUT if event.timed_out else Failure.CRASH
        rest = at.job[at.finished :]
        if rest and at.begun:
            culprit = rest[0]
            attempts = self._attempts[culprit.key] = self._attempts.get(culprit.key, 0) + 1
            if attempts >= MAX_ATTEMPTS:
                log.info("%s ended its compiler: %s", culprit.candidate, failure)
                reason = "it took too long" if event.timed_out else "the compiler died"
                self._binaries.put(culprit, Unbuilt(failure, reason))
                self._done(culprit)
                rest = rest[1:]
        if rest:
            with self._lock:
                self._jobs.appendleft(rest)
