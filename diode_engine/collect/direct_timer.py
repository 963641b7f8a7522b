"""Timing many kernels of one problem: a few launches of each in turn, so that changes of clock and
temperature affect all of them alike.

The host's time is never measured (see `launch_queue`). At each launch the L2 cache is full of other
data (see `operands`); where the problem is too large for that, the cache is flushed before each
launch.
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

# A visit is a few launches of one kernel, one after the other. A kernel has VISITS visits, the
# first with FIRST_VISIT launches. All its launches together take about BUDGET_US microseconds.
VISITS = 3
FIRST_VISIT = 2
MIN_REPEATS = 6
MAX_REPEATS = 24
BUDGET_US = 1000.0
# A kernel that is so many times slower than the fastest has only one more visit, of at most
# BEATEN_REPEATS launches in BEATEN_BUDGET_US: more would only say how much slower it is.
BEATEN = 1.5
BEATEN_REPEATS = 4
BEATEN_BUDGET_US = 400.0
# A kernel that is so many times slower than the fastest is not launched again. Its time is kept;
# that it had fewer than MIN_REPEATS launches shows what happened.
HOPELESS = 5.0
# A launch after another kernel's finds the instruction caches cold. For kernels that are faster
# than this (microseconds), the first launch of a visit is not timed.
WARM_BELOW_US = 50.0
# The launch that checks a kernel's result is timed too, but the host may be late then, or a library
# may load its code. A kernel whose time is over HOPELESS times the best by more than this
# (microseconds) is launched only once more, to confirm it.
SUSPECT_US = 300.0
# How long the device waits for the host before a group of launches: longer at each new try to
# enqueue launches in time. Where many processes compile, a library's call can take the host twenty
# times as long as a kernel's launch.
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
        """The times as a record. The spread is None for fewer than four launches."""
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
        """Launches the kernel once at `place`, now. The returned function notes the time; call it
        when the device is done with the launch."""
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
        """Times all contenders. Each must have the time of one launch (see `once`), which is
        replaced. `best_us` is the best time of this problem's earlier batches."""
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
        """Makes the visits, each of which is a kernel, a number of timed launches and the expected
        time of one (microseconds). Launches that were not enqueued in time are repeated."""
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
        """The memory that is written before each launch to flush the cache; None where the operands
        are not in the cache anyway."""
        if operands.rotates and not self._always_flush:
            return None
        if self._flush is None:
            self._flush = torch.empty(self._flush_bytes, dtype=torch.int8, device=self._device)
        return self._flush


def _as_many(about_us: float, least: int, most: int, budget_us: float) -> int:
    """How many launches of about `about_us` microseconds fill the budget; from `least` to
    `most`."""
    return min(most, max(least, int(budget_us / max(about_us, 1.0))))
