"""Compilers on the cores of a Ray cluster, and the orders that they work on."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from diode_engine.collect.cluster.calls import RayCalls
from diode_engine.collect.cluster.hosts import CompileHost, Setup
from diode_engine.collect.processes.compile_jobs import jobs_of
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass
from diode_engine.ray_connection import error_line

log = logging.getLogger(__name__)

MAX_LOSSES = 3  # of processes that had the same job; then nothing more is compiled
MAX_FAILED_STARTS = 3  # of processes in a row


class RayOrder:
    """Classes that a conversation waits for. All of it is used in one thread (see RayCalls)."""

    def __init__(self, keys: Iterable[str]) -> None:
        """`keys` are those of the classes that are not compiled yet."""
        self.left = set(keys)
        self._error: CollectionError | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def pending(self) -> bool:
        return bool(self.left) and self._error is None

    def done(self, keys: Iterable[str]) -> None:
        """Takes note that the classes of these keys are compiled."""
        self.left.difference_update(keys)
        self._tell()

    def fail(self, error: CollectionError) -> None:
        """Ends the order: `result` raises this error."""
        self._error = error
        self._tell()

    def when_done(self, then: Callable[[], None]) -> None:
        """Calls `then` when nothing is pending any more; at once, if that is so already."""
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


@dataclass(eq=False)
class _CompileJob:
    classes: list[KernelClass]
    losses: int = 0


class RayCompilers:
    """Compilers for one environment, on as many of a cluster's cores as `cores()` returns.

    What they compile stays in Ray's object store, and the machines of the GPUs take it from there.
    This process has only the keys of the classes.
    """

    def __init__(
        self, calls: RayCalls, setup: Setup, environment: Environment, cores: Callable[[], int]
    ) -> None:
        self._calls = calls
        self._setup = setup
        self._environment = environment
        self._cores = cores
        self._references: dict[str, Any] = {}  # Ray's, by the key of a compiled class
        self._underway: set[str] = set()  # keys of classes that are being compiled
        self._orders: list[RayOrder] = []
        self._jobs: deque[_CompileJob] = deque()
        self._hosts: list[Any] = []
        self.ready: list[Any] = []  # those of the hosts that Ray has found a core for
        self._idle: list[Any] = []
        self._failed_starts = 0
        # How many hosts cannot start their compilers. They stay, so that Ray does not start others
        # in their place.
        self._broken = 0
        self.grow()

    def grow(self) -> None:
        """Starts a process for each core that has none."""
        for _ in range(self._cores() - len(self._hosts)):
            host = (
                self._calls.ray.remote(CompileHost)
                .options(num_cpus=1, num_gpus=0, max_restarts=0)
                .remote(self._setup, self._environment)
            )
            self._hosts.append(host)
            # It gets no job before it has a core, for which Ray may have to wait.
            self._calls.later(host.ready.remote(), partial(self._started, host))

    def end(self) -> None:
        """Ends all processes at once."""
        for host in self._hosts:
            self._calls.end(host)

    def _started(self, host: Any, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self.ready.append(host)
            self._idle.append(host)
            self._hand_out()
        elif host in self._hosts:
            self._hosts.remove(host)
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
        new = [cls for key, cls in todo.items() if key not in self._underway]
        self._underway.update(cls.key for cls in new)
        jobs = jobs_of(new, ordered=len(todo), compilers=len(self._hosts))
        self._jobs.extend(map(_CompileJob, jobs))
        self._hand_out()
        return order

    def again(self, classes: Sequence[KernelClass]) -> RayOrder:
        """As `order`, for classes that are compiled, but that the object store has lost."""
        for cls in classes:
            self._references.pop(cls.key, None)
        return self.order(classes)

    def references(self, classes: Sequence[KernelClass]) -> Mapping[str, Any]:
        """Ray's references to the binaries of these classes, by key; classes that are not compiled
        are left out."""
        keys = (cls.key for cls in classes)
        return {key: self._references[key] for key in keys if key in self._references}

    def _hand_out(self) -> None:
        """Gives jobs to idle compilers."""
        while self._idle and self._jobs:
            host, job = self._idle.pop(), self._jobs.popleft()
            keys, contents = host.compile.options(num_returns=2).remote(job.classes)
            self._calls.later(keys, partial(self._compiled, host, job, contents))

    def _compiled(self, host: Any, job: _CompileJob, contents: Any, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self._failed_starts = 0
            self._idle.append(host)
            self._done(future.result(), contents)
        else:
            job.losses += 1
            log.warning("A compiler is lost: %s", error_line(error))
            if self._calls.is_own_error(error):
                self._broken += 1
                if self._broken == len(self._hosts):
                    self._fail(CollectionError(error_line(error)))
                    return
            else:
                self._hosts.remove(host)
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
