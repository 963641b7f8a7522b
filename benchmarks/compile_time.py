"""What choosing costs at compile time on an NVIDIA GPU: Diode against stock Inductor.

    python benchmarks/compile_time.py [--json FILE] [--seconds N] [--exhaustive-seconds N]

Each row compiles one program with cold caches, in one process, after one compile a way that is
not counted (imports, the compile workers' start). `default` is plain torch.compile (ATen),
`fixed` has stock Inductor take the model's kernel out of a lookup table (the floor: what is left
is compiling it), `DEFAULT` and `EXHAUSTIVE` are max-autotune's searches, `fast` is the option
fast_autotune. Ratios are printed at the end; EXHAUSTIVE is stopped at its time limit, and its
ratio is then a lower bound.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
import torch
from measuring import MAX_AUTOTUNE, Measured, Way, diode, geomean, stock
from torch._inductor.lookup_table.choices import LookupTableChoices
from torch._inductor.virtualized import V

import diode_engine
from diode_engine.hardware import detect
from diode_engine.inductor.lookup_table import lookup_entries
from diode_engine.problem import Problem
from diode_engine.registry import load_predictor

WIDTHS = [512 + 64 * (5 * i % 17) for i in range(17)]


def gemm(n: int, dtype: torch.dtype) -> measuring.Program:
    def make() -> tuple[Any, tuple[torch.Tensor, ...]]:
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in "ab")
        return torch.mm, (a, b)

    return make


def layers() -> tuple[Any, tuple[torch.Tensor, ...]]:
    """16 linear layers of different widths with GELU, M = 256."""
    torch.manual_seed(0)
    net = torch.nn.Sequential()
    for n, k in zip(WIDTHS[1:], WIDTHS, strict=False):
        net.append(torch.nn.Linear(k, n))
        net.append(torch.nn.GELU())
    net = net.to("cuda", torch.bfloat16).eval().requires_grad_(False)
    return net, (torch.randn(256, WIDTHS[0], device="cuda", dtype=torch.bfloat16),)


def square(n: int, dtype: str) -> Problem:
    return Problem.make("mm", n, n, n, dtype)


PROGRAMS: dict[str, tuple[measuring.Program, list[Problem]]] = {
    "mm 4096³ bf16": (gemm(4096, torch.bfloat16), [square(4096, "bfloat16")]),
    "mm 1024³ fp16": (gemm(1024, torch.float16), [square(1024, "float16")]),
    "16 linear+GELU, M=256": (
        layers,
        [
            Problem.make(op, 256, n, k, "bfloat16", b_layout="col")
            for op in ("mm", "addmm")  # Inductor takes the bias to the GELU where that fuses
            for n, k in zip(WIDTHS[1:], WIDTHS, strict=False)
        ],
    ),
}


@contextlib.contextmanager
def lookup() -> Iterator[None]:
    diode_engine.uninstall_diode_choices()
    with V.set_choices_handler(LookupTableChoices()):
        yield


def ways(problems: list[Problem]) -> dict[str, Way]:
    """The ways to compile a program that has these GEMMs."""
    predictor = load_predictor(detect())
    assert predictor is not None
    table: dict[str, Any] = {}
    for problem in problems:
        table |= lookup_entries(problem, predictor)
    exhaustive = {"max_autotune_gemm_search_space": "EXHAUSTIVE"}
    return {
        "default": Way({}, stock),
        "fixed": Way({**MAX_AUTOTUNE, "lookup_table.table": table}, lookup),
        "Diode": Way(MAX_AUTOTUNE, diode(top_k_configs=1)),
        "fast": Way({"fast_autotune": True}, diode(top_k_configs=1)),
        "DEFAULT": Way(MAX_AUTOTUNE, stock),
        "EXHAUSTIVE": Way({**MAX_AUTOTUNE, **exhaustive}, stock),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--exhaustive-seconds", type=float, default=120)
    args = parser.parse_args()
    measuring.need_gpu()
    results = measuring.Results(args.json, args.seconds)
    warm = square(512, "bfloat16")
    for name, way in ways([warm]).items():  # not counted
        if name != "EXHAUSTIVE":
            measuring.measure(gemm(512, torch.bfloat16), way)
    done: list[dict[str, Measured]] = []
    last: list[Way] = []
    for name, (program, problems) in PROGRAMS.items():
        if results.late:
            break
        quick = ways(problems)
        last.append(quick.pop("EXHAUSTIVE"))
        done.append(measuring.measure_ways(name, program, quick, results))
    # at the end, for the compilers go on with what is left of it when its time is over
    limits = {"EXHAUSTIVE": args.exhaustive_seconds}
    for (name, (program, _)), found, way in zip(PROGRAMS.items(), done, last, strict=False):
        if not results.late:
            exhaustive = {"EXHAUSTIVE": way}
            found |= measuring.measure_ways(name, program, exhaustive, results, limits=limits)
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
