"""The progress of a collection, which its run writes to the store (see docs/collection.md)."""

from __future__ import annotations

import platform
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.core.checks import encode_fields
from diode_engine.core.timing import Failure

RATE_SECONDS = 60.0  # the rate is that of the last so many seconds
MAX_SAMPLES = 128  # of a GPU's state in a run; when there are more, every second one is dropped


@dataclass
class GpuProgress:
    """What was timed on one GPU, and the GPU's states meanwhile."""

    name: str = ""
    node: str = ""  # the name of its machine, where there may be several
    timings: int = 0
    failures: int = 0
    throttled: int = 0  # timings that were taken while it was throttled
    driver: str = ""
    state: GpuState | None = None
    # [seconds, clock in MHz, °C, W, utilisation in %, memory in use in GB, timings a second since
    # the sample before, 1 where it is throttled], evenly over the run
    samples: list[list[float | int | None]] = field(default_factory=list)
    _every: int = 1  # one of so many states becomes a sample
    _seen: int = 0  # how many states there were
    _sampled: tuple[float, int] = (0.0, 0)  # seconds and timings at the last sample

    def add(self, seconds: float, state: GpuState) -> None:
        """Takes note of a state, so many seconds after the run's beginning."""
        self.state = state
        if self._seen % self._every == 0:
            since, before = self._sampled
            rate = (self.timings - before) / (seconds - since) if seconds > since else None
            self._sampled = seconds, self.timings
            self.samples.append(
                [
                    round(seconds, 1),
                    state.clock_mhz,
                    state.temperature_c,
                    state.power_w,
                    state.utilisation,
                    None if state.memory_bytes is None else round(state.memory_bytes / 1e9, 2),
                    None if rate is None else round(rate, 2),
                    int(state.throttled),
                ]
            )
        self._seen += 1
        if len(self.samples) >= MAX_SAMPLES:
            self.samples = self.samples[::2]
            self._every *= 2

    def to_dict(self) -> dict[str, Any]:
        state = encode_fields(self.state or GpuState(None, None, None))
        return {
            "name": self.name,
            "node": self.node,
            "driver": self.driver,
            "timings": self.timings,
            "failures": self.failures,
            "throttled": self.throttled,
            **state,
            "samples": self.samples,
        }


class MachineGpus:
    """The states of all GPUs of this machine while a run that times nothing, such as a training,
    works on it."""

    def __init__(self, watch: GpuWatch, *, clock: Callable[[], float] = time.monotonic) -> None:
        count = watch.add_all()
        self._watch = watch
        self._clock, self._began = clock, clock()
        node = platform.node() if count > 1 else ""  # several are shown together
        self._gpus = {gpu: GpuProgress(node=node) for gpu in range(count)}

    def to_dict(self) -> dict[str, Any]:
        """The GPUs as now and over the run, as a collection's progress has its own."""
        for number, gpu in self._gpus.items():
            if (state := self._watch.read(number)) is not None:
                gpu.add(self._clock() - self._began, state)
        return {str(number): gpu.to_dict() for number, gpu in self._gpus.items()}


class Progress:
    """The counts of a collection. `candidates` is how many are expected in all. For a problem it is
    an estimate at first, which `expect` corrects when Inductor has offered the candidates."""

    def __init__(
        self, problems: int, candidates: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.problems = problems
        self.problems_done = 0
        self.problems_refused = 0
        self.problems_elsewhere = 0  # that another collection is timing
        self.candidates = candidates
        self.timings = 0
        self.failures: Counter[Failure] = Counter()
        self.workers_lost = 0
        self.gpus: dict[int, GpuProgress] = {}
        self._clock = clock
        self._began = clock()
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)])  # (seconds, timings)

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def expect(self, instead: int, candidates: int) -> None:
        """Expects so many candidates of a problem instead of the number before."""
        self.candidates += candidates - instead

    def add_timing(self, failure: Failure | None, gpu: GpuProgress) -> None:
        """Counts a timing of the GPU, or a failure for this reason."""
        self.timings += 1
        gpu.timings += 1
        if failure is not None:
            self.failures[failure] += 1
            gpu.failures += 1

    @property
    def rate(self) -> float:
        """Timings a second over the last RATE_SECONDS; 0 before there are any."""
        now = self.seconds
        if now > self._marks[-1][0] + 1.0:
            self._marks.append((now, self.timings))
        while len(self._marks) > 2 and self._marks[1][0] <= now - RATE_SECONDS:
            self._marks.popleft()
        since, before = self._marks[0]
        return (self.timings - before) / (now - since) if now > since else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The remaining time; None while there is no rate."""
        rate = self.rate
        return max(0, self.candidates - self.timings) / rate if rate else None

    def to_dict(self) -> dict[str, Any]:
        left = self.seconds_left
        return {
            "problems": self.problems,
            "problems_done": self.problems_done,
            "problems_refused": self.problems_refused,
            "problems_elsewhere": self.problems_elsewhere,
            "candidates": self.candidates,
            "timings": self.timings,
            "failures": {str(reason): count for reason, count in self.failures.items()},
            "workers_lost": self.workers_lost,
            "seconds": round(self.seconds, 1),
            "rate": round(self.rate, 2),
            "seconds_left": None if left is None else round(left, 1),
            "gpus": {str(number): gpu.to_dict() for number, gpu in sorted(self.gpus.items())},
        }
