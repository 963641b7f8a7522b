"""Compilers on the cores of a Ray cluster, and the orders that they work on."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from diode_engine.collect.ray_hosts import Setup
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass
from diode_engine.ray_connection import error_line

log = logging.getLogger(__name__)

MAX_LOSSES = 3  # of processes over one job, before it is given up
MAX_FAILED_STARTS = 3  # of processes, with none that starts between them
MAX_JOB_CLASSES = 8  # classes of one family share what they are rendered from


class RayOrder:
    """Classes being compiled for someone."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.left = set(keys)
        self._error: CollectionError | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def pending(self) -> bool:
        return bool(self.left) and self._error is None

    def done(self, keys: Iterable[str]) -> None:
        self.left.difference_update(keys)
        self._tell()

    def fail(self, error: CollectionError) -> None:
        self._error = error
        self._tell()

    def when_done(self, then: Callable[[], None]) -> None:
        """Calls it when nothing is pending any more, which may be now."""
        self._waiting.append(then)
        self._tell()

    def _tell(self) -> None:
        if not self.pending:
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()

    def result(self) -> None:
        """Raises CollectionError where the compilers cannot be started. Does not wait."""
        if self._error is not None:
            raise self._error


class Cores(Protocol):
    """A cluster's cores, as compilers use them."""

    def compile_cores(self) -> int:
        """How many cores there are to compile on."""

    def compile_host(self, setup: Setup, environment: Environment) -> Any:
        """A new process on one of them."""

    def later(self, reference: Any, then: Callable[[Future[Any]], None]) -> None:
        """Calls it with what the reference stands for, when that is there."""

    def is_own_error(self, error: BaseException) -> bool:
        """Whether the process itself raised the error, and was not lost."""


@dataclass(eq=False)
class _Job:
    classes: list[KernelClass]
    losses: int = 0


class RayCompilers:
    """Compilers on a cluster's cores, for one environment. What they compile stays in Ray's object
    store, from where the machine of a GPU takes it; only its keys come here."""

    def __init__(self, cores: Cores, setup: Setup, environment: Environment) -> None:
        self._cores = cores
        self._setup = setup
        self._environment = environment
        self._references: dict[str, Any] = {}  # by key
        self._underway: set[str] = set()
        self._orders: list[RayOrder] = []
        self._jobs: deque[_Job] = deque()
        self.hosts: list[Any] = []
        self.ready: list[Any] = []  # those of them that Ray has found a core for
        self._idle: list[Any] = []
        self._failed_starts = 0
        self._broken = 0  # that cannot start compilers: kept, so that they are not tried again
        self.grow()

    def grow(self) -> None:
        """Has as many processes as there are cores for them."""
        for _ in range(self._cores.compile_cores() - len(self.hosts)):
            host = self._cores.compile_host(self._setup, self._environment)
            self.hosts.append(host)
            # A job is only given to one that has a core; Ray may be waiting for one.
            self._cores.later(host.ready.remote(), partial(self._started, host))

    def _started(self, host: Any, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self.ready.append(host)
            self._idle.append(host)
            self._hand_out()
        elif host in self.hosts:
            self.hosts.remove(host)
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise CollectionError(
                    f"Processes that compile cannot be started: {error_line(error)}"
                )

    def has(self, key: str | None) -> bool:
        return key is None or key in self._references or key in self._underway

    def order(self, classes: Sequence[KernelClass]) -> RayOrder:
        todo = {cls.key: cls for cls in classes if cls.key not in self._references}
        order = RayOrder(todo)
        self._orders.append(order)
        families: dict[str, list[KernelClass]] = {}
        size = min(MAX_JOB_CLASSES, 1 + len(todo) // max(1, len(self.hosts)))
        for key, cls in todo.items():
            if key not in self._underway:
                self._underway.add(key)
                families.setdefault(cls.family, []).append(cls)
        for members in families.values():
            for at in range(0, len(members), size):
                self._jobs.append(_Job(members[at : at + size]))
        self._hand_out()
        return order

    def again(self, classes: Sequence[KernelClass]) -> RayOrder:
        """As `order`, for what the object store has lost."""
        for cls in classes:
            self._references.pop(cls.key, None)
        return self.order(classes)

    def references(self, classes: Sequence[KernelClass]) -> Mapping[str, Any]:
        """Where the binaries of these are, by key, as far as there are any."""
        keys = (cls.key for cls in classes)
        return {key: self._references[key] for key in keys if key in self._references}

    def _hand_out(self) -> None:
        while self._idle and self._jobs:
            host, job = self._idle.pop(), self._jobs.popleft()
            keys, contents = host.compile.options(num_returns=2).remote(job.classes)
            self._cores.later(keys, partial(self._compiled, host, job, contents))

    def _compiled(self, host: Any, job: _Job, contents: Any, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self._failed_starts = 0
            self._idle.append(host)
            self._done(future.result(), contents)
        else:
            job.losses += 1
            log.warning("A compiler is lost: %s", error_line(error))
            if self._cores.is_own_error(error):
                self._broken += 1
                if self._broken == len(self.hosts):
                    self._fail(CollectionError(error_line(error)))
                    return
            else:
                self.hosts.remove(host)
                self.ready.remove(host)
            if job.losses >= MAX_LOSSES:
                ended = CollectionError(f"{job.losses} compilers were lost: {error_line(error)}")
                self._fail(ended)
                return
            self._jobs.appendleft(job)
        self._hand_out()

    def _done(self, keys: Iterable[str], contents: Any) -> None:
        keys = set(keys)
        self._underway -= keys
        self._references.update(dict.fromkeys(keys, contents))
        for order in self._orders:
            order.done(keys)
        self._orders = [order for order in self._orders if order.pending]

    def _fail(self, error: CollectionError) -> None:
        for order in self._orders:
            order.fail(error)
