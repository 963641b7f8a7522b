"""Timing many kernels of one problem, a few launches of each in turn.

So changes of clock and temperature affect all of them alike, and the host's time is never measured
(see `launch_queue`). At each launch the L2 cache is full of other data (see `operands`); where the
problem is too large for that, the cache is flushed before each launch.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from diode_engine.collect.launch import Place
from diode_engine.collect.launch_queue import MARGIN, Launching, LaunchQueue
from diode_engine.collect.operands import Operands
from diode_engine.core.problem import Timing

# Launches a candidate: as many as fill the time (microseconds), in three visits.
VISITS = 3
FIRST_VISIT = 2
MIN_REPEATS = 6
MAX_REPEATS = 24
BUDGET_US = 1000.0
# So many times slower than the fastest: more launches would only tell by how much, so it has
# one more visit, of as many as fill this time.
BEATEN = 1.5
BEATEN_REPEATS = 4
BEATEN_BUDGET_US = 400.0
# So many times slower than the fastest: no more launches. Its time is kept with the count of
# those it had, fewer than MIN_REPEATS.
HOPELESS = 5.0
# A launch after another kernel's finds the instruction caches cold; faster kernels than this
# (microseconds) have one that is not timed at the start of a visit.
WARM_BELOW_US = 50.0
# The launch by which a kernel is checked is timed while the host may be late, or a library loads
# its code. If it was so much over what is hopeless (microseconds), one more confirms it.
SUSPECT_US = 300.0
# Tries at enqueuing a launch in time, each with a longer wait of the device for the host: where
# many processes compile, a library's call can take the host twenty times as long as a kernel's.
MARGINS = (MARGIN, 4 * MARGIN, 16 * MARGIN, 64 * MARGIN)


@dataclass(eq=False)  # counted by identity
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
    """Times several kernels of one problem on one device and stream."""

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
        self._flush_bytes = flush_bytes
        self._flush: torch.Tensor | None = None
        self._queue = LaunchQueue(device, clock_mhz)

    def once(self, contender: Contender, place: Place) -> Callable[[], None]:
        """Launches once at `place`, now. Call what is returned to wait for the device and note the
        time."""
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
        """Times all contenders. Each has the time of its first launch, which is replaced. `best_us`
        is the best time of earlier ones."""
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
            (c, _as_many(c.best, MIN_REPEATS, MAX_REPEATS, BUDGET_US) - FIRST_VISIT)
            for c in contenders
            if c.best <= BEATEN * best
        ]
        beaten = [
            (c, _as_many(c.best, 1, BEATEN_REPEATS, BEATEN_BUDGET_US), c.best)
            for c in contenders
            if BEATEN * best < c.best <= HOPELESS * best
        ]
        visit = [(c, -(-count // (VISITS - 1)), c.best) for c, count in near]
        self._round([*visit, *beaten, *(VISITS - 2) * visit], operands)

    def _round(self, visits: Sequence[tuple[Contender, int, float]], operands: Operands) -> None:
        """Makes so many timed launches of each visit's kernel, one after the other; the visit has
        the kernel's expected time. Launches that were not enqueued in time are repeated."""
        for margin in MARGINS:
            if not visits:
                break
            launches: list[tuple[Contender, bool]] = []
            for contender, count, about_us in visits:
                if about_us < WARM_BELOW_US:
                    launches.append((contender, False))
                launches += [(contender, True)] * count
            times = self._queue.times(
                [contender.launch for contender, _ in launches],
                operands.next,
                self._flush_for(operands),
                margin,
            )
            late: Counter[Contender] = Counter()
            for (contender, timed), (us, in_time) in zip(launches, times, strict=True):
                if timed and (in_time or margin == MARGINS[-1]):
                    contender.times.append(us)
                elif timed:
                    late[contender] += 1
            visits = [(contender, count, 0.0) for contender, count in late.items()]

    def _flush_for(self, operands: Operands) -> torch.Tensor | None:
        """What is written before each launch; None where the operands are not in the cache
        anyway."""
        if operands.rotates and not self._always_flush:
            return None
        if self._flush is None:
            self._flush = torch.empty(self._flush_bytes, dtype=torch.int8, device=self._device)
        return self._flush


def _as_many(about_us: float, least: int, most: int, budget_us: float) -> int:
    """How many launches of about so many microseconds fill a time."""
    return min(most, max(least, int(budget_us / max(about_us, 1.0))))
