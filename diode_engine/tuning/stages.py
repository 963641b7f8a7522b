"""The stages of a tuning: which one it is in, how long each took, and how far the tuning is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from diode_engine.runs import Job

TELL_SECONDS = 1.0
Note = Callable[[str], None]


@dataclass
class Counts:
    """What a tuning has timed so far. Only `seconds` includes earlier runs of the same tuning."""

    seconds: float  # of timing
    timings: int = 0
    failures: int = 0
    out_of_memory: int = 0  # of the failures
    workers_lost: int = 0
    throttled: int = 0  # timings taken while a GPU was throttled


class Stages:
    """The stages of one tuning in progress, which should take `minutes` in all."""

    def __init__(
        self,
        job: Job,
        minutes: float,
        counts: Counts,
        note: Note,
        report: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], float],
    ) -> None:
        self.counts = counts
        self.note = note
        self.done: list[dict[str, Any]] = []  # the last one may still be in progress
        self._job, self._report, self.clock = job, report, clock
        self._whole = 60 * minutes
        self._began = clock()
        self._earlier = counts.seconds
        self._told = 0.0
        self._fraction = 0.0

    @property
    def seconds(self) -> float:
        """How long this run has taken."""
        return self.clock() - self._began

    @property
    def seconds_left(self) -> float:
        """What is left of the minutes; the timing of earlier runs of the tuning counts. Below 0
        when the minutes are over."""
        return self._whole - self._earlier - self.seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage of this name, which is as long as the block."""
        began = self.clock()
        self.done.append({"stage": name, "seconds": 0.0})
        self.note(f"{name[0].upper()}{name[1:]} ...")
        self.tell(force=True)
        try:
            yield
        finally:
            self.done[-1]["seconds"] = round(self.clock() - began, 1)

    def tell(self, *, force: bool = False) -> None:
        """Writes how far the tuning is; without `force` at most once in TELL_SECONDS."""
        now = self.clock()
        if not force and now - self._told < TELL_SECONDS:
            return
        self._told = now
        # When the minutes are over, something is still to be done: say that little time is left.
        left = max(self.seconds_left, 0.01 * self._whole)
        self._fraction = max(self._fraction, 1 - left / self._whole)
        progress = {
            "doing": self.done[-1]["stage"] if self.done else "",
            "stage": len(self.done),
            "fraction": round(self._fraction, 4),
            "seconds_left": round(left, 1),
            "timing_seconds": round(self.counts.seconds, 1),
            "timings": self.counts.timings,
            "failures": self.counts.failures,
        }
        self._job.tell(progress)
        self._report(progress)

    def check(self) -> None:
        """As Job.check; it also writes how far the tuning is."""
        self._job.check()
        self.tell()
