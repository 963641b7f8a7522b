"""What choosing costs at compile time on an NVIDIA GPU: Diode against stock Inductor.

    python benchmarks/compile_time.py [--json FILE] [--seconds N] [--default-seconds N]
        [--exhaustive-seconds N]

For each row one program is compiled with cold caches, in one process, after one compile of each way
that is not counted (imports, the start of the compile workers). `default` is plain torch.compile
(ATen). `fixed` is stock Inductor with Diode's kernels in a lookup table: the lower limit, since
nothing is chosen. `DEFAULT` and `EXHAUSTIVE` are max-autotune's searches of GEMM kernels. `fast` is
the option fast_autotune. All but the searches run in three rounds. Ratios are printed at the end.
Searches are stopped at their time limits; then the ratio is a lower bound.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
from measuring import MAX_AUTOTUNE, Measured, Way, diode, geomean, stock
from processes import Rows
from torch._inductor.lookup_table.choices import LookupTableChoices
from torch._inductor.virtualized import V

import diode_engine
from diode_engine.choosing.prediction import Microseconds
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing.lookup_table import lookup_entries

WIDTHS = [512 + 64 * (5 * i % 17) for i in range(17)]

QUICK = ("default", "Diode", "fixed", "fast")
ROUNDS = 3  # of the quick ways, one after the other; the median compile counts


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


PROGRAMS: dict[str, measuring.Program] = {
    "mm 4096³ bf16": gemm(4096, torch.bfloat16),
    "mm 1024³ fp16": gemm(1024, torch.float16),
    "16 linear+GELU, M=256": layers,
}


class Chosen:
    """A predictor for which the chosen kernel is the fastest."""

    identity = "chosen"

    def __init__(self, chosen: Candidate) -> None:
        self._chosen = chosen

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Microseconds:
        return np.array([1.0 if c == self._chosen else np.nan for c in candidates])


@contextlib.contextmanager
def noted(table: dict[str, Any]) -> Iterator[None]:
    """Diode's choice, which also puts the chosen kernels into the lookup table."""
    with diode(top_k_configs=1)(), diode_engine.profile_predictions() as profile:
        yield
    for choice in profile.selections:
        table |= lookup_entries(choice.problem, Chosen(choice.candidates[0]))


@contextlib.contextmanager
def lookup() -> Iterator[None]:
    diode_engine.uninstall_diode_choices()
    with V.set_choices_handler(LookupTableChoices()):
        yield


def ways() -> dict[str, Way]:
    """The ways to compile a program. `Diode` must be measured before `fixed`."""
    table: dict[str, Any] = {}
    exhaustive = {"max_autotune_gemm_search_space": "EXHAUSTIVE"}
    return {
        "default": Way({}, stock),
        "Diode": Way(MAX_AUTOTUNE, lambda: noted(table)),
        "fixed": Way({**MAX_AUTOTUNE, "lookup_table.table": table}, lookup),
        "fast": Way({"fast_autotune": True}, diode(top_k_configs=1)),
        "DEFAULT": Way(MAX_AUTOTUNE, stock),
        "EXHAUSTIVE": Way({**MAX_AUTOTUNE, **exhaustive}, stock),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--default-seconds", type=float, default=300)
    parser.add_argument("--exhaustive-seconds", type=float, default=120)
    args = parser.parse_args()
    measuring.need_gpu()
    rows = Rows(args.json, args.seconds)
    warm = ways()
    measuring.warm_up(way for name, way in warm.items() if name != "EXHAUSTIVE")
    of_program = {name: ways() for name in PROGRAMS}
    done: dict[str, dict[str, Measured]] = {name: {} for name in PROGRAMS}
    limits = {"DEFAULT": args.default_seconds, "EXHAUSTIVE": args.exhaustive_seconds}
    # The searches come last: when its time is over the compilers go on with what is left of one.
    with measuring.always(lambda: summary(done, rows)):
        for these, rounds in ((QUICK, ROUNDS), (("DEFAULT",), 1), (("EXHAUSTIVE",), 1)):
            for name, program in PROGRAMS.items():
                some = {way: of_program[name][way] for way in these}
                found = [
                    measuring.measure_ways(name, program, some, rows, limits)
                    for _ in range(rounds)
                    if not rows.late
                ]
                done[name] |= middle(found)
    measuring.leave()


def middle(found: Sequence[dict[str, Measured]]) -> dict[str, Measured]:
    """For each way the measurement with the median compile time."""
    ways = dict.fromkeys(way for row in found for way in row)
    ordered = {
        way: sorted((row[way] for row in found if way in row), key=lambda m: m.compile_s)
        for way in ways
    }
    return {way: rows[len(rows) // 2] for way, rows in ordered.items()}


def summary(done: dict[str, dict[str, Measured]], rows: Rows) -> None:
    ratios: list[tuple[str, str, str, Callable[[Measured], float]]] = [
        ("Diode / fixed, compile (at most 1.15)", "Diode", "fixed", lambda m: m.compile_s),
        ("DEFAULT / Diode, compile (at least 5)", "DEFAULT", "Diode", lambda m: m.compile_s),
        ("EXHAUSTIVE / Diode, compile (at least 100)", "EXHAUSTIVE", "Diode",
         lambda m: m.compile_s),
        ("fast / default, compile", "fast", "default", lambda m: m.compile_s),
        ("Diode / DEFAULT, run (at most 1)", "Diode", "DEFAULT", lambda m: m.run_us),
        ("Diode / DEFAULT, peak memory (at most 1)", "Diode", "DEFAULT", lambda m: m.peak_bytes),
    ]  # fmt: skip
    for found in done.values():
        if "fixed" in found and found["fixed"].benchmarked:  # then something was chosen
            print(f"fixed left out: {found.pop('fixed').benchmarked} were not in its table")
    for title, above, below, of in ratios:
        both = [(of(d[above]), of(d[below])) for d in done.values() if above in d and below in d]
        print(f"{title:44s} {geomean([a / b for a, b in both if a > 0 and b > 0]):8.3f}"
              f"  of {len(both)}")  # fmt: skip
    for row in rows.rows:
        for way in ("DEFAULT", "EXHAUSTIVE"):
            over = row.get(way, {}).get("compile_s_over")
            if over and (measured := done[row["program"]].get("Diode")):
                print(f"{way} / Diode, {row['program']}: more than "
                      f"{over / measured.compile_s:.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
