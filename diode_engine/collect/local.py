"""The executor of one machine: worker processes on its GPUs, and compilers on its CPU cores."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.executor import Sessions
from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.collect.processes.compiler_pool import COMPILER, CompilerPool
from diode_engine.collect.processes.gpu_worker import (
    DEADLINE_SECONDS,
    DIRECT_WORKER,
    WORKER,
    GpuWorker,
)
from diode_engine.collect.session_runner import SessionRunner
from diode_engine.core.hardware import Environment
from diode_engine.errors import CollectionError

MAX_DIRECT_WORKERS = 6  # for a GPU: one times while the others get ready or wait for compilers


@dataclass(frozen=True)
class Setup:
    """The processes of a collection on a machine. With a folder of `binaries`, kernels are launched
    directly: they are compiled once for many problems, and launched without Inductor. Without, each
    is compiled and timed as Inductor does it."""

    worker: tuple[str, ...] = WORKER  # the command that starts one
    compiler: tuple[str, ...] = COMPILER  # the command that starts one
    deadline: float = DEADLINE_SECONDS  # of a worker, in seconds
    binaries: Path | None = None
    python: str = sys.executable  # the interpreter in the commands; each machine puts in its own

    @property
    def is_direct(self) -> bool:
        return self.binaries is not None

    def make_worker(self, gpu: int, watch: GpuWatch) -> GpuWorker:
        """A worker on this GPU of this machine, not started yet."""
        command = self._here(self.worker)
        return GpuWorker(
            gpu, watch, command=command, deadline=self.deadline, binaries=self.binaries
        )

    def make_compilers(self, environment: Environment, number: int) -> CompilerPool:
        """Compilers, `number` of them, which fill the folder of binaries."""
        assert self.binaries is not None
        binaries = Binaries(self.binaries, environment)
        return CompilerPool(binaries, number, command=self._here(self.compiler))

    def _here(self, command: Sequence[str]) -> list[str]:
        return [sys.executable if word == self.python else word for word in command]


def direct_setup(binaries: Path) -> Setup:
    """The setup where kernels are launched directly."""
    return Setup(DIRECT_WORKER, binaries=binaries.absolute())


def cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def devices(named: Sequence[int] = ()) -> tuple[int, ...]:
    """The GPUs that are `named`; if none is, all that this process sees. Raises CollectionError
    where there is none, or not each that is named."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise CollectionError(
            "There is no GPU here; collect on a machine that has one, or import a dataset."
        )
    if missing := [number for number in named if number >= count]:
        there = "only GPU 0" if count == 1 else f"the GPUs 0 to {count - 1}"
        raise CollectionError(f"There is no GPU {missing[0]} here: this machine has {there}.")
    return tuple(dict.fromkeys(named)) or tuple(range(count))


def workers_of(cores: int, gpus: int, *, direct: bool) -> int:
    """The default number of workers for each GPU. A worker spends most of its time compiling, so
    the GPUs share the cores, except one for the run itself. With `direct` there are at most
    MAX_DIRECT_WORKERS.
    """
    most = max(1, (cores - 1) // gpus)
    return min(most, MAX_DIRECT_WORKERS) if direct else most


class LocalExecutor:
    """Workers on these GPUs of this process. `watch` returns the object that reads the GPUs'
    states."""

    def __init__(
        self,
        gpus: Sequence[int],
        *,
        workers_per_gpu: int | None = None,
        setup: Setup | None = None,
        watch: Callable[[], GpuWatch] = GpuWatch.open,
    ) -> None:
        self.gpus = tuple(gpus)
        self._setup = setup or Setup()
        self._per_gpu = workers_per_gpu or workers_of(
            cores(), len(self.gpus), direct=self._setup.is_direct
        )
        self._open_watch = watch
        self._compiler_pools: dict[Environment, CompilerPool] = {}

    @property
    def spec(self) -> Mapping[str, Any]:
        return {
            "gpus": list(self.gpus),
            "workers_per_gpu": self._per_gpu,
            **({"direct": True} if self._setup.is_direct else {}),
        }

    def __enter__(self) -> LocalExecutor:
        self._watch = self._open_watch()
        gpus = self.gpus * self._per_gpu
        with ExitStack() as closing:  # of all, also where an error or an interrupt comes in between
            self._threads = ThreadPoolExecutor(len(gpus), "worker")
            closing.callback(self._threads.shutdown)
            self._runner = SessionRunner()
            closing.callback(self._runner.close)
            closing.callback(self._close_compilers)
            workers = []
            for gpu in gpus:
                workers.append(self._setup.make_worker(gpu, self._watch))
                closing.callback(workers[-1].close)
            for worker in workers:
                worker.start()
                self._runner.start(self._use(worker))
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _close_compilers(self) -> None:
        while self._compiler_pools:
            self._compiler_pools.popitem()[1].close()

    async def _use(self, worker: GpuWorker) -> None:
        """Holds sessions by this worker, in a thread that waits for its answers."""
        in_thread = partial(asyncio.get_running_loop().run_in_executor, self._threads)
        await self._runner.work(await in_thread(worker.host), partial(in_thread, worker.ask))

    def run(self, sessions: Sessions) -> Iterator[None]:
        self._runner.begin(sessions)
        while self._runner.is_busy:
            self._runner.step()
            yield

    def compilers(self, environment: Environment) -> CompilerPool | None:
        if not self._setup.is_direct:
            return None
        if environment not in self._compiler_pools:
            # One of a GPU's workers times and perhaps another gets ready; the others wait and need
            # no core.
            spare = cores() - 2 * len(self.gpus) - 1
            pool = self._setup.make_compilers(environment, max(1, spare))
            self._compiler_pools[environment] = pool
        return self._compiler_pools[environment]

    def states(self) -> Mapping[int, GpuState]:
        found = {gpu: self._watch.read(gpu) for gpu in self.gpus}
        return {gpu: state for gpu, state in found.items() if state is not None}
