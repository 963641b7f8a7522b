"""What the benchmarks of compiled programs on a GPU share.

A program is compiled with cold caches in this process. Its run is timed by replaying a CUDA graph
(`replays.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from processes import Rows
from replays import graph_of, in_turn_us

import diode_engine

Program = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]

# The GEMM's part of mode="max-autotune": the mode also tunes pointwise kernels and reductions,
# which takes the same seconds whoever chooses the GEMMs.
MAX_AUTOTUNE = {"max_autotune_gemm": True}


class Late(BaseException):
    """The time limit has passed. It is no Exception, because autotuning ignores those."""


@dataclass(frozen=True)
class Measured:
    """Seconds of the first call, median microseconds of a run, the peak of GPU memory that the
    compile needed in bytes, beyond what was in use before, and the number of products for which
    Inductor benchmarked choices."""

    compile_s: float
    run_us: float
    peak_bytes: int
    benchmarked: int


@dataclass(frozen=True)
class Way:
    """A way to compile: Inductor's options, and what is installed during the compile."""

    options: dict[str, Any]
    installed: Callable[[], AbstractContextManager[Any]]


@contextlib.contextmanager
def stock() -> Iterator[None]:
    diode_engine.uninstall_diode_choices()
    yield


def diode(**options: Any) -> Callable[[], AbstractContextManager[Any]]:
    @contextlib.contextmanager
    def installed() -> Iterator[None]:
        with diode_engine.diode_choices(**options) as active:
            if not active:
                sys.exit(f"Diode is not active: {diode_engine.get_stats()['reason']}")
            yield

    return installed


def need_gpu() -> None:
    if not torch.cuda.is_available():
        print("There is no NVIDIA GPU here, which this benchmark needs.", file=sys.stderr)
        sys.exit(0)


def measure(
    program: Program, way: Way, *, limit_s: float | None = None
) -> tuple[Measured, dict[str, Any]] | None:
    """The measurement, and Diode's statistics; None where compiling took over `limit_s`."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    counters.clear()
    function, args = program()
    with way.installed(), fresh_cache(), torch.no_grad():
        compiled = torch.compile(function, options=way.options or None)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        try:
            with alarm(limit_s):
                compiled(*args)
        except Late:
            return None
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() - before
        benchmarked = counters["inductor"]["select_algorithm_autotune"]
        us = in_turn_us({"": graph_of(compiled, [args])})[""][0]
        return Measured(seconds, us, peak, benchmarked), diode_engine.get_stats()


def warm_up(ways: Iterable[Way]) -> None:
    """A small compile in each way that is not counted: it pays for imports and the start of the
    compile workers."""

    def small() -> tuple[Any, tuple[torch.Tensor, ...]]:
        a, b = (torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in "ab")
        return (lambda a, b: torch.relu(torch.mm(a, b))), (a, b)

    for way in ways:
        measure(small, way)


@contextlib.contextmanager
def always(summary: Callable[[], None]) -> Iterator[None]:
    """Prints the summary at the end, also where the process is told to end earlier (SIGTERM)."""

    def stop(*_: Any) -> None:
        raise SystemExit(1)  # not an Exception, since autotuning passes over those

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        summary()


def leave() -> None:
    """Ends the process now, without waiting for compiles that were interrupted."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextlib.contextmanager
def alarm(seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return

    def late(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure_ways(
    name: str, program: Program, ways: dict[str, Way], rows: Rows,
    limits: dict[str, float] | None = None,
) -> dict[str, Measured]:  # fmt: skip
    """Measures a program each way, prints a line, and adds a row to the rows."""
    done: dict[str, Measured] = {}
    row: dict[str, Any] = {"program": name}
    for way_name, way in ways.items():
        limit = (limits or {}).get(way_name)
        try:
            found = measure(program, way, limit_s=limit)
        except Exception as error:  # noqa: BLE001  # the other ways are worth having
            row[way_name] = {"error": repr(error)[:500]}
            print(f"{name:28s} {way_name:14s} failed: {error!r}"[:200], flush=True)
            continue
        if found is None:
            row[way_name] = {"compile_s_over": limit}
            print(f"{name:28s} {way_name:14s} compile over {limit:.0f} s", flush=True)
            continue
        measured, stats = found
        done[way_name] = measured
        row[way_name] = {**asdict(measured), "stats": stats}
        print(
            f"{name:28s} {way_name:14s} compile {measured.compile_s:7.2f} s"
            f"  run {measured.run_us:9.1f} us  peak {measured.peak_bytes / 2**20:8.0f} MiB",
            flush=True,
        )
    rows.add(row)
    return done


def geomean(ratios: list[float]) -> float:
    return statistics.geometric_mean(ratios) if ratios else float("nan")
