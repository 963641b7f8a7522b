"""Fits side by side in worker processes of this machine, each on one thread."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from diode_engine.collect.local import cores
from diode_engine.collect.processes.scratch import Scratch
from diode_engine.errors import TrainingError
from diode_engine.models.fitting import FitProgress
from diode_engine.training.fit_pool import (
    ArrayFiles,
    Arrays,
    FitCallback,
    Job,
    Pool,
    SharedArrays,
    files_failed,
    run_in_worker,
)
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import FitExecutor

_SYSTEM = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # of a container, as it sees its own
# Fewer timings are fitted in less time than the processes take to start.
MIN_ROWS = 20_000
_POLL_SECONDS = 0.05  # between two reads of the reports
_Report = tuple[str, FitProgress]  # the label of the fit, its progress


class ProcessFits(FitExecutor):
    """Makes fits in `processes` on this machine (None: one for each core that this process may
    use), as many of them at a time as the free memory allows. Fits of fewer than `min_rows` timings
    are made in this process."""

    def __init__(self, processes: int | None = None, *, min_rows: int = MIN_ROWS) -> None:
        self._processes = cores() if processes is None else processes
        self._min_rows = min_rows

    def pool(self, task: FitTask, report: FitCallback) -> contextlib.AbstractContextManager[Pool]:
        if self._processes < 2 or len(task.learned) < self._min_rows:
            return super().pool(task, report)
        return ProcessPool(self._processes, report)


class ProcessPool(Pool):
    """A Pool of `size` processes. Leaving the context ends them at once."""

    def __init__(self, size: int, report: FitCallback) -> None:
        self.size, self.memory = size, available_bytes()
        super().__init__(report)
        self._context = multiprocessing.get_context("spawn")
        self._names = map(str, itertools.count())  # of files

    def __enter__(self) -> ProcessPool:
        with _files():
            self._scratch = Scratch("diode-fits-")
            self._reports: SimpleQueue[_Report] = self._context.SimpleQueue()
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._scratch.close()

    def _start(self) -> None:
        # A process ends when the other end of this pipe is closed: by `_end`, or by the system when
        # this process is killed.
        watched, self._alive = self._context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(
            self.size, self._context, _begin_worker, (self._reports, watched)
        )

    def _end(self) -> None:
        self._alive.close()
        self._executor.shutdown(cancel_futures=True)

    def restart(self) -> None:
        self._end()
        self._start()

    def share(self, arrays: Arrays) -> SharedArrays:
        """As Pool.share. Raises TrainingError where the files cannot be written."""
        with _files():
            return ArrayFiles.write(self._next_path(), arrays)

    def submit(self, job: Job) -> Future[Any]:
        with _files():
            path = self._next_path() if job.leaves_arrays else None
            return self._executor.submit(_run, job, path)

    def _next_path(self) -> Path:
        return self._scratch.path / next(self._names)

    def wait(self, running: Iterable[Future[Any]]) -> Iterable[Future[Any]]:
        ended, _ = wait(list(running), _POLL_SECONDS, FIRST_COMPLETED)
        while not self._reports.empty():
            self.report(*self._reports.get())
        return ended

    def result(self, future: Future[Any]) -> Any:
        with _files():
            return future.result()


@contextlib.contextmanager
def _files() -> Iterator[None]:
    """Raise TrainingError where processes, or files for them, cannot be made, or one has died."""
    try:
        yield
    except BrokenProcessPool:
        raise TrainingError(
            "A process of the fits was killed, perhaps for want of memory: end other programs and "
            "train again. What is finished is kept."
        ) from None
    except OSError as error:
        raise files_failed(error) from error


# In a worker process: where it writes its reports. A report is so short that it is written whole.
_reports: SimpleQueue[_Report] | None = None


def _begin_worker(reports: SimpleQueue[_Report], watched: Connection) -> None:
    global _reports
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    os.dup2(2, 1)  # what a library prints is not output of a command
    # NumPy is loaded already; torch and XGBoost are not, and read the variable.
    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()


def _end_with_parent(watched: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        watched.recv()
    os._exit(1)


def _run(job: Job, path: Path | None) -> Any:
    assert _reports is not None
    reports = _reports
    return run_in_worker(job, lambda progress: reports.put((job.label, progress)), path)


def available_bytes(system: Path = _SYSTEM, group: Path = _GROUP) -> int:
    """The memory that new processes can take without swapping: the machine's, and no more than the
    container's limit leaves. Without end where the system does not say."""
    free = [1 << 62]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = system.read_text().splitlines()
        free += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):  # no limit reads "max"
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        free.append(most - used)
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # Files that were read count as used until something else needs the memory.
        free[-1] += int(stat.get("inactive_file", 0))
    return max(0, min(free))
