"""Compilers on the cores of a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from diode_engine.collect.cluster.connection import ProcessLost, RayConnection, Tasks
from diode_engine.collect.cluster.hosts import CompileHost, Setup
from diode_engine.collect.orders import Job, Order, OrderBook
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import KernelClass

log = logging.getLogger(__name__)

MAX_LOSSES = 3  # of processes that had the same job; then nothing more is compiled
MAX_FAILED_STARTS = 3  # of processes in a row


class RayCompilers:
    """Compilers for one environment, on as many of a cluster's cores as `cores()` returns.

    What they compile stays in Ray's object store, and the machines of the GPUs take it from there.
    This process has only the keys of the classes.
    """

    def __init__(
        self, connection: RayConnection, tasks: Tasks, setup: Setup, environment: Environment,
        cores: Callable[[], int],
    ) -> None:  # fmt: skip
        self._connection = connection
        self._tasks = tasks
        self._setup = setup
        self._environment = environment
        self._cores = cores
        self._references: dict[str, Any] = {}  # Ray's, by the key of a compiled class
        self._book = OrderBook()
        self._ordered = asyncio.Event()
        self._losses: dict[str, int] = {}  # of processes, by the key of their job's first class
        self._hosts: list[Any] = []
        self.ready_actors: list[Any] = []  # those of the hosts that Ray has found a core for
        self._failed_starts = 0
        # How many hosts cannot start their compilers. They stay, so that Ray does not start others
        # in their place.
        self._broken = 0
        self.grow()

    def grow(self) -> None:
        """Starts a process for each core that has none."""
        for _ in range(self._cores() - len(self._hosts)):
            host = (
                self._connection.ray.remote(CompileHost)
                .options(num_cpus=1, num_gpus=0, max_restarts=0)
                .remote(self._setup, self._environment)
            )
            self._hosts.append(host)
            self._tasks.start(self._hold(host))

    def end(self) -> None:
        """Ends all processes at once."""
        for host in self._hosts:
            self._connection.end(host)

    def has(self, key: str | None) -> bool:
        return self._book.has(key)

    def order(self, classes: Sequence[KernelClass]) -> Order:
        order = self._book.order(
            lambda: [cls for cls in dict.fromkeys(classes) if cls.key not in self._references],
            len(self._hosts),
        )
        self._ordered.set()
        return order

    def reorder(self, classes: Sequence[KernelClass]) -> Order:
        """As `order`, for classes that are compiled, but that the object store has lost."""
        for cls in classes:
            self._references.pop(cls.key, None)
        self._book.forget(cls.key for cls in classes)
        return self.order(classes)

    def references(self, classes: Sequence[KernelClass]) -> Mapping[str, Any]:
        """Ray's references to the binaries of these classes, by key; classes that are not compiled
        are left out."""
        keys = (cls.key for cls in classes)
        return {key: self._references[key] for key in keys if key in self._references}

    async def _hold(self, host: Any) -> None:
        """Gives a process its jobs until it is lost. It gets none before it has a core, for which
        Ray may have to wait."""
        try:
            await self._connection.answer(host.ready.remote())
        except ProcessLost as lost:
            self._hosts.remove(host)
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                message = f"Processes that compile cannot be started: {lost}"
                raise CollectionError(message) from None
            return
        self.ready_actors.append(host)
        while True:
            job = await self._next_job()
            keys, contents = host.compile.options(num_returns=2).remote(job)
            try:
                found = set(await self._connection.answer(keys))
            except ProcessLost as lost:
                self._lose(host, job, lost)
                return
            self._failed_starts = 0
            self._references.update(dict.fromkeys(found, contents))
            self._book.note_compiled(found)

    async def _next_job(self) -> Job:
        while (job := self._book.take()) is None:
            self._ordered.clear()
            await self._ordered.wait()
        return job

    def _lose(self, host: Any, job: Job, lost: ProcessLost) -> None:
        """Gives the job of a lost process to another one; ends all orders where that cannot be."""
        log.warning("A compiler is lost: %s", lost)
        if lost.is_there:
            self._broken += 1
            if self._broken == len(self._hosts):
                self._book.fail(CollectionError(str(lost)))
                return
        else:
            self._hosts.remove(host)
            self.ready_actors.remove(host)
        losses = self._losses[job[0].key] = self._losses.get(job[0].key, 0) + 1
        if losses >= MAX_LOSSES:
            self._book.fail(CollectionError(f"{losses} compilers were lost: {lost}"))
            return
        self._book.put_back(job)
        self._ordered.set()
