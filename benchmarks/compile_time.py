"""What choosing costs at compile time on an NVIDIA GPU: Diode against stock Inductor.

    python benchmarks/compile_time.py [--json FILE] [--seconds N] [--exhaustive-seconds N]

Each row compiles one program with cold caches, in one process, after one compile a way that is
not counted (imports, the compile workers' start). `default` is plain torch.compile (ATen),
`fixed` takes the kernels that Diode took, which `recording` wrote down, without asking the model
(the floor: what is left is compiling them), `DEFAULT` and `EXHAUSTIVE` are max-autotune's
searches, `fast` is the option fast_autotune. Ratios are printed at the end; EXHAUSTIVE is stopped
at its time limit, and its ratio is then a lower bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import torch
from measuring import MAX_AUTOTUNE, Measured, Way, diode, geomean, stock

from diode_engine.hardware import detect
from diode_engine.registry import load_predictor


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


class Recorded:
    """The model's answers, given again without asking it: what is left when the same kernels are
    taken without a model."""

    identity = "recorded"

    def __init__(self) -> None:
        self._predictor = load_predictor(detect())
        self._us: dict[tuple[Any, int], Any] = {}

    def predict_us(self, problem: Any, candidates: Any) -> Any:
        asked = problem, len(candidates)
        if asked not in self._us:
            self._us[asked] = self._predictor.predict_us(problem, candidates)
        return self._us[asked]


def ways() -> dict[str, Way]:
    fixed = diode(predictor=Recorded(), top_k_configs=1)
    return {
        "default": Way({}, stock),
        "Diode": Way(MAX_AUTOTUNE, diode(top_k_configs=1)),
        "fast": Way({"fast_autotune": True}, diode(top_k_configs=1)),
        "recording": Way(MAX_AUTOTUNE, fixed),
        "fixed": Way(MAX_AUTOTUNE, fixed),
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
    all_ways = ways()
    for name, way in all_ways.items():  # not counted
        if name != "EXHAUSTIVE":
            measuring.measure(gemm(512, torch.bfloat16), way)
    limits = {"EXHAUSTIVE": args.exhaustive_seconds}
    done: list[dict[str, Measured]] = []
    for name, program in PROGRAMS.items():
        if results.late:
            break
        quick = {n: way for n, way in all_ways.items() if n != "EXHAUSTIVE"}
        done.append(measuring.measure_ways(name, program, quick, results))
    # last, for the compilers go on with what is left of it when its time is over
    for at, (name, program) in enumerate(PROGRAMS.items()):
        if results.late or at == len(done):
            break
        way = {"EXHAUSTIVE": all_ways["EXHAUSTIVE"]}
        done[at] |= measuring.measure_ways(name, program, way, results, limits=limits)
    ratios: list[tuple[str, str, str, Callable[[Measured], float]]] = [
        ("Diode / fixed, compile (at most 1.15)", "Diode", "fixed", lambda m: m.compile_s),
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
