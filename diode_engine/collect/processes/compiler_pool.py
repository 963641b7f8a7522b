"""Many processes that compile kernel classes."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from queue import SimpleQueue

from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.orders import Compilers, Job
from diode_engine.collect.processes.worker_process import WorkerLost, WorkerProcess
from diode_engine.core.timing import Failure
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass

log = logging.getLogger(__name__)

COMPILER = (sys.executable, "-P", "-m", "diode_engine.collect.workers.compile_worker")
# For one kernel. The slowest one so far took half a minute: hundreds of kilobytes of spilled code.
DEADLINE_SECONDS = 180.0
MAX_ATTEMPTS = 2  # to compile a class that ends its compiler


class CompilerPool(Compilers):
    """`workers` compilers that fill a folder of binaries, each with a thread that gives it jobs.

    A class that ends its compiler, or takes longer than the deadline (seconds), is tried once more
    and then recorded as failed.
    """

    def __init__(
        self,
        binaries: Binaries,
        workers: int,
        *,
        command: Sequence[str] = COMPILER,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        super().__init__(binaries.keys())
        self._binaries = binaries
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()  # None: there will be no other one
        self._compilers = [
            WorkerProcess(
                command,
                "Compilers",
                environment={"CUDA_VISIBLE_DEVICES": ""},  # compiling needs no context on a GPU
                deadline=deadline,
                first=(binaries.environment, binaries.root),
            )
            for _ in range(workers)
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(compiler,), name="compiler", daemon=True)
            for compiler in self._compilers
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends all compilers at once. The binaries that they have finished stay."""
        self._fail(CollectionError("The compilers were ended."))
        with ExitStack() as closing:  # where one is interrupted, the others are ended all the same
            for thread in self._threads:
                closing.callback(thread.join)
            for compiler in self._compilers:
                closing.callback(self._jobs.put, None)
                closing.callback(compiler.close)

    def _missing(self, classes: Sequence[KernelClass]) -> list[KernelClass]:
        return self._binaries.missing(classes)

    def _count(self) -> int:
        return len(self._compilers)

    def _submit(self, job: Job) -> None:
        self._jobs.put(job)

    def _work(self, compiler: WorkerProcess) -> None:
        """Gives the compiler its jobs, until nothing more can be compiled."""
        try:
            compiler.ready()
            while (job := self._jobs.get()) is not None:
                for cls in job:
                    self._compile(compiler, cls)
        except Exception as error:
            log.debug("A compiler's thread ends.", exc_info=True)
            # Those who wait for an order have no deadline.
            self._fail(CollectionError(f"Nothing more can be compiled: {error}"))

    def _compile(self, compiler: WorkerProcess, cls: KernelClass) -> None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                compiler.ask(cls, bool)
                break
            except WorkerLost as lost:
                if self._error is not None:
                    return  # the pool was closed, which ends its compilers
                if attempt == MAX_ATTEMPTS - 1:
                    failure = Failure.TIMEOUT if lost.timed_out else Failure.CRASH
                    log.info("%s ended its compiler: %s", cls.candidate, failure)
                    reason = "it took too long" if lost.timed_out else "the compiler died"
                    self._binaries.put(cls, Unbuilt(failure, reason))
        self._note_compiled(cls.key)
