"""What choosing costs at compile time on an NVIDIA GPU: Diode against stock Inductor.

    python benchmarks/compile_time.py [--json FILE] [--seconds N] [--exhaustive-seconds N]

Each row compiles one program with cold caches, in one process, after one compile a way that is
not counted (imports, the compile workers' start). `default` is plain torch.compile (ATen),
`one fixed` takes the first Triton candidate without benchmarking (the floor for a choice that
is a Triton kernel), `DEFAULT` and `EXHAUSTIVE` are max-autotune's searches, `fast` is the option
fast_autotune. Ratios are printed at the end; EXHAUSTIVE is stopped at its time limit, and its
ratio is then a lower bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
from measuring import MAX_AUTOTUNE, Measured, Way, diode, geomean, stock


def gemm(n: int, dtype: torch.dtype) -> measuring.Program:
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


PROGRAMS: dict[str, measuring.Program] = {
    "mm 4096³ bf16": gemm(4096, torch.bfloat16),
    "mm 1024³ fp16": gemm(1024, torch.float16),
    "16 linear+GELU, M=256": layers,
}


class First:
    """A predictor that knows nothing and takes the first Triton candidate."""

    identity = "first"

    def predict_us(self, problem: Any, candidates: Any) -> Any:
        times = np.full(len(candidates), 1e9)
        triton = [
            i for i, c in enumerate(candidates) if c.template in ("triton::mm", "triton::bmm")
        ]
        times[triton[len(triton) // 2 :][:1]] = 1.0
        return times


WAYS = {
    "default": Way({}, stock),
    "one fixed": Way(MAX_AUTOTUNE, diode(predictor=First(), top_k_configs=1)),
    "Diode": Way(MAX_AUTOTUNE, diode(top_k_configs=1)),
    "fast": Way({"fast_autotune": True}, diode(top_k_configs=1)),
    "DEFAULT": Way(MAX_AUTOTUNE, stock),
    "EXHAUSTIVE": Way({**MAX_AUTOTUNE, "max_autotune_gemm_search_space": "EXHAUSTIVE"}, stock),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--exhaustive-seconds", type=float, default=120)
    args = parser.parse_args()
    measuring.need_gpu()
    results = measuring.Results(args.json, args.seconds)
    for name, way in WAYS.items():  # not counted
        if name != "EXHAUSTIVE":
            measuring.measure(gemm(512, torch.bfloat16), way)
    limits = {"EXHAUSTIVE": args.exhaustive_seconds}
    done: list[dict[str, Measured]] = []
    for name, program in PROGRAMS.items():
        if results.late:
            break
        quick = {n: way for n, way in WAYS.items() if n != "EXHAUSTIVE"}
        done.append(measuring.measure_ways(name, program, quick, results))
    # last, for the compilers go on with what is left of it when its time is over
    for at, (name, program) in enumerate(PROGRAMS.items()):
        if results.late or at == len(done):
            break
        way = {"EXHAUSTIVE": WAYS["EXHAUSTIVE"]}
        done[at] |= measuring.measure_ways(name, program, way, results, limits=limits)
    ratios: list[tuple[str, str, str, Callable[[Measured], float]]] = [
        ("Diode / one fixed, compile (at most 1.15)", "Diode", "one fixed", lambda m: m.compile_s),
        ("DEFAULT / Diode, compile (at least 5)", "DEFAULT", "Diode", lambda m: m.compile_s),
        ("EXHAUSTIVE / Diode, compile", "EXHAUSTIVE", "Diode", lambda m: m.compile_s),
        ("fast / default, compile", "fast", "default", lambda m: m.compile_s),
        ("Diode / DEFAULT, run (at most 1)", "Diode", "DEFAULT", lambda m: m.run_us),
        ("Diode / DEFAULT, peak memory (at most 1)", "Diode", "DEFAULT", lambda m: m.peak_bytes),
    ]
    for title, above, below, of in ratios:
        both = [(of(d[above]), of(d[below])) for d in done if above in d and below in d]
        print(f"{title:44s} {geomean([a / b for a, b in both if a > 0 and b > 0]):8.3f}")
    ours_of = dict(zip(PROGRAMS, done, strict=False))
    for row in results.rows:
        over = row.get("EXHAUSTIVE", {}).get("compile_s_over")
        if over and (measured := ours_of[row["program"]].get("Diode")):
            ours = measured.compile_s
            print(f"EXHAUSTIVE / Diode, {row['program']}: more than {over / ours:.0f}")


if __name__ == "__main__":
    main()
