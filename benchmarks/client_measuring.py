"""Measures one way of a library's program, in a separate process that does not import Diode."""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from client_programs import PROGRAMS, TALKS_TO_HOST, Step
from clients import TUNED, WARM
from processes import Row
from replays import ROUNDS, Replay, graph_of, in_turn

STEP_SECONDS = 1.5  # of timing


def measure(program: str, way: str, *, tiny: bool) -> Row:
    """The row: seconds of the first step, which compiles, and of the
    process until then; the peaks of GPU memory of the first and
    of another step, in bytes; microseconds of a step (by a CUDA graph, but for programs that
    talk to the host); whether the result is finite; Diode's statistics."""
    device = "cpu" if tiny else "cuda"
    torch.manual_seed(0)
    make = _warm if program == WARM else PROGRAMS[program]
    step = make(device, tiny, TUNED if way in ("diode", "search") else {})
    _synchronize(tiny)
    _peak(tiny)
    start = time.perf_counter()
    first = step()
    _synchronize(tiny)
    row: Row = {"cold_s": time.perf_counter() - start, "process_s": _process_seconds()}
    row["first_bytes"] = _peak(tiny)
    step()
    _synchronize(tiny)
    row["step_bytes"] = _peak(tiny)
    row |= _on_cpu(step) if tiny else _timed(step, graph=program not in TALKS_TO_HOST)
    row["error"] = ""
    row["finite"] = bool(first.isfinite().all())
    return row | _versions(tiny) | {"stats": _stats(way)}


def _timed(step: Step, *, graph: bool) -> Row:
    why = "" if graph else "it talks to the host"
    try:
        replay = Replay(step) if why else graph_of(step, [()])
    except Exception as error:  # noqa: BLE001  # what the library computes without a compile
        torch.cuda.synchronize()
        replay, why = Replay(step), f"{type(error).__name__}: {error}"[:300]
    in_turn({"": replay}, 3, 0.3)  # until the clock is that of a busy GPU
    us = in_turn({"": replay}, 3 * ROUNDS, STEP_SECONDS)[""]
    return {
        "timing": f"events, since {why}" if why else "graph",
        "step_us": statistics.median(us),
        "spread": max(us) / min(us) - 1,
    }


def _on_cpu(step: Step) -> Row:
    start = time.perf_counter()
    step()
    return {"timing": "a trial", "step_us": (time.perf_counter() - start) * 1e6, "spread": 0.0}


def _warm(device: str, tiny: bool, options: dict[str, Any]) -> Step:
    a = torch.randn(64, 64, device=device)
    return torch.compile(lambda: torch.relu(a @ a).softmax(0), options=options)


def _synchronize(tiny: bool) -> None:
    if not tiny:
        torch.cuda.synchronize()


def _process_seconds() -> float:
    """Seconds since this process began, imports included."""
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")


def _peak(tiny: bool) -> int:
    """Bytes of the peak since the last call."""
    if tiny:
        return 0
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return peak


def _versions(tiny: bool) -> Row:
    from importlib.metadata import version

    names = ("torch", "triton", "transformers", "diffusers", "torchao", "peft")
    found: Row = {"device": "a trial" if tiny else torch.cuda.get_device_name()}
    for name in names:
        try:
            found[name] = version(name)
        except ImportError:
            continue
    return found


def _stats(way: str) -> dict[str, Any]:
    """Diode's counts, without the zeros. A process without Diode must not have loaded it, and the
    other must have."""
    diode = sys.modules.get("diode_engine")
    if (diode is not None) != (way == "diode"):
        sys.exit(f"diode_engine is {'not ' * (diode is None)}loaded in the process of {way}")
    return {} if diode is None else {k: v for k, v in diode.get_stats().items() if v}
