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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from replays import graph_of, in_turn_us

import diode_engine

# The GEMM's part of mode="max-autotune": the mode also tunes pointwise kernels and reductions,
# which takes the same seconds whoever chooses the GEMMs.
MAX_AUTOTUNE = {"max_autotune_gemm": True}


class Late(BaseException):
    """The time limit has passed. It is no Exception, because autotuning ignores those."""


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


def warm_up(ways: Iterable[Way]) -> None:
    """A small compile in each way that is not counted: it pays for imports and the start of the
    compile workers."""
    from torch._inductor.utils import fresh_cache

    def small(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.mm(a, b))

    operands = tuple(torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in "ab")
    for way in ways:
        torch._dynamo.reset()
        with way.installed(), fresh_cache(), torch.no_grad():
            compiled = torch.compile(small, options=way.options or None)
            in_turn_us({"": graph_of(compiled, [operands])})


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


def geomean(ratios: list[float]) -> float:
    return statistics.geometric_mean(ratios) if ratios else float("nan")
