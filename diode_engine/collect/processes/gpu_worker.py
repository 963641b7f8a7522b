"""A worker process on one GPU of this machine, and what it is asked."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diode_engine.collect.executor import (
    BatchAnswer,
    BatchRequest,
    Host,
    Refusal,
    SpaceAnswer,
    SpaceRequest,
)
from diode_engine.collect.gpu_state import GpuWatch
from diode_engine.collect.gpus import visible_to_a_child
from diode_engine.collect.processes import protocol
from diode_engine.collect.processes.worker_process import WorkerLost, WorkerProcess
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure, Timing

log = logging.getLogger(__name__)

# The longest time between two messages of a worker: enough for the slowest kernel's compile and its
# launches.
DEADLINE_SECONDS = 120.0
MAX_DEATHS = 4  # of workers on one problem; then the problem is given up

WORKER = (sys.executable, "-P", "-m", "diode_engine.collect.workers.worker")
DIRECT_WORKER = (sys.executable, "-P", "-m", "diode_engine.collect.workers.direct_worker")


class GpuWorker:
    """A worker on the GPU of this number, which answers one request at a time.

    `command` starts it; `deadline` is in seconds; `watch` reads the GPU's state. With `binaries`,
    the folder of compiled kernels, it is a direct worker: it times the candidates of a batch a few
    launches of each in turn, and does not say which one it is timing.
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
            self._read_hello,
            environment={"CUDA_VISIBLE_DEVICES": visible_to_a_child(gpu)},
            deadline=deadline,
        )

    def start(self) -> None:
        """Starts the process, and does not wait until it is ready."""
        self._process.start()

    def host(self) -> Host:
        """Waits until the worker is ready, and returns its host. Raises CollectionError where it
        cannot be started."""
        host = self._process.ready()
        self._watch.add(self._gpu, host.name)
        return host

    def ask(self, request: SpaceRequest | BatchRequest) -> SpaceAnswer | Refusal | BatchAnswer:
        """The answer to the request. Raises CollectionError where the worker has died and cannot be
        started again."""
        if isinstance(request, SpaceRequest):
            return self._ask_space(request.problem)
        began = time.monotonic()
        batch = _BatchTiming(self._process, request, self._in_turn)
        batch.time(range(len(request.candidates)))
        return BatchAnswer(
            tuple(batch.timings),
            self._gpu,
            state=self._watch.read(self._gpu),
            throttled=self._watch.throttled_since(self._gpu, began),
            workers_lost=batch.workers_lost,
        )

    def close(self) -> None:
        """Ends the worker at once. Any thread may call it."""
        self._process.close()

    def _read_hello(self, hello: protocol.Message) -> Host:
        if not isinstance(hello["gpu"], str):
            raise TypeError("a GPU's name is a text")
        return Host(self._gpu, hello["gpu"], Environment.from_dict(hello["environment"]))

    def _ask_space(self, problem: Problem) -> SpaceAnswer | Refusal:
        self._process.send({"problem": problem.to_dict()})
        try:
            return self._process.receive(_read_space)
        except WorkerLost as lost:
            return Refusal("its worker hung" if lost.timed_out else "its worker died", 1)


def _read_space(message: dict[str, Any]) -> SpaceAnswer | Refusal:
    if "refused" in message:
        return Refusal(message["refused"])
    for packed in (message["offered"], message["default"]):
        protocol.unpack_candidates(packed)
    return SpaceAnswer(message["offered"], message["default"])


class _BatchTiming:
    """Asks a worker for the timings of a batch: (place in the batch, timing)."""

    def __init__(self, process: WorkerProcess[Host], request: BatchRequest, in_turn: bool) -> None:
        self.timings: list[tuple[int, Timing]] = []
        self.workers_lost = 0
        self._process = process
        self._problem = request.problem
        self._candidates = request.candidates
        self._in_turn = in_turn

    def time(self, places: Sequence[int]) -> None:
        """Times these candidates of the batch. Where the worker is lost, another one times those
        after the candidate that it was timing."""
        while places:
            before = len(self.timings)
            try:
                self._time(places)
                return
            except WorkerLost as lost:
                self.workers_lost += 1
                answered = len(self.timings) - before
                if not answered and not self._begun and self._in_turn and len(places) > 1:
                    self._time_one_by_one(places)
                    return
                # Where it died before it began, blame the first, so as not to ask forever.
                if self._begun or not answered:
                    failure = Failure.TIMEOUT if lost.timed_out else Failure.CRASH
                    self.timings.append((places[answered], Timing(failure=failure)))
                    answered += 1
                places = places[answered:]

    def _time(self, places: Sequence[int]) -> None:
        """Raises WorkerLost; then `_begun` says whether the worker was timing a candidate."""
        self._begun = False
        self._process.send(
            {
                "problem": self._problem.to_dict(),
                "candidates": [self._candidates[place].to_dict() for place in places],
            }
        )
        before = len(self.timings)

        def read(message: protocol.Message) -> tuple[Timing | str, Any]:
            answered = len(self.timings) - before
            return protocol.read_answer(message, answered, len(places)), message.get("reason")

        while True:
            said, reason = self._process.receive(read)
            if said in ("done", "refused"):
                return
            self._begun = said == "begin"
            if isinstance(said, Timing):
                place = places[len(self.timings) - before]
                self.timings.append((place, said))
                if said.failure is not None:
                    log.info("%s on %s: %s", self._candidates[place], self._problem, reason)

    def _time_one_by_one(self, places: Sequence[int]) -> None:
        """Asks for each candidate alone, to find out which one ended the worker that timed all of
        them in turn."""
        deaths = 0
        for place in places:
            before = len(self.timings)
            self.time([place])  # which adds no timing where the problem is refused now
            added = [timing.failure for _, timing in self.timings[before:]]
            deaths += Failure.CRASH in added or Failure.TIMEOUT in added
            if deaths == MAX_DEATHS:
                return
