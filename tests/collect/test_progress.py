"""What a collection tells of itself, and what NVML tells of a GPU."""

from __future__ import annotations

import ctypes
import itertools

import pytest

from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.collect.progress import MAX_SAMPLES, GpuProgress, MachineGpus, Progress
from diode_engine.core.timing import Failure


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_minute():
    clock, gpu = Clock(), GpuProgress()
    progress = Progress(10, 1000, clock=clock)
    assert (progress.rate, progress.seconds_left) == (0.0, None)
    for _ in range(120):  # one a second, then four
        clock.now += 1
        progress.add_timing(None, gpu)
        assert progress.rate == pytest.approx(1.0)
    assert progress.seconds_left == pytest.approx(880)
    for _ in range(120):
        clock.now += 1
        for _ in range(4):
            progress.add_timing(Failure.CRASH, gpu)
        assert progress.rate <= 4.01
    assert progress.rate == pytest.approx(4.0, rel=0.05)
    assert progress.seconds_left == pytest.approx(400 / progress.rate)
    assert (gpu.timings, gpu.failures) == (600, 480)


def test_what_is_expected_follows_what_is_offered():
    clock = Clock()
    progress = Progress(2, 2000, clock=clock)
    progress.expect(1000, 10)
    progress.expect(1000, 0)
    clock.now += 2
    for _ in range(12):  # more than was expected
        progress.add_timing(None, GpuProgress())
    assert progress.candidates == 10
    assert progress.seconds_left == 0


def test_samples_stay_few_and_cover_the_whole_run():
    gpu = GpuProgress()
    for second in range(10_000):
        gpu.add(second, GpuState(second, 50, None))
    assert MAX_SAMPLES // 2 <= len(gpu.samples) <= MAX_SAMPLES
    times = [s[0] for s in gpu.samples]
    steps = {b - a for a, b in itertools.pairwise(times)}
    assert len(steps) == 1  # evenly
    assert times[0] == 0
    assert times[-1] > 9000
    assert gpu.samples[-1][:4] == [times[-1], times[-1], 50, None]


# As an NVIDIA H200 told them in a collection with --direct: clock in MHz, °C, W, %, bytes.
RECORDED = (
    GpuState(1980, 35, 121, (), 0, 541_065_216),
    GpuState(1980, 41, 345, ("sw_power_cap",), 97, 2_415_919_104),
    GpuState(1215, 84, 298, ("sw_thermal_slowdown",), 99, 2_415_919_104),
)


def test_a_sample_has_what_a_gpu_did_and_how_many_timings_it_gave():
    gpu = GpuProgress()
    for second, state in zip((0.0, 2.0, 4.0), RECORDED, strict=True):
        gpu.add(second, state)
        gpu.timings += 28 if second == 0 else 3
    assert gpu.samples == [
        [0.0, 1980, 35, 121, 0, 0.54, None, 0],
        [2.0, 1980, 41, 345, 97, 2.42, 14.0, 0],
        [4.0, 1215, 84, 298, 99, 2.42, 1.5, 1],
    ]
    told = gpu.to_dict()
    assert told["utilisation"] == 99
    assert told["memory_bytes"] == 2_415_919_104


class Nvml:
    """Two GPUs: one tells all, the other, a part of one, does not know its power."""

    def __init__(self, reasons: int = 0) -> None:
        self.reasons = reasons

    def nvmlDeviceGetHandleByUUID(self, name: ctypes.c_char_p, out) -> int:
        handles = {b"GPU-a": 1, b"MIG-b": 2}
        out._obj.value = handles.get(name.value, 0)
        return 0 if name.value in handles else 6

    def nvmlDeviceGetCount_v2(self, out) -> int:
        out._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, out) -> int:
        out._obj.value = number + 1
        return 0

    def nvmlDeviceGetClockInfo(self, handle, kind: ctypes.c_int, out) -> int:
        assert kind.value == 1
        out._obj.value = 1000 * handle.value
        return 0

    def nvmlDeviceGetTemperature(self, handle, kind: ctypes.c_int, out) -> int:
        assert kind.value == 0
        out._obj.value = 40
        return 0

    def nvmlDeviceGetPowerUsage(self, handle, out) -> int:
        out._obj.value = 345_678
        return 0 if handle.value == 1 else 3

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, out) -> int:
        out._obj.value = self.reasons
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle, out) -> int:
        out._obj.gpu, out._obj.memory = 97, 12
        return 0 if handle.value == 1 else 3

    def nvmlDeviceGetMemoryInfo(self, handle, out) -> int:
        out._obj.total, out._obj.free, out._obj.used = 1000, 600, 400
        return 0


def test_a_gpu_tells_how_it_is():
    watch = GpuWatch(Nvml(0x01 | 0x04))
    for gpu, name in ((1, "a"), (0, "b"), (7, "c")):
        watch.add(gpu, name)
    assert watch.state(1) == GpuState(1000, 40, 345, ("sw_power_cap",), 97, 400)
    assert watch.state(0) == GpuState(2000, 40, None, ("sw_power_cap",), None, 400)
    assert watch.state(7) is None


def test_a_run_that_times_nothing_tells_of_all_gpus_of_its_machine():
    assert MachineGpus(GpuWatch(None)).to_dict() == {}
    clock = Clock()
    gpus = MachineGpus(GpuWatch(Nvml()), clock=clock)
    clock.now += 3
    told = gpus.to_dict()
    assert {number: gpu["utilisation"] for number, gpu in told.items()} == {"0": 97, "1": None}
    assert told["0"]["samples"] == [[3.0, 1000, 40, 345, 97, 0.0, 0.0, 0]]
    assert told["0"]["node"]  # of several, the page shows the machine
    assert gpus.to_dict() == told  # nothing was read anew a moment later


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(0x0, False), (0x1, False), (0x4, False), (0x8, True), (0x20, True), (0x44, True)],
)
def test_a_power_cap_is_not_throttling_but_heat_is(reasons, throttled):
    watch = GpuWatch(Nvml(reasons))
    watch.add(0, "a")
    state = watch.state(0)
    assert state.throttled == throttled


def test_a_driver_without_a_function_says_the_rest():
    class Older(Nvml):
        nvmlDeviceGetCurrentClocksThrottleReasons = property()  # raises AttributeError

    watch = GpuWatch(Older())
    watch.add(0, "a")
    assert watch.state(0) == GpuState(1000, 40, 345, (), 97, 400)


def test_without_nvml_nothing_is_watched(monkeypatch):
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert GpuWatch.open().add_all() == 0
