"""What the benchmarks of compiled programs on a GPU share.

A program is compiled with cold caches in this process. Its run is timed by replaying a CUDA graph,
or launch by launch where it cannot be captured. Results are written to a file after every row, so
that an interrupted run loses only the row that it was measuring.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import diode_engine
from diode_engine.collect.processes.compiler_pool import Order

Program = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]

GRAPH_US = 5000.0
# The GEMM's part of mode="max-autotune": the mode also tunes pointwise kernels and reductions,
# which takes the same seconds whoever chooses the GEMMs.
MAX_AUTOTUNE = {"max_autotune_gemm": True}


class Late(BaseException):
    """The time limit has passed. It is no Exception, because autotuning ignores those."""


@dataclass(frozen=True)
class Measured:
    """Seconds of the first call (both passes in training), median microseconds of a run, the peak
    of GPU memory that the compile needed in bytes, beyond what was in use before, and the number of
    GEMMs for which Inductor benchmarked choices."""

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
    program: Program, way: Way, *, train: bool = False, limit_s: float | None = None
) -> tuple[Measured, dict[str, Any]] | None:
    """The measurement, and Diode's statistics; None where compiling took over `limit_s`."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    counters.clear()
    function, args = program()
    with way.installed(), fresh_cache(), contextlib.nullcontext() if train else torch.no_grad():
        compiled = torch.compile(function, options=way.options or None)

        def run() -> None:
            out = compiled(*args)
            if train:
                out.backward()

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        try:
            with alarm(limit_s):
                run()
        except Late:
            return None
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() - before
        benchmarked = counters["inductor"]["select_algorithm_autotune"]
        us = run_us(run, graph=not train)
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

    def told(*_: Any) -> None:
        raise SystemExit(1)  # not an Exception, since autotuning passes over those

    signal.signal(signal.SIGTERM, told)
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


def run_us(run: Callable[[], Any], *, graph: bool = True, repeats: int = 30) -> float:
    """Median microseconds of a run in a loop. A captured graph repeats the run until it takes
    GRAPH_US, because an event is inexact by some tenths of a microsecond, and the first kernel of a
    graph waits for the host. The data that a run reads may be in the cache."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    if not graph:
        return _median_us(run, repeats)
    alone = _captured(run, 1)
    count = math.ceil(GRAPH_US / max(1.0, _median_us(alone, 3)))
    return _median_us(_captured(run, count) if count > 1 else alone, repeats) / count


def _captured(run: Callable[[], Any], count: int) -> Callable[[], None]:
    """A function that replays so many runs."""
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(count):
            run()
    return captured.replay


def _median_us(once: Callable[[], Any], repeats: int) -> float:
    """The median of launches that are queued without waiting. So the host is ahead of the device,
    and the time that it needs for a launch is not measured."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in "be"] for _ in range(repeats)]
    for begin, end in events:
        begin.record()
        once()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) * 1e3 for begin, end in events)


def graph_of(call: Callable[..., Any], sets: Sequence[tuple[Any, ...]]) -> torch.cuda.CUDAGraph:
    """A graph of one call for each of the sets of operands."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm up
        for operands in sets[:3]:
            call(*operands)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for operands in sets:
            call(*operands)
    return graph


def in_turn_us(
    graphs: Mapping[str, torch.cuda.CUDAGraph],
    calls: int,
    *,
    rounds: int = 9,
    round_us: float = 8000,
) -> dict[str, tuple[float, float]]:
    """By name, the microseconds of one of the `calls` of each graph, and how far its rounds differ
    (the longest divided by the shortest, less 1)."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(graph: torch.cuda.CUDAGraph, repeats: int) -> float:
        start.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / repeats / calls

    least = min(once(graph, 1) for graph in graphs.values())
    repeats = max(1, min(200, int(round_us / (least * calls))))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(once(graph, repeats))
    return {name: (statistics.median(t), max(t) / min(t) - 1) for name, t in times.items()}


class Results:
    """Rows, each printed and written to a JSON file (if one is named) at once; and the deadline."""

    def __init__(self, path: Path | None, limit_s: float) -> None:
        self._path = path
        self._end = time.monotonic() + limit_s
        self.rows: list[dict[str, Any]] = []

    @property
    def late(self) -> bool:
        """Whether the time limit has passed; said once it has."""
        if time.monotonic() < self._end:
            return False
        print("The time limit is reached; the rest is left out.", file=sys.stderr)
        return True

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if self._path is not None:
            device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
            document = {"torch": str(torch.__version__), "device": device, "rows": self.rows}
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(document, indent=1))
            part.replace(self._path)


def measure_ways(
    name: str, program: Program, ways: dict[str, Way], results: Results, *, train: bool = False,
    limits: dict[str, float] | None = None,
) -> dict[str, Measured]:  # fmt: skip
    """Measures a program each way, prints a line, and adds a row to the results."""
    done: dict[str, Measured] = {}
    row: dict[str, Any] = {"program": name}
    for way_name, way in ways.items():
        limit = (limits or {}).get(way_name)
        try:
            found = measure(program, way, train=train, limit_s=limit)
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
    results.add(row)
    return done


def done_in(order: Order, seconds: float) -> bool:
    """Waits until the order is compiled, at most so many seconds; returns whether it is. Raises
    CollectionError where the compilers cannot be started."""
    if not select.select([order], [], [], max(0.0, seconds))[0]:
        return False
    order.result()
    return True


def geomean(ratios: list[float]) -> float:
    return statistics.geometric_mean(ratios) if ratios else float("nan")
