"""What choosing costs at compile time on an NVIDIA GPU: Diode against stock Inductor.

    python benchmarks/compile_time.py [--json FILE]

Each row compiles one program with cold caches, in one process, after one compile that is not
counted (imports, the compile workers' start). `default` is plain torch.compile (ATen),
`one fixed` takes the first Triton candidate without benchmarking (the floor for a choice that
is a Triton kernel), `DEFAULT` is max-autotune's default search; ratios are DEFAULT / Diode.
Run times are the median of a CUDA graph's replays, the caches warm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import diode_engine

MODE = "max-autotune-no-cudagraphs"


def gemm(n: int, dtype: torch.dtype) -> Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]:
    def make() -> tuple[Any, tuple[torch.Tensor, ...]]:
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in "ab")
        return torch.mm, (a, b)

    return make


def layers() -> tuple[Any, tuple[torch.Tensor, ...]]:
    """16 linear layers of different widths with GELU, M = 256."""
    torch.manual_seed(0)
    widths = [512 + 64 * (5 * i % 17) for i in range(17)]
    net = torch.nn.Sequential()
    for n, k in zip(widths[1:], widths, strict=False):
        net.append(torch.nn.Linear(k, n))
        net.append(torch.nn.GELU())
    net = net.to("cuda", torch.bfloat16).eval().requires_grad_(False)
    return net, (torch.randn(256, widths[0], device="cuda", dtype=torch.bfloat16),)


PROGRAMS = {
    "mm 4096³ bf16": gemm(4096, torch.bfloat16),
    "mm 1024³ fp16": gemm(1024, torch.float16),
    "16 linear+GELU, M=256": layers,
}


class First:
    """A predictor that knows nothing and takes the first Triton candidate."""

    identity = "first"

    def predict_us(self, problem: Any, candidates: Any) -> Any:
        import numpy as np

        times = np.full(len(candidates), 1e9)
        triton = [
            i for i, c in enumerate(candidates) if c.template in ("triton::mm", "triton::bmm")
        ]
        times[triton[len(triton) // 2 :][:1]] = 1.0
        return times


def measure(make: Callable[[], Any], mode: str | None) -> tuple[float, float]:
    """(seconds of the first call, microseconds of a run) with cold caches."""
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    function, args = make()
    with fresh_cache(), torch.no_grad():
        compiled = torch.compile(function, mode=mode)
        torch.cuda.synchronize()
        start = time.perf_counter()
        compiled(*args)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return seconds, run_us(lambda: compiled(*args))


def run_us(run: Callable[[], Any]) -> float:
    for _ in range(3):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(30):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    out = parser.parse_args().json
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here; this benchmark needs one.")
    ways: dict[str, tuple[str | None, Callable[[], Any]]] = {
        "default": (None, diode_engine.uninstall_diode_choices),
        "one fixed": (
            MODE,
            lambda: diode_engine.install_diode_choices(predictor=First(), top_k_configs=1),
        ),
        "Diode": (MODE, lambda: diode_engine.install_diode_choices(top_k_configs=1)),
        "DEFAULT": (MODE, diode_engine.uninstall_diode_choices),
    }
    rows = []
    for mode, install in ways.values():  # not counted
        install()
        measure(gemm(512, torch.bfloat16), mode)
    for program, make in PROGRAMS.items():
        row: dict[str, Any] = {"program": program}
        for way, (mode, install) in ways.items():
            install()
            row[way] = measure(make, mode)
            if way == "Diode":
                row["stats"] = diode_engine.get_stats()
        rows.append(row)
        print(
            f"{program:24s}"
            + "".join(f" {way} {row[way][0]:6.2f} s {row[way][1]:8.1f} us |" for way in ways)
            + f" compile {row['DEFAULT'][0] / row['Diode'][0]:.1f} times faster,"
            f" run {row['DEFAULT'][1] / row['Diode'][1]:.3f} times",
            flush=True,
        )
    if out is not None:
        out.write_text(json.dumps({"torch": str(torch.__version__), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
