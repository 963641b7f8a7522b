"""Kernel classes that sessions wait for, and the jobs in which compilers compile them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass

MAX_CLASSES = 8  # of a job

Job = list[KernelClass]  # of one family, whose classes share what they are rendered from


class Compilers(ABC):
    """Processes that compile kernels for one environment before they are timed, each class once.
    Any thread may call the methods."""

    def __init__(self, compiled: Iterable[str] = ()) -> None:
        """`compiled` are the keys of the classes that are compiled already."""
        self._done: Future[None] = Future()
        self._done.set_result(None)
        # By the key of each class that was ever ordered: done when the class is compiled.
        self._classes = dict.fromkeys(compiled, self._done)
        self._error: CollectionError | None = None
        self._lock = threading.Lock()

    def has(self, key: str | None) -> bool:
        """Whether the class of this key is compiled or being compiled; True for None, which stands
        for a candidate that needs no binary."""
        return key is None or key in self._classes

    def order(self, classes: Sequence[KernelClass]) -> list[Future[None]]:
        """Compiles those classes that have no binary; those that are being compiled already are not
        begun a second time. Returns a future for each of these classes, done when it is compiled.
        Its exception is the CollectionError where nothing more can be compiled; where this is known
        already, it is raised."""
        with self._lock:
            # Under the lock: a class that is compiled in between would be begun a second time.
            missing = self._missing(classes)
            if missing and self._error is not None:
                raise self._error
            # The others are being compiled.
            new = [cls for cls in missing if self._classes.get(cls.key, self._done).done()]
            for cls in new:
                self._classes[cls.key] = Future()
                # From now on nobody who waits for the class can cancel it for others.
                self._classes[cls.key].set_running_or_notify_cancel()
            ordered = [self._classes[cls.key] for cls in missing]
        for job in _jobs(new, ordered=len(missing), compilers=self._count()):
            self._submit(job)
        return ordered

    @abstractmethod
    def _missing(self, classes: Sequence[KernelClass]) -> list[KernelClass]:
        """Those classes that have no binary, each once."""

    @abstractmethod
    def _count(self) -> int:
        """The number of compilers."""

    @abstractmethod
    def _submit(self, job: Job) -> None:
        """Has the job done, and calls `_note_compiled` for its classes, or `_fail`."""

    def _note_compiled(self, key: str) -> None:
        with self._lock:
            if not self._classes[key].done():
                self._classes[key].set_result(None)
            self._classes[key] = self._done  # one for all: each would keep those that waited for it

    def _fail(self, error: CollectionError) -> None:
        """Ends all orders, and those to come, with this error."""
        with self._lock:
            self._error = error
            for future in self._classes.values():
                if not future.done():
                    future.set_exception(error)


def _jobs(classes: Iterable[KernelClass], *, ordered: int, compilers: int) -> list[Job]:
    """The classes in jobs of one family each. `ordered` is how many classes the order waits for,
    these among them: where that number is small, a job has one class, so that the compilers share
    the order and finish it soon."""
    size = min(MAX_CLASSES, 1 + ordered // max(1, compilers))
    families: dict[str, Job] = {}
    for cls in classes:
        families.setdefault(cls.family, []).append(cls)
    return [
        members[at : at + size]
        for members in families.values()
        for at in range(0, len(members), size)
    ]
