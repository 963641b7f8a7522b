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

from diode_engine.collect.workers.launch import Place
from diode_engine.collect.workers.launch_queue import MARGIN, Launching, LaunchQueue
from diode_engine.collect.workers.operands import Operands
from diode_engine.core.timing import Timing

# A visit is a few launches of one kernel, one after the other. A kernel has VISITS visits, the
# first with FIRST_VISIT launches. All its launches together take about BUDGET_US microseconds.
VISITS = 3
FIRST_VISIT = 2
MIN_REPEATS = 6
MAX_REPEATS = 24
BUDGET_US = 1000.0
# A kernel that is so many times slower than the fastest has only one more visit, of at most
# SLOWER_REPEATS launches in SLOWER_BUDGET_US: more would only say how much slower it is.
SLOWER = 1.5
SLOWER_REPEATS = 4
SLOWER_BUDGET_US = 400.0
# A kernel that is so many times slower than the fastest is not launched again. Its time is kept;
# that it had fewer than MIN_REPEATS launches shows what happened.
MUCH_SLOWER = 5.0
# A launch after another kernel's finds the instruction caches cold. For kernels that are faster
# than this (microseconds), the first launch of a visit is not timed.
WARM_BELOW_US = 50.0
# The launch that checks a kernel's result is timed too, but the host may be late then, or a library
# may load its code. A kernel whose time is over MUCH_SLOWER times the best by more than this
# (microseconds) is launched only once more, to confirm it.
SUSPECT_US = 300.0
# How long the device waits for the host before a group of launches: longer at each new try to
# enqueue launches in time. Where many processes compile, a library's call can take the host twenty
# times as long as a kernel's launch.
MARGINS = (MARGIN, 4 * MARGIN, 16 * MARGIN, 64 * MARGIN)


@dataclass(eq=False)  # counted by identity
class TimedKernel:
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

    def __init__(self, device: torch.device, clock_mhz: int, flush_bytes: int) -> None:
        self._device = device
        self._flush_bytes = flush_bytes
        self._flush: torch.Tensor | None = None
        self._queue = LaunchQueue(device, clock_mhz)

    def once(self, kernel: TimedKernel, place: Place) -> Callable[[], None]:
        """Launches the kernel once at `place`, now. The returned function notes the time; call it
        when the device is done with the launch."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream(self._device)
        begin.record(stream)
        kernel.launch(place, stream.cuda_stream)
        end.record(stream)

        def note() -> None:
            kernel.times.append(1e3 * begin.elapsed_time(end))

        return note

    def time_in_turn(
        self, kernels: Sequence[TimedKernel], operands: Operands, best_us: float | None = None
    ) -> None:
        """Times all kernels, a few launches of each in turn. Each must have the time of one
        launch (see `once`), which is replaced. `best_us` is the best time of this problem's earlier
        batches."""
        best = min((c.best for c in kernels), default=0.0)
        best = best if best_us is None else min(best, best_us)
        suspect = MUCH_SLOWER * best + SUSPECT_US
        visit = [(c, 1 if c.best > suspect else FIRST_VISIT, c.best) for c in kernels]
        for kernel in kernels:
            kernel.times = []
        self._round(visit, operands)
        best = min((c.best for c in kernels), default=0.0)
        best = best if best_us is None else min(best, best_us)
        near = [
            (c, _as_many(c.best, MIN_REPEATS, MAX_REPEATS, BUDGET_US) - FIRST_VISIT)
            for c in kernels
            if c.best <= SLOWER * best
        ]
        beaten = [
            (c, _as_many(c.best, 1, SLOWER_REPEATS, SLOWER_BUDGET_US), c.best)
            for c in kernels
            if SLOWER * best < c.best <= MUCH_SLOWER * best
        ]
        visit = [(c, -(-count // (VISITS - 1)), c.best) for c, count in near]
        self._round([*visit, *beaten, *(VISITS - 2) * visit], operands)

    def _round(self, visits: Sequence[tuple[TimedKernel, int, float]], operands: Operands) -> None:
        """Makes the visits, each of which is a kernel, a number of timed launches and the expected
        time of one (microseconds). Launches that were not enqueued in time are repeated."""
        for margin in MARGINS:
            if not visits:
                break
            launches: list[tuple[TimedKernel, bool]] = []
            for kernel, count, about_us in visits:
                if about_us < WARM_BELOW_US:
                    launches.append((kernel, False))
                launches += [(kernel, True)] * count
            times = self._queue.times(
                [kernel.launch for kernel, _ in launches],
                operands.next,
                self._flush_for(operands),
                margin,
            )
            late: Counter[TimedKernel] = Counter()
            for (kernel, timed), (us, in_time) in zip(launches, times, strict=True):
                if timed and (in_time or margin == MARGINS[-1]):
                    kernel.times.append(us)
                elif timed:
                    late[kernel] += 1
            visits = [(kernel, count, 0.0) for kernel, count in late.items()]

    def _flush_for(self, operands: Operands) -> torch.Tensor | None:
        """The memory that is written before each launch to flush the cache; None where the operands
        are not in the cache anyway."""
        if operands.rotates:
            return None
        if self._flush is None:
            self._flush = torch.empty(self._flush_bytes, dtype=torch.int8, device=self._device)
        return self._flush


def _as_many(about_us: float, least: int, most: int, budget_us: float) -> int:
    """How many launches of about `about_us` microseconds fill the budget; from `least` to
    `most`."""
    return min(most, max(least, int(budget_us / max(about_us, 1.0))))
