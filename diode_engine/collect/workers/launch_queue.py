"""Timed launches, each enqueued before the device has finished those before it, so that the host's
time is never measured.

Launches are enqueued in groups. Where the device would reach a group too early, a kernel that only
waits is enqueued before the group.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from diode_engine.collect.workers.launch import Place
from diode_engine.inductor.torch_internals.device import wait_on_device

# How many launches a group has, and how many groups may be enqueued before the device is done with
# them. A launch is three commands, or four with a flush, and the driver's queue has room for about
# a thousand commands.
GROUP = 16
MAX_AHEAD = 12
# The device should be busy for the time that the host is expected to need for a group, times this.
MARGIN = 1.5
MIN_US = 2.0  # the shortest time of the device for a launch with its events
# Where a group takes the host so many times longer than usual, the host was stalled.
MAX_SLOWER = 4

# Launches a kernel at a place, in the stream with this handle.
Launching = Callable[[Place, int], None]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


@dataclass
class _LaunchGroup:
    """A group of `count` launches that are enqueued, with the events around each. The device waits
    `wait_us` before the group."""

    begun: torch.cuda.Event = field(default_factory=_event)  # recorded before the first launch
    around: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(
        default_factory=lambda: [(_event(), _event()) for _ in range(GROUP)]
    )
    count: int = 0
    wait_us: float = 0.0
    in_time: bool = True

    def times(self) -> Iterator[tuple[float, bool]]:
        """(microseconds, whether it was enqueued in time) of each launch. Waits for the device."""
        events = self.around[: self.count]
        events[-1][1].synchronize()
        for begin, end in events:
            yield 1e3 * begin.elapsed_time(end), self.in_time


class LaunchQueue:
    """Launches on one device, in its current stream."""

    def __init__(self, device: torch.device, clock_mhz: int) -> None:
        self._device = device
        self._clock_mhz = clock_mhz
        self._host_us = 15.0  # what the host needs to enqueue a launch with its events, measured
        self._free: list[_LaunchGroup] = []

    def times(
        self,
        launches: Sequence[Launching],
        next_place: Callable[[], Place],
        flush: torch.Tensor | None = None,
        margin: float = MARGIN,
    ) -> list[tuple[float, bool]]:
        """The microseconds of each launch, and whether it was enqueued in time.

        The launches take their operands from `next_place`; `flush` is written before each. The
        device waits `margin` times as long as the host is expected to need. Raises what a launch
        raises.
        """
        stream = torch.cuda.current_stream(self._device)
        found: list[tuple[float, bool]] = []
        ahead: deque[_LaunchGroup] = deque()

        def note() -> None:
            group = ahead.popleft()
            found.extend(group.times())
            self._free.append(group)

        for at in range(0, len(launches), GROUP):
            if len(ahead) == MAX_AHEAD:
                note()
            some = launches[at : at + GROUP]
            group = self._free.pop() if self._free else _LaunchGroup()
            group.count = len(some)
            began = _now_us()
            group.wait_us = max(0.0, margin * self._host_us * len(some) - _left_us(ahead))
            if group.wait_us:
                wait_on_device(int(group.wait_us * self._clock_mhz))
            group.begun.record(stream)
            for launch, (begin, end) in zip(some, group.around, strict=False):
                if flush is not None:
                    flush.zero_()
                place = next_place()
                begin.record(stream)
                launch(place, stream.cuda_stream)
                end.record(stream)
            group.in_time = not group.begun.query()
            host_us = min((_now_us() - began) / len(some), MAX_SLOWER * self._host_us)
            self._host_us += 0.2 * (len(some) / GROUP) * (host_us - self._host_us)
            ahead.append(group)
        while ahead:
            note()
        return found


def _left_us(ahead: Sequence[_LaunchGroup]) -> float:
    """For how many microseconds the device is still busy with these groups, at least. Only groups
    that it has not begun count. The wait before the first of these does not count, since the device
    may be in it already."""
    left = waiting = 0.0
    for group in reversed(ahead):
        if group.begun.query():
            break
        left += waiting + MIN_US * group.count
        waiting = group.wait_us
    return left


def _now_us() -> float:
    return 1e6 * time.perf_counter()
