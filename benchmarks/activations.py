"""Two layers with an activation between them, with Diode beside plain torch.compile, on a GPU.

    python benchmarks/activations.py [--json FILE]

Each program is compiled by plain torch.compile twice and with Diode, and timed as CUDA graphs in
turn. It prints the ratio to the slower plain, whether the activation was moved into the library's
product, and the errors of the results beside float64.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from processes import Row, Rows
from replays import Replay, graph_of, in_turn
from torch.nn import functional

import diode_engine

SIZES = ((8192, 768, 3072), (16384, 768, 3072), (4096, 1536, 6144), (4096, 3072, 12288),
         (2048, 2048, 8192), (64, 4096, 16384), (256, 1024, 4096), (32, 768, 3072),
         (50176, 96, 384), (1024, 1152, 4304))  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {"plain": {}, "again": {}, "diode": {"max_autotune_gemm": True}}
CHECKED = 64  # rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    rows = Rows(parser.parse_args().json)
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here, which this benchmark needs.")
    for m, d, h in SIZES:
        for gelu in (False, True):
            row = measure(m, d, h, gelu=gelu)
            rows.add(row)
            us = row["us"]
            print(f"{m:6} {d:5} {h:6} {row['act']}  {us['diode']:8.1f} µs"
                  f"  {us['diode'] / max(us['plain'], us['again']):.3f} of plain"
                  f"  moved {row['moved']}  errors {row['err']}", flush=True)  # fmt: skip


@torch.no_grad()
def measure(m: int, d: int, h: int, *, gelu: bool) -> Row:
    """The row of a perceptron with m rows, of width d and inner width h."""

    def perceptron(x: Any, w: Any, b: Any, v: Any) -> torch.Tensor:
        inner = functional.linear(x, w, b)
        inner = functional.gelu(inner, approximate="tanh") if gelu else inner.relu()
        return functional.linear(inner, v)

    data = [
        torch.randn(size, device="cuda", dtype=torch.bfloat16) / size[-1] ** 0.5
        for size in ((m, d), (h, d), (h,), (d, h))
    ]
    exact = perceptron(*(x.double() for x in (data[0][:CHECKED], *data[1:])))
    graphs: dict[str, Replay] = {}
    errors: dict[str, float] = {}
    for way, options in WAYS.items():
        torch.compiler.reset()
        compiled = torch.compile(perceptron, options=options, dynamic=False)
        difference = compiled(*data)[:CHECKED].double() - exact
        errors[way] = float(f"{(difference.abs().max() / exact.abs().max()).item():.2g}")
        graphs[way] = graph_of(compiled, [data])
    moved = diode_engine.get_stats()["activations_moved"]
    diode_engine.install_diode_choices(top_k_configs=1)  # the counts begin again
    us = {way: statistics.median(times) for way, times in in_turn(graphs, 10, 0.05).items()}
    act = "gelu" if gelu else "relu"
    return {"m": m, "d": d, "h": h, "act": act, "us": us, "moved": moved, "err": errors}


if __name__ == "__main__":
    main()
