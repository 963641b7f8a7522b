"""What the benchmarks of compiled programs on a GPU share.

A program is compiled with cold caches in this process. Its run is timed by replaying a CUDA graph,
or launch by launch where it cannot be captured; several programs are replayed in turn.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from processes import Rows

import diode_engine

Program = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]

ROUNDS = 9
WAY_SECONDS = 0.1  # of timing
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


@dataclass(frozen=True)
class Replay:
    """A program that is timed: `run` makes `calls` calls of it."""

    run: Callable[[], Any]
    calls: int = 1


def graph_of(call: Callable[..., Any], sets: Sequence[tuple[Any, ...]]) -> Replay:
    """A CUDA graph of one call for each of the sets of operands, warmed up on a side stream. Where
    the sets together are larger than the cache, each call finds its operands outside of it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for operands in (*sets[:2], *sets[:2]):
            call(*operands)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for operands in sets:
            call(*operands)
    return Replay(graph.replay, len(sets))


def in_turn(ways: Mapping[str, Replay], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of a call in each way, round by round, for `seconds` a way. All ways take turns
    in each round, so that changes of the clock affect them alike, and no time of the host counts
    where a way is a graph."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(way: Replay, repeats: int) -> float:
        start.record()
        for _ in range(repeats):
            way.run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / repeats / way.calls

    for way in ways.values():
        once(way, 2)
    repeats = {
        name: max(1, min(1000, int(seconds * 1e6 / rounds / (once(way, 3) * way.calls))))
        for name, way in ways.items()
    }
    us: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            us[name].append(once(way, repeats[name]))
    return us


def in_turn_us(ways: Mapping[str, Replay]) -> dict[str, tuple[float, float]]:
    """By name, the microseconds of a call (the median round), and how far the rounds differ (the
    longest divided by the shortest, less 1)."""
    times = in_turn(ways, ROUNDS, WAY_SECONDS)
    return {name: (statistics.median(us), max(us) / min(us) - 1) for name, us in times.items()}


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
