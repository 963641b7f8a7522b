"""A worker process on one GPU of this machine, and what it is asked."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from diode_engine.collect.executor import (
    BatchAnswer,
    BatchRequest,
    Host,
    Refusal,
    Results,
    SpaceAnswer,
    SpaceRequest,
)
from diode_engine.collect.gpu_state import GpuWatch
from diode_engine.collect.gpus import visible_to_a_child
from diode_engine.collect.processes.worker_process import WorkerLost, WorkerProcess
from diode_engine.core.candidate import Candidate
from diode_engine.core.timing import Failure, Timing

log = logging.getLogger(__name__)

# The longest time to a worker's answer: enough for the slowest kernel's compile and its launches.
DEADLINE_SECONDS = 120.0
MAX_DEATHS = 4  # of workers on one problem; then the problem is given up
# These errors destroy a process's CUDA context: all later launches fail too.
STICKY = frozenset({Failure.ILLEGAL_ACCESS, Failure.LAUNCH_ERROR})

WORKER = (sys.executable, "-P", "-m", "diode_engine.collect.workers.worker")
DIRECT_WORKER = (sys.executable, "-P", "-m", "diode_engine.collect.workers.direct_worker")


class GpuWorker:
    """A worker on the GPU of this number, which answers one request at a time.

    `command` starts it; `deadline` is in seconds; `watch` reads the GPU's state. With `binaries`,
    the folder of compiled kernels, it is a direct worker: it times the candidates of a batch a few
    launches of each in turn. Other workers are asked for one candidate after the other.
    """

    def __init__(
        self,
        gpu: int,
        watch: GpuWatch,
        *,
        command: Sequence[str],
        deadline: float,
        binaries: Path | None,
    ) -> None:
        self._gpu = gpu
        self._watch = watch
        self._in_turn = binaries is not None
        self._process = WorkerProcess(
            command if binaries is None else (*command, str(binaries)),
            f"Workers for GPU {gpu}",
            environment={"CUDA_VISIBLE_DEVICES": visible_to_a_child(gpu)},
            deadline=deadline,
        )

    def start(self) -> None:
        """Starts the process, and does not wait until it is ready."""
        self._process.start()

    def host(self) -> Host:
        """Waits until the worker is ready, and returns its host. Raises CollectionError where it
        cannot be started."""
        name, environment = self._process.ready()
        self._watch.add(self._gpu, name)
        return Host(self._gpu, name, environment)

    def ask(self, request: SpaceRequest | BatchRequest) -> SpaceAnswer | Refusal | BatchAnswer:
        """The answer to the request. Raises CollectionError where the worker has died and cannot be
        started again."""
        if isinstance(request, BatchRequest):
            return self._time(request)
        try:
            answer: SpaceAnswer | Refusal = self._process.ask(request, SpaceAnswer, Refusal)
        except WorkerLost as lost:
            return Refusal("its worker hung" if lost.timed_out else "its worker died", 1)
        return answer

    def close(self) -> None:
        """Ends the worker at once. Any thread may call it."""
        self._process.close()

    def _time(self, request: BatchRequest) -> BatchAnswer:
        """Times the batch. A worker that is lost was timing the candidate that it was asked for, if
        it was asked for one. Where it was asked for all, another one is asked for each alone."""
        began = time.monotonic()
        timings: dict[Candidate, Timing] = {}
        workers_lost = deaths = 0
        alone = [(candidate,) for candidate in request.candidates]
        for asked in [request.candidates, *alone] if self._in_turn else alone:
            if deaths == MAX_DEATHS or all(candidate in timings for candidate in asked):
                continue
            try:
                asking = BatchRequest(request.problem, asked)
                answer: Results | Refusal = self._process.ask(asking, list, Refusal)
            except WorkerLost as lost:
                workers_lost += 1
                if len(asked) == 1:
                    deaths += 1
                    failure = Failure.TIMEOUT if lost.timed_out else Failure.CRASH
                    timings[asked[0]] = Timing(failure=failure)
                continue
            if isinstance(answer, Refusal):
                break
            for candidate, result in zip(asked, answer, strict=True):
                if result is not None:
                    timings[candidate], reason = result
                    if timings[candidate].failure is not None:
                        log.info("%s on %s: %s", candidate, request.problem, reason)
            if any(result is not None and result[0].failure in STICKY for result in answer):
                workers_lost += 1
                self._process.replace()
        return BatchAnswer(
            tuple((i, timings[c]) for i, c in enumerate(request.candidates) if c in timings),
            self._gpu,
            state=self._watch.read(self._gpu),
            throttled=self._watch.throttled_since(self._gpu, began),
            workers_lost=workers_lost,
        )
