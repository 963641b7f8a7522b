"""No time of the host's is measured, and the device hardly waits for it: over a device and a host
with clocks of their own."""

from types import SimpleNamespace

import pytest
import torch

from diode_engine.collect.workers import direct_timer
from diode_engine.collect.workers.direct_timer import DirectTimer, TimedKernel
from diode_engine.collect.workers.launch_queue import GROUP, MAX_AHEAD, LaunchQueue
from tests.collect.fake_device import CLOCK_MHZ, EVENT_US, FakeDevice

CPU = torch.device("cpu")
MANY = 100 * GROUP
WARM = SimpleNamespace(rotates=False, next=lambda: None)
COLD = SimpleNamespace(rotates=True, next=lambda: None)


@pytest.fixture
def device(monkeypatch):
    return FakeDevice(monkeypatch)


@pytest.fixture
def queue(device):
    return LaunchQueue(CPU, CLOCK_MHZ)


def times(queue, launch, count=MANY, flush=None):
    return queue.times([launch] * count, lambda: None, flush)


def late(found):
    return sum(not in_time for _, in_time in found)


@pytest.mark.parametrize("us", [1.0, 5.0, 20.0, 300.0])
@pytest.mark.parametrize("host_us", [2.0, 8.0, 40.0])
def test_times_are_the_kernels_own_and_few_are_late(device, queue, us, host_us):
    found = times(queue, device.launching(us, host_us))
    assert len(found) == MANY
    assert {round(t, 6) for t, in_time in found if in_time} == {us + EVENT_US}
    # before it has learnt that the host takes 44 us a launch, and not 15
    assert late(found) <= (4 * GROUP if host_us == 40.0 else 0)


@pytest.mark.parametrize("stall_us", [500.0, 10_000.0])
def test_what_a_stall_of_the_host_makes_late_is_told(device, queue, stall_us):
    stalls = [0.0] * (MANY // 2) + [stall_us]
    found = times(queue, device.launching(20.0, stalls=stalls))
    wrong = [in_time for t, in_time in found if round(t, 6) != 20.0 + EVENT_US]
    assert not any(wrong)
    assert late(found) <= 2 * GROUP


def test_the_host_and_the_device_work_at_the_same_time(device, queue):
    """Kernels that take longer than the host needs for them are one behind the other."""
    times(queue, device.launching(20.0))
    assert device.device < 1.05 * MANY * (20.0 + 2 * EVENT_US)
    assert device.slept < 2000.0


def test_short_kernels_wait_for_the_host_alone(device, queue):
    times(queue, device.launching(1.0))
    assert device.device < 1.1 * MANY * 12.0


def test_a_stall_of_the_host_is_not_expected_again(device, queue):
    for count in (GROUP + 1, 1, 1, 1):
        times(queue, device.launching(20.0, stalls=[10_000.0]), count)
    device.slept = 0.0
    times(queue, device.launching(20.0))
    assert device.slept < 4000.0


def test_no_more_is_enqueued_than_the_driver_takes(device, queue):
    """Before a launch the host has waited for all but MAX_AHEAD groups."""
    seen = []
    kernel = device.launching(300.0)

    def launch(place, stream):
        kernel(place, stream)
        seen.append(device.device - device.host)

    times(queue, launch)
    assert max(seen) <= MAX_AHEAD * GROUP * (300.0 + 2 * EVENT_US) + 2000.0


def test_a_flush_goes_before_each_launch_and_is_not_timed(device, queue):
    flush = device.flush(130.0, 512 << 20)
    found = times(queue, device.launching(5.0), flush=flush)
    assert {(round(us, 6), in_time) for us, in_time in found} == {(5.0 + EVENT_US, True)}
    commands = [what for what in device.log if what != "wait"]
    group = ["event", *["flush", "event", "launch", "event"] * GROUP]
    assert commands == group * (MANY // GROUP)
    assert device.slept < 3000.0  # the flushes keep the device busy meanwhile


# The timer over it


def timed(device, operands, **kernels):
    """Timed kernels of these launches, each checked once and then timed."""
    timer = DirectTimer(CPU, CLOCK_MHZ, 1024)
    timed_kernels = {name: TimedKernel(launch) for name, launch in kernels.items()}
    for timed_kernel in timed_kernels.values():
        note = timer.once(timed_kernel, None)
        device.host = device.device
        note()
    device.log.clear()
    timer.time_in_turn(list(timed_kernels.values()), operands)
    return timed_kernels


@pytest.mark.parametrize(("operands", "flushed"), [(COLD, False), (WARM, True)])
def test_the_cache_is_flushed_where_operands_may_be_in_it(device, monkeypatch, operands, flushed):
    monkeypatch.setattr(torch, "empty", lambda *_, **__: device.flush(130.0, 512 << 20))
    timed(device, operands, one=device.launching(20.0))
    launches = device.log.count("launch")
    assert device.log.count("flush") == (launches if flushed else 0)


def test_nothing_is_flushed_or_enqueued_where_there_is_nothing_to_time(device, monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("memory for nothing"))
    timed(device, WARM)
    assert device.log == []


def test_launches_that_were_late_are_made_again(device):
    # the check's launch; the first round's 3, two times; in the second round's 24
    stalls = [0.0, 0.0, 5000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5000.0]
    found = timed(device, COLD, one=device.launching(20.0, stalls=stalls))
    assert found["one"].times == pytest.approx([20.0 + EVENT_US] * 24)


def test_a_host_that_is_slow_at_every_launch_is_waited_for(device):
    """As cuBLASLt's calls are while compilers take all cores."""
    found = timed(device, COLD, one=device.launching(20.0, stalls=[400.0] * 1000))
    assert found["one"].times == pytest.approx([20.0 + EVENT_US] * len(found["one"].times))
    assert len(found["one"].times) >= 6


def test_what_is_late_every_time_counts_after_all(device, monkeypatch):
    monkeypatch.setattr(direct_timer, "MARGINS", (1.5, 6.0))
    found = timed(device, COLD, one=device.launching(20.0, stalls=[5000.0] * 1000))
    assert min(found["one"].times) > 5000.0
    assert len(found["one"].times) == 6


def test_nothing_is_judged_by_its_first_launch(device):
    late, slow = device.launching(12.0, first_us=50_000.0), device.launching(800.0)
    found = timed(device, COLD, fast=device.launching(10.0), loaded_late=late, much_slower=slow)
    assert found["loaded_late"].best == pytest.approx(12.0 + EVENT_US)
    assert found["loaded_late"].timing().repeats == 23
    assert found["much_slower"].times == pytest.approx([800.0 + EVENT_US])  # it is hopeless


def test_launches_are_spent_on_those_near_the_fastest(device):
    first, second, third = (device.launching(us) for us in (10.0, 18.0, 10.0))
    found = timed(device, COLD, first=first, second=second, third=third)
    assert [len(each.times) for each in found.values()] == [24, 6, 24]
    assert [each.best for each in found.values()] == pytest.approx(
        [us + EVENT_US for us in (10.0, 18.0, 10.0)]
    )
