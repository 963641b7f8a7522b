"""Timing many kernels of one problem, a few launches of each in turn.

Drift of clocks and temperature spreads over all of them that way. The launches of a round are
enqueued behind a kernel that only waits, so that the device has them all before it begins with
the first and no time of the host's is measured. Each finds the L2 cache full of other data
(see `operands`); where the problem is too large for that, the cache is flushed before each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from diode_engine.collect.launch import Place
from diode_engine.collect.operands import Operands
from diode_engine.problem import Timing

# Launches a candidate: as many as fill the time (microseconds), in three visits.
VISITS = 3
FIRST_VISIT = 2
LEAST_REPEATS = 6
MOST_REPEATS = 24
BUDGET_US = 1000.0
# So many times slower than the fastest: more launches would only tell by how much, so it has
# one more visit, of as many as fill this time.
BEATEN = 1.5
BEATEN_REPEATS = 4
BEATEN_BUDGET_US = 400.0
# So many times slower than the fastest: no more launches. Its time is kept with the count of
# those it had, fewer than LEAST_REPEATS.
HOPELESS = 5.0
# A launch after another kernel's finds the instruction caches cold; faster kernels than this
# (microseconds) have one that is not timed at the start of a visit.
WARM_BELOW_US = 50.0
# The launch by which a kernel is checked is timed while the host may be late, or a library loads
# its code. If it was so much over what is hopeless (microseconds), one more confirms it.
SUSPECT_US = 300.0
# Launches behind one wait, three commands each; the driver takes about a thousand.
CHUNK = 96
MOST_TRIES = 3  # at enqueuing a chunk before the wait is over

Launching = Callable[[Place, int], None]


@dataclass
class Contender:
    """One kernel, and the times (microseconds) of its launches so far."""

    launch: Launching
    times: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.times)

    def timing(self) -> Timing:
        """The times as a record; the spread is that of four launches or more."""
        times = sorted(self.times)
        spread = None
        if len(times) >= 4:
            low, _, high = statistics.quantiles(times, n=4)
            spread = high - low
        return Timing(
            min_us=times[0],
            median_us=statistics.median(times),
            spread_us=spread,
            repeats=len(times),
        )


class DirectTimer:
    """Times contenders on one device and stream."""

    def __init__(
        self,
        device: torch.device,
        clock_mhz: int,
        flush_bytes: int,
        *,
        always_flush: bool = False,
    ) -> None:
        self._always_flush = always_flush
        self._device = device
        self._clock_mhz = clock_mhz
        self._flush_bytes = flush_bytes
        self._flush: torch.Tensor | None = None
        self._events: list[torch.cuda.Event] = []
        self._host_us = 15.0  # to enqueue one launch with its events

    def once(self, contender: Contender, place: Place) -> Callable[[], None]:
        """Launches once at `place`, now; what is returned notes the time, after a wait for the
        device."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream(self._device)
        begin.record(stream)
        contender.launch(place, stream.cuda_stream)
        end.record(stream)

        def note() -> None:
            contender.times.append(1e3 * begin.elapsed_time(end))

        return note

    def compete(
        self, contenders: Sequence[Contender], operands: Operands, best_us: float | None = None
    ) -> None:
        """Fills in the times of all. Each comes with the time of one cold launch, which is
        replaced. `best_us` is the best of earlier ones."""
        best = min((c.best for c in contenders), default=0.0)
        best = best if best_us is None else min(best, best_us)
        suspect = HOPELESS * best + SUSPECT_US
        visit = [(c, 1 if c.best > suspect else FIRST_VISIT, c.best) for c in contenders]
        for contender in contenders:
            contender.times = []
        self._round(visit, operands)
        best = min((c.best for c in contenders), default=0.0)
        best = best if best_us is None else min(best, best_us)
        near = [
            (c, _as_many(c.best, LEAST_REPEATS, MOST_REPEATS, BUDGET_US) - FIRST_VISIT)
            for c in contenders
            if c.best <= BEATEN * best
        ]
        beaten = [
            (c, _as_many(c.best, 1, BEATEN_REPEATS, BEATEN_BUDGET_US), c.best)
            for c in contenders
            if BEATEN * best < c.best <= HOPELESS * best
        ]
        visit = [(c, -(-count // (VISITS - 1)), c.best) for c, count in near]
        self._round([*visit, *beaten], operands)
        for _ in range(VISITS - 2):
            self._round(visit, operands)

    def _round(self, visits: Sequence[tuple[Contender, int, float]], operands: Operands) -> None:
        """A visit of so many timed launches to each, whose time is known to be about that."""
        launches: list[tuple[Contender, bool]] = []
        for contender, count, about_us in visits:
            if about_us < WARM_BELOW_US:
                launches.append((contender, False))
            launches += [(contender, True)] * count
        for at in range(0, len(launches), CHUNK):
            chunk = launches[at : at + CHUNK]
            if operands.rotates and not self._always_flush:
                found = self._behind_wait(chunk, operands)
            else:
                found = self._behind_flush(chunk, operands)
            for (contender, timed), us in zip(chunk, found, strict=True):
                if timed:
                    contender.times.append(us)

    def _behind_wait(
        self, launches: Sequence[tuple[Contender, bool]], operands: Operands
    ) -> list[float]:
        pairs = self._pairs(len(launches))
        stream = torch.cuda.current_stream(self._device)
        waited = torch.cuda.Event()
        wait_us = 1.5 * self._host_us * len(launches)
        for attempt in range(MOST_TRIES):
            torch.cuda._sleep(int(wait_us * self._clock_mhz))
            waited.record(stream)
            began = time.perf_counter()
            for (contender, _), (begin, end) in zip(launches, pairs, strict=True):
                place = operands.next()
                begin.record(stream)
                contender.launch(place, stream.cuda_stream)
                end.record(stream)
            spent_us = 1e6 * (time.perf_counter() - began)
            in_time = not waited.query()
            torch.cuda.synchronize(self._device)
            self._host_us += 0.2 * (spent_us / len(launches) - self._host_us)
            if in_time or attempt == MOST_TRIES - 1:
                break
            wait_us = max(2 * wait_us, 1.5 * spent_us)
        return [1e3 * begin.elapsed_time(end) for begin, end in pairs]

    def _behind_flush(
        self, launches: Sequence[tuple[Contender, bool]], operands: Operands
    ) -> list[float]:
        if self._flush is None:
            self._flush = torch.empty(self._flush_bytes, dtype=torch.int8, device=self._device)
        pairs = self._pairs(len(launches))
        stream = torch.cuda.current_stream(self._device)
        for (contender, _), (begin, end) in zip(launches, pairs, strict=True):
            place = operands.next()
            self._flush.zero_()
            begin.record(stream)
            contender.launch(place, stream.cuda_stream)
            end.record(stream)
        torch.cuda.synchronize(self._device)
        return [1e3 * begin.elapsed_time(end) for begin, end in pairs]

    def _pairs(self, count: int) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
        while len(self._events) < 2 * count:
            self._events.append(torch.cuda.Event(enable_timing=True))
        events: Iterator[torch.cuda.Event] = iter(self._events)
        return [(next(events), next(events)) for _ in range(count)]


def _as_many(about_us: float, least: int, most: int, budget_us: float) -> int:
    """How many launches of about so many microseconds fill a time."""
    return min(most, max(least, int(budget_us / max(about_us, 1.0))))
