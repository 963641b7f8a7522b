"""A device and a host that enqueues for it, each with a clock of its own, in place of CUDA's."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import torch

from diode_engine.collect.workers import launch_queue

CLOCK_MHZ = 1000
EVENT_US = 0.5  # of the device's time
RECORD_US, SLEEP_US, LAUNCH_US = 2.0, 4.0, 8.0  # of the host's


class FakeDevice:
    """Both clocks, in microseconds; `log` has what the host has enqueued."""

    def __init__(self, monkeypatch):
        self.host = self.device = self.slept = 0.0
        self.log = []
        device = self

        class Event:
            def __init__(self, **_):
                self.at = None

            def record(self, stream):
                device.given("event", EVENT_US, RECORD_US)
                self.at = device.device

            def query(self):
                return self.at <= device.host

            def synchronize(self):
                device.host = max(device.host, self.at)

            def elapsed_time(self, end):
                return (end.at - self.at) / 1e3

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "_sleep", self._sleep)
        monkeypatch.setattr(
            torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7)
        )
        monkeypatch.setattr(
            launch_queue, "time", SimpleNamespace(perf_counter=lambda: self.host / 1e6)
        )

    def given(self, what, device_us, host_us):
        """Enqueues something that takes the host `host_us` and then the device `device_us`. The
        device begins it when the host is done and all before it is done."""
        self.log.append(what)
        self.host += host_us
        self.device = max(self.device, self.host) + device_us

    def _sleep(self, cycles):
        self.slept += cycles / CLOCK_MHZ
        self.given("wait", cycles / CLOCK_MHZ, SLEEP_US)

    def launching(self, device_us, host_us=LAUNCH_US, stalls=(), first_us=None):
        """A launch of a kernel that takes so long, the first time `first_us`. Each launch also
        takes the host the next of `stalls`, in microseconds."""
        more = itertools.chain(stalls, itertools.repeat(0))
        times = itertools.chain([first_us or device_us], itertools.repeat(device_us))

        def launch(place, stream):
            assert stream == 7
            self.given("launch", next(times), host_us + next(more))

        return launch

    def flush(self, device_us, nbytes):
        """What is written before each launch."""
        return SimpleNamespace(nbytes=nbytes, zero_=lambda: self.given("flush", device_us, 5.0))
