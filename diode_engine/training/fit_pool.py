"""Where the jobs of fits are done: here, one after the other. A subclass does them elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from diode_engine.documents import shortened
from diode_engine.errors import DiodeError, TrainingError
from diode_engine.models.fitting import FitProgress, ProgressCallback

# Called with the label of a fit ("network-1, fold 1 of 3") and its progress after each step. The
# progress is None where the fit has ended, or is not made: a checkpoint has it, or its trial was
# given up.
FitCallback = Callable[[str, FitProgress | None], None]
Arrays = tuple[np.ndarray[Any, Any], ...]


class SharedArrays(Protocol):
    """Arrays that several jobs read. Hashable."""

    def get(self) -> Arrays:
        """Return the arrays, which must not be written to."""


@dataclass(frozen=True, eq=False)
class ArraysInMemory:
    """SharedArrays for jobs in this process."""

    arrays: Arrays

    def get(self) -> Arrays:
        return self.arrays


@dataclass(frozen=True)
class ArrayFiles:
    """SharedArrays in files, `<path>-<place>.npy`, which the machine has in memory once for all
    processes."""

    path: Path
    count: int

    @classmethod
    def write(cls, path: Path, arrays: Sequence[np.ndarray[Any, Any]]) -> ArrayFiles:
        """Write the files. Raises OSError."""
        for place, array in enumerate(arrays):
            np.save(f"{path}-{place}.npy", array)
        return cls(path, len(arrays))

    def get(self) -> Arrays:
        """As SharedArrays.get. Raises OSError."""
        files = (f"{self.path}-{place}.npy" for place in range(self.count))
        return tuple(np.asarray(np.load(file, mmap_mode="r")) for file in files)


class Job:
    """A part of a task's fits, which can be sent to another process."""

    label: str = ""  # names the fit in reports of progress; empty where it is no fit
    needed_bytes: int = 0  # of memory, besides the process's own
    leaves_arrays: bool = False  # whether its result are arrays, for other jobs alone

    def __call__(self, report: ProgressCallback) -> Any:
        """Do the job, and return its result."""
        raise NotImplementedError


class GpuFullError(TrainingError):
    """The GPU has too little memory for a fit, perhaps because of other fits."""


class Pool:
    """Does each job at once, in this process. Progress is reported in the thread that waits."""

    size = 1  # how many jobs it does at a time
    memory = 1 << 62  # the bytes that these may take together
    has_local_files = True  # whether jobs see the files of this machine

    def __init__(self, report: FitCallback) -> None:
        self.report = report

    def share(self, arrays: Arrays) -> SharedArrays:
        """Return the arrays in the form that jobs get."""
        return ArraysInMemory(arrays)

    def submit(self, job: Job) -> Future[Any]:
        """Begin a job."""
        future: Future[Any] = Future()
        result = job(partial(self.report, job.label))
        future.set_result(ArraysInMemory(result) if job.leaves_arrays else result)
        return future

    def wait(self, running: Iterable[Future[Any]]) -> Iterable[Future[Any]]:
        """Report the progress of all jobs, and return those of the running ones that have ended,
        after a moment at the latest."""
        return list(running)

    def result(self, future: Future[Any]) -> Any:
        """Return the result of a job that has ended; as SharedArrays, if the job `leaves_arrays`.
        Raises TrainingError where it failed."""
        return future.result()

    def restart(self) -> None:
        """Free the memory that jobs took before; no job is running."""


def run_in_worker(job: Job, report: ProgressCallback, path: Path | None = None) -> Any:
    """Do a job in a worker process, and return its result; with `path`, the ArrayFiles there that
    hold its result. Raises TrainingError, with one sentence, whatever fails; GpuFullError where
    that is the memory of the GPU."""
    try:
        result = job(report)
        return result if path is None else ArrayFiles.write(path, result)
    except DiodeError:
        raise
    except OSError as error:
        raise files_failed(error) from None
    except Exception as error:  # noqa: BLE001  # of torch's, or XGBoost's
        what = shortened(" ".join(str(error).split()))
        kind = GpuFullError if _lacks_gpu_memory(error) else TrainingError
        raise kind(f"A fit failed: {type(error).__name__}: {what}") from None


def _lacks_gpu_memory(error: Exception) -> bool:
    """Whether it is torch's error where a GPU's memory is used up, also by other processes."""
    words = "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED"
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def files_failed(error: OSError) -> TrainingError:
    """Return the error for a user where the files of fits, or their processes, cannot be made."""
    return TrainingError(
        f"The processes of the fits or their files in {tempfile.gettempdir()} cannot be made: "
        f"{error.strerror or error}. Make room there, or name another folder by TMPDIR, and "
        "train again; what is finished is kept."
    )
