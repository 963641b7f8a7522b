"""The processes that compile for flex_attention.py; flex_compile_worker.py is one.

A process begins without sight of the GPU: Inductor counts devices while it is imported, so hiding
them later is too late. What it writes to stderr is kept for the error that says why none of them
can be started.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import flex_kernels
from flex_kernels import Config, Kernel
from flex_problems import Family

from diode_engine.collect.processes.supervisor import Lost, Received, Start, Supervisor, Worker
from diode_engine.core.hardware import Hardware
from diode_engine.errors import CollectionError

COMMAND = (sys.executable, str(Path(__file__).with_name("flex_compile_worker.py")))
DEADLINE_SECONDS = 240.0  # for a job; the slowest kernels of the backward take half a minute
AHEAD = 2  # jobs that a process has at a time, so that it need not wait for the next
DIED = "the process that compiled it died"

Found = dict[Config, Kernel | str]


@dataclass(frozen=True)
class Job:
    """Configs of one family that are compiled together."""

    family: Family
    configs: tuple[Config, ...]
    tier: int


class Compilers:
    """`workers` processes that compile; with 0, this process compiles.

    Compiled kernels are kept in `folder`, also for the next run. The job of a process that dies is
    done again, each config alone. A config whose process dies then has failed.
    """

    def __init__(
        self,
        workers: int,
        hardware: Hardware,
        folder: Path,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._queue: queue.Queue[tuple[Job, Found] | CollectionError] = queue.Queue()
        self._jobs: deque[Job] = deque()
        self._at: dict[Worker, deque[Job]] = {}
        self._supervisor: Supervisor | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        if workers:
            self._supervisor = Supervisor("diode-flex-", deadline=DEADLINE_SECONDS)
            hidden = {"CUDA_VISIBLE_DEVICES": ""}
            first = {"hardware": hardware.to_dict()}
            start = Start(command, "The compilers", hidden, first)
            for _ in range(workers):
                self._at[self._supervisor.start(start)] = deque()
            self._thread.start()

    def compiled(self, todo: Sequence[Job], deadline: float) -> Iterator[tuple[Job, Found]]:
        """Each job with its kernels, or the reason why there are none, as soon as it is done, until
        the deadline (by time.monotonic). Raises CollectionError, with the last output of a process,
        where the processes cannot be started."""
        left: set[tuple[Family, Config]] = set()
        kept: list[tuple[Job, Found]] = []
        for job in todo:
            tried = {config: _kept(self._folder, job.family, config) for config in job.configs}
            found = {config: kernel for config, kernel in tried.items() if kernel is not None}
            if found:
                kept.append((replace(job, configs=tuple(found)), found))
            if rest := tuple(config for config in job.configs if config not in found):
                self._jobs.append(replace(job, configs=rest))
                left |= {(job.family, config) for config in rest}
        yield from kept
        while self._supervisor is None and self._jobs and time.monotonic() < deadline:
            job = self._jobs.popleft()
            found = flex_kernels.compiled(job.family, job.configs)
            self._keep(job, found)
            yield job, found
        if self._supervisor is None:
            left.clear()
        while left and (seconds := deadline - time.monotonic()) > 0:
            try:
                item = self._queue.get(timeout=seconds)
            except queue.Empty:
                break
            if isinstance(item, CollectionError):
                raise item
            job, found = item
            self._keep(job, found)
            if any((job.family, config) in left for config in found):  # else of an earlier call
                left -= {(job.family, config) for config in found}
                yield job, found
        self._jobs.clear()

    def close(self) -> None:
        """Ends the processes."""
        self._closing = True
        if self._supervisor is not None:
            self._thread.join()
            self._supervisor.close()

    def _keep(self, job: Job, found: Found) -> None:
        for config, kernel in found.items():
            _path(self._folder, job.family, config).write_bytes(pickle.dumps(kernel))

    def _run(self) -> None:
        try:
            while not self._closing:
                self._step()
        except CollectionError as error:
            self._queue.put(error)
        except Exception as error:  # noqa: BLE001  # whoever waits is to hear of it
            self._queue.put(CollectionError(f"Nothing more can be compiled: {error!r}"))

    def _step(self) -> None:
        assert self._supervisor is not None
        for worker, at in self._at.items():
            while worker.ready and len(at) < AHEAD and (job := self._next()):
                at.append(job)
                self._supervisor.send(worker, {"job": pickle.dumps(job)})
        for event in self._supervisor.step(seconds=0.2):
            if isinstance(event, Received):
                if "found" in event.message:
                    at = self._at[event.worker]
                    self._queue.put((at.popleft(), pickle.loads(event.message["found"])))  # noqa: S301
                if not self._at[event.worker]:
                    self._supervisor.rest(event.worker)
            elif isinstance(event, Lost):
                lost = self._at.pop(event.worker)
                self._at[event.instead] = deque()
                if not lost:
                    continue
                culprit, *others = lost
                self._jobs.extendleft(others)
                if len(culprit.configs) == 1:
                    print(f"{DIED}: {culprit.family} {culprit.configs[0]}", file=sys.stderr)
                    self._queue.put((culprit, {culprit.configs[0]: DIED}))
                else:
                    alone = [replace(culprit, configs=(one,)) for one in culprit.configs]
                    self._jobs.extendleft(alone)

    def _next(self) -> Job | None:
        with contextlib.suppress(IndexError):
            return self._jobs.popleft()
        return None


def _path(folder: Path, family: Family, config: Config) -> Path:
    return folder / sha256(repr((family, config)).encode()).hexdigest()


def _kept(folder: Path, family: Family, config: Config) -> Kernel | str | None:
    with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
        kernel: Kernel | str = pickle.loads(_path(folder, family, config).read_bytes())  # noqa: S301
        return kernel
    return None
