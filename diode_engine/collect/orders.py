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


class Order(Future[None]):
    """Classes that a session waits for; done when all of them are compiled. Its exception is
    the CollectionError where the compilers cannot be started."""

    def __init__(self, keys: Iterable[str]) -> None:
        """`keys` are those of the classes that are not compiled yet."""
        super().__init__()
        self._left = set(keys)
        self.note_compiled(())

    def note_compiled(self, keys: Iterable[str]) -> None:
        """Takes note that the classes of these keys are compiled."""
        self._left.difference_update(keys)
        if not self._left and not self.done():
            self.set_result(None)

    def fail(self, error: CollectionError) -> None:
        if not self.done():
            self.set_exception(error)


class Compilers(ABC):
    """Processes that compile kernels for one environment before they are timed, each class once.
    Any thread may call the methods."""

    def __init__(self, compiled: Iterable[str] = ()) -> None:
        """`compiled` are the keys of the classes that are compiled already."""
        self._compiled = set(compiled)
        self._underway: set[str] = set()
        self._orders: list[Order] = []
        self._error: CollectionError | None = None
        self._lock = threading.Lock()

    def has(self, key: str | None) -> bool:
        """Whether the class of this key is compiled or being compiled; True for None, which stands
        for a candidate that needs no binary."""
        return key is None or key in self._compiled or key in self._underway

    def order(self, classes: Sequence[KernelClass]) -> Order:
        """Compiles those classes that have no binary; those that are being compiled already are not
        begun a second time."""
        with self._lock:
            # Under the lock: a class that is compiled in between would be begun a second time.
            missing = self._missing(classes)
            order = Order(cls.key for cls in missing)
            if self._error is not None:
                order.fail(self._error)
                return order
            self._orders.append(order)
            new = [cls for cls in missing if cls.key not in self._underway]
            self._underway.update(cls.key for cls in new)
        for job in _jobs(new, ordered=len(missing), compilers=self._count()):
            self._submit(job)
        return order

    @abstractmethod
    def _missing(self, classes: Sequence[KernelClass]) -> list[KernelClass]:
        """Those classes that have no binary, each once."""

    @abstractmethod
    def _count(self) -> int:
        """The number of compilers."""

    @abstractmethod
    def _submit(self, job: Job) -> None:
        """Has the job done, and calls `_note_compiled` for its classes, or `_fail`."""

    def _note_compiled(self, keys: Iterable[str]) -> None:
        keys = set(keys)
        with self._lock:
            self._underway -= keys
            self._compiled |= keys
            for order in self._orders:
                order.note_compiled(keys)
            self._orders = [order for order in self._orders if not order.done()]

    def _fail(self, error: CollectionError) -> None:
        """Ends all orders, and those to come, with this error."""
        with self._lock:
            self._error = error
            for order in self._orders:
                order.fail(error)
            self._orders.clear()


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
