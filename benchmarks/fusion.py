"""How much the rule of the fused cost gains, on products followed by pointwise ops.

    python benchmarks/fusion.py [--json FILE] [--seconds N]

Step times of GEMM+bias+GELU, +ReLU and +residual with Diode's rule (docs/integration.md) and
without it, both with the option fast_autotune, and of plain torch.compile (ATen): over all of them,
and over those where the rule decided. If there is time left, max-autotune's DEFAULT search follows.
The operands are matrices, because before torch 2.13 Inductor fuses nothing behind a view that
splits a dimension.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import torch
from measuring import MAX_AUTOTUNE, Measured, Way, diode, geomean, stock

F = torch.nn.functional
NETS: dict[str, Callable[..., torch.Tensor]] = {
    "bias+GELU": lambda c, a, b, r: F.gelu(torch.addmm(c, a, b)),
    "bias+ReLU": lambda c, a, b, r: torch.relu(torch.addmm(c, a, b)),
    "bias+ReLU+residual": lambda c, a, b, r: torch.relu(torch.addmm(c, a, b)) + r,
    "SiLU gate": lambda c, a, b, r: F.silu(torch.addmm(c, a, b)) * r,
}
SIZES = [  # M, N, K
    (16, 4096, 4096), (256, 3072, 768), (512, 4096, 1024), (1024, 1024, 1024),
    (2048, 3072, 768), (4096, 4096, 512), (4096, 11008, 4096), (8192, 1024, 1024),
    (8192, 3072, 768), (16384, 2048, 512),
]  # fmt: skip
FAST: dict[str, Any] = {"fast_autotune": True}
QUICK = {
    "ATen": Way({}, stock),
    "rule off": Way({**FAST, "diode_fusion_aware": False}, diode(top_k_configs=1)),
    "rule on": Way({**FAST, "diode_fusion_aware": True}, diode(top_k_configs=1)),
}
SEARCH = {"DEFAULT": Way(MAX_AUTOTUNE, stock)}


def program(net: Callable[..., torch.Tensor], m: int, n: int, k: int) -> measuring.Program:
    def make() -> tuple[Any, tuple[torch.Tensor, ...]]:
        torch.manual_seed(0)
        shapes = ((n,), (m, k), (k, n), (m, n))
        return net, tuple(torch.randn(*s, device="cuda", dtype=torch.bfloat16) for s in shapes)

    return make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=1200)
    args = parser.parse_args()
    measuring.need_gpu()
    results = measuring.Results(args.json, args.seconds)
    done: dict[str, dict[str, Measured]] = {}
    programs = {
        f"{name} {'×'.join(map(str, size))}": program(net, *size)
        for size in SIZES
        for name, net in NETS.items()
    }
    measuring.warm_up(QUICK.values())
    with measuring.always(lambda: summary(done, results)):
        for ways in (QUICK, SEARCH):
            for title, made in programs.items():
                if results.late:
                    break
                found = measuring.measure_ways(title, made, ways, results)
                done[title] = done.get(title, {}) | found


def summary(done: dict[str, dict[str, Measured]], results: measuring.Results) -> None:
    decided = {
        row["program"]
        for row in results.rows
        if row.get("rule on", {}).get("stats", {}).get("fusion_decided")
    }
    for above, below in (("rule on", "rule off"), ("rule on", "ATen"), ("rule off", "ATen"),
                         ("rule on", "DEFAULT"), ("ATen", "DEFAULT")):  # fmt: skip
        for where in ("all", "where it decided", *NETS):
            ratios = [
                d[above].run_us / d[below].run_us
                for title, d in done.items()
                if {above, below} <= set(d)
                and (where == "all" or (title in decided if where not in NETS else
                                        title.rpartition(" ")[0] == where))
            ]  # fmt: skip
            if ratios:
                print(f"{above:8s} / {below:8s} {where:20s} step time {geomean(ratios):.3f}, worst "
                      f"{max(ratios):.3f}, best {min(ratios):.3f}, of {len(ratios)}")  # fmt: skip


if __name__ == "__main__":
    main()
