"""Timed launches, each enqueued before the device is through with those ahead of it.

So no time of the host's is measured. They go out in groups, one behind the other; where the
device would come to a group too soon, a kernel that only waits goes ahead of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from diode_engine.collect.launch import Place

# Launches of a group, three commands each or four with a flush, and groups that the device may
# have before it: the driver takes about a thousand commands.
GROUP = 16
MOST_AHEAD = 12
# The device is to be busy for so many times what the host is expected to need for a group.
MARGIN = 1.5
GAP_US = 2.0  # of the device's time, that a launch and its events take at least beyond the kernel

Launching = Callable[[Place, int], None]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


@dataclass
class _Group:
    """Launches on their way, as many as `count`, and the events around each."""

    begun: torch.cuda.Event = field(default_factory=_event)
    around: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(
        default_factory=lambda: [(_event(), _event()) for _ in range(GROUP)]
    )
    count: int = 0
    in_time: bool = True

    def times(self) -> Iterator[tuple[float, bool]]:
        """Waits for the device."""
        events = self.around[: self.count]
        events[-1][1].synchronize()
        for begin, end in events:
            yield 1e3 * begin.elapsed_time(end), self.in_time


class LaunchQueue:
    """Launches on one device, in its current stream."""

    def __init__(self, device: torch.device, clock_mhz: int) -> None:
        self._device = device
        self._clock_mhz = clock_mhz
        self._host_us = 15.0  # to enqueue one launch with its events
        self._free: list[_Group] = []

    def times(
        self,
        launches: Sequence[tuple[Launching, float]],
        next_place: Callable[[], Place],
        flush: torch.Tensor | None = None,
    ) -> list[tuple[float, bool]]:
        """Each one's microseconds, and whether it was enqueued in time.

        With each comes about how long it takes (microseconds; 0 where that is not known). The
        launches find their operands where `next_place` says; `flush` is written before each.
        """
        stream = torch.cuda.current_stream(self._device)
        found: list[tuple[float, bool]] = []
        ahead: deque[_Group] = deque()
        busy_until = 0.0  # the device, by the host's clock in microseconds

        def note() -> None:
            group = ahead.popleft()
            found.extend(group.times())
            self._free.append(group)

        for at in range(0, len(launches), GROUP):
            if len(ahead) == MOST_AHEAD:
                note()
            some = launches[at : at + GROUP]
            group = self._free.pop() if self._free else _Group()
            group.count = len(some)
            began = _now_us()
            busy_until = max(busy_until, began)
            wait_us = MARGIN * self._host_us * len(some) - (busy_until - began)
            if wait_us > 0:
                torch.cuda._sleep(int(wait_us * self._clock_mhz))
                busy_until += wait_us
            group.begun.record(stream)
            for (launch, about_us), (begin, end) in zip(some, group.around, strict=False):
                if flush is not None:
                    flush.zero_()
                place = next_place()
                begin.record(stream)
                launch(place, stream.cuda_stream)
                end.record(stream)
                busy_until += about_us + GAP_US
            group.in_time = not group.begun.query()
            ended = _now_us()
            if not group.in_time:  # the device may have caught up with the host
                busy_until = ended
            self._host_us += 0.2 * ((ended - began) / len(some) - self._host_us)
            ahead.append(group)
        while ahead:
            note()
        return found


def _now_us() -> float:
    return 1e6 * time.perf_counter()
