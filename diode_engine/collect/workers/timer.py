"""Timing one kernel on a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from diode_engine.collect.workers.driver import DriverError
from diode_engine.core.operand import DType
from diode_engine.core.timing import Failure, Timing

WARMUP = 3
MIN_REPEATS = 5
MAX_REPEATS = 40
BUDGET_MS = 12.0
# The memory that is written between launches. It is larger than any L2, and writing it takes the
# GPU longer (over 100 µs) than the host needs to enqueue the next launch, so that no gap is timed.
FLUSH_BYTES = 512 * 2**20

# The largest error of a kernel's result with TF32: the Frobenius norm of its difference from the
# reference, divided by the norm of the reference. Those of the other types are DType.tolerance.
TF32_TOLERANCE = 2e-3


class Timer:
    """Times launches on one device, each after a flush of the L2 cache. The method is that of
    Triton's and Inductor's benchmarkers: device events around each launch, all enqueued before the
    host waits."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)

    def time(self, launch: Callable[[], Any]) -> Timing:
        """The minimum, the median and the interquartile range of the times of MIN_REPEATS to
        MAX_REPEATS launches, as many as take about BUDGET_MS. Raises what the launch raises,
        asynchronous errors included."""
        for _ in range(WARMUP - 1):
            launch()
        estimate_ms = self._launches(launch, 1)[0]
        repeats = int(BUDGET_MS / max(estimate_ms, 1e-3))
        repeats = min(MAX_REPEATS, max(MIN_REPEATS, repeats))
        times = sorted(1e3 * t for t in self._launches(launch, repeats))
        low, median, high = statistics.quantiles(times, n=4)
        return Timing(min_us=times[0], median_us=median, spread_us=high - low, repeats=len(times))

    def _launches(self, launch: Callable[[], Any], count: int) -> list[float]:
        """Milliseconds of `count` launches."""
        pairs = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(count)
        ]
        for begin, end in pairs:
            self._flush.zero_()
            begin.record()
            launch()
            end.record()
        torch.cuda.synchronize(self._device)
        return [begin.elapsed_time(end) for begin, end in pairs]


def mean(timings: Sequence[Timing]) -> Timing:
    """One timing made of several of the same candidate, each with other inputs: the means of their
    times, the largest spread, and the fewest repeats."""
    if len(timings) == 1:
        return timings[0]
    return Timing(
        min_us=statistics.fmean([t.min_us for t in timings if t.min_us is not None]),
        median_us=statistics.fmean([t.median_us for t in timings if t.median_us is not None]),
        spread_us=max([t.spread_us for t in timings if t.spread_us is not None], default=None),
        repeats=min(t.repeats or 0 for t in timings),
    )


def is_right(
    result: torch.Tensor, reference: torch.Tensor, *, tf32: bool, dtype: torch.dtype
) -> bool:
    """Whether the relative error ‖result − reference‖ / ‖reference‖ is within the tolerance
    of the operands' dtype. NaN never is."""
    return bool(within(result, reference, max_error(reference, tf32=tf32, dtype=dtype)).item())


def max_error(reference: torch.Tensor, *, tf32: bool, dtype: torch.dtype) -> torch.Tensor:
    """The norm of the largest error that is tolerated, as a tensor on the device."""
    tolerance = TF32_TOLERANCE if tf32 else DType(str(dtype)).tolerance
    most: torch.Tensor = tolerance * torch.linalg.vector_norm(_real(reference), dtype=torch.float32)
    return most


def within(result: torch.Tensor, reference: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
    """Whether the error is at most `most` (see `max_error`), as a tensor on the device, without
    waiting for the device. Where `result` has one dimension more than `reference`, it is several
    results, and there is a value for each."""
    dims = tuple(range(-reference.ndim, 0))
    error = torch.linalg.vector_norm(_real(result - reference), dim=dims, dtype=torch.float32)
    right: torch.Tensor = error <= most
    return right


def spoil(out: torch.Tensor) -> None:
    """Fills an output with a value that no kernel computes (NaN, or the smallest whole number), so
    that a kernel that writes nothing is noticed."""
    nothing = float("nan") if out.is_floating_point() else torch.iinfo(out.dtype).min
    out.fill_(nothing)


def _real(x: torch.Tensor) -> torch.Tensor:
    """The tensor as floating point: torch has no norm of whole numbers."""
    return x if x.is_floating_point() else x.float()


def failure_of(error: BaseException) -> Failure:
    """The kind of failure that an exception from compiling or launching a kernel stands for."""
    if isinstance(error, DriverError):
        return error.failure
    text = f"{type(error).__name__}: {error}".lower()
    if isinstance(error, torch.OutOfMemoryError):
        return Failure.OUT_OF_MEMORY
    if "illegal memory" in text or "misaligned address" in text or "illegal instruction" in text:
        return Failure.ILLEGAL_ACCESS
    if "outofresources" in text or "out of resource" in text or "shared memory" in text:
        return Failure.OUT_OF_RESOURCES
    if "notritonconfigs" in text or "no valid triton configs" in text:
        return Failure.OUT_OF_RESOURCES
    if "cuda error" in text or "launch" in text:
        return Failure.LAUNCH_ERROR
    return Failure.COMPILE_ERROR
