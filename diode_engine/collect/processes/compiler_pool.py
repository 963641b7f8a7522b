"""Many processes that compile kernel classes."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.orders import Job, Order, OrderBook
from diode_engine.collect.processes import protocol
from diode_engine.collect.processes.supervisor import (
    MessageReceived,
    Start,
    Supervisor,
    Worker,
    WorkerLost,
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


@dataclass(eq=False)
class _CompilerState:
    """What a compiler does."""

    job: Job = field(default_factory=list)  # empty: nothing
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
        self._book = OrderBook(binaries.keys())
        self._attempts: dict[str, int] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="compilers", daemon=True)

    def __enter__(self) -> CompilerPool:
        for _ in range(self._count):
            self._at[self._supervisor.start(self._start)] = _CompilerState()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._supervisor.wake()
        self._thread.join()
        self._supervisor.close()
        self._book.fail(CollectionError("The compilers were ended."))

    def has(self, key: str | None) -> bool:
        return self._book.has(key)

    def order(self, classes: Sequence[KernelClass]) -> Order:
        """Compiles the classes that have no binary; those that are being compiled already are not
        begun a second time."""
        order = self._book.order(lambda: self._binaries.missing(classes), self._count)
        self._supervisor.wake()
        return order

    def _run(self) -> None:
        try:
            while not self._closing:
                self._step()
        except Exception as error:
            log.debug("The compilers' thread ends.", exc_info=True)
            # Those who wait for an order have no deadline.
            self._book.fail(CollectionError(f"Nothing more can be compiled: {error}"))

    def _step(self) -> None:
        for compiler, at in self._at.items():
            if compiler.ready and not at.job:
                job = self._book.take()
                if job is None:
                    break
                at.job, at.finished, at.begun = job, 0, False
                classes = [cls.to_dict() for cls in at.job]
                self._supervisor.send(compiler, {"classes": classes})
        for event in self._supervisor.step():
            if isinstance(event, MessageReceived):
                self._hear(event.worker, event.message)
            elif isinstance(event, WorkerLost):
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
            self._book.note_compiled([at.job[at.finished].key])
            at.finished += 1
            at.begun = False
        else:
            at.job = []
            self._supervisor.rest(compiler)

    def _lost(self, event: WorkerLost) -> None:
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
                self._book.note_compiled([culprit.key])
                rest = rest[1:]
        if rest:
            self._book.put_back(rest)
