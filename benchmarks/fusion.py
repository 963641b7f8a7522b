"""What the choice on the fused cost gains: products with pointwise ops behind them.

    python benchmarks/fusion.py [--json FILE] [--seconds N]

Step times of GEMM+bias+GELU, +ReLU and +residual with Diode's rule (docs/integration.md) and
without it, of plain torch.compile (ATen) and of max-autotune's DEFAULT search; the ratios are
to the last. The operands are matrices: before torch 2.13 Inductor fuses nothing behind a view
that splits a dimension.
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
WAYS = {
    "ATen": Way({}, stock),
    "DEFAULT": Way(MAX_AUTOTUNE, stock),
    "rule off": Way({**MAX_AUTOTUNE, "diode_fusion_aware": False}, diode(top_k_configs=1)),
    "rule on": Way({**MAX_AUTOTUNE, "diode_fusion_aware": True}, diode(top_k_configs=1)),
}


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
    done: list[dict[str, Measured]] = []
    for size in SIZES:
        for name, net in NETS.items():
            if results.late:
                break
            title = f"{name} {'×'.join(map(str, size))}"
            done.append(measuring.measure_ways(title, program(net, *size), WAYS, results))
    for way in WAYS:
        both = [d for d in done if way in d and "DEFAULT" in d]
        gain = geomean([d[way].run_us / d["DEFAULT"].run_us for d in both])
        print(f"{way:10s} / DEFAULT, step time, geomean of {len(both)}: {gain:.3f}")
    both = [d for d in done if {"rule on", "rule off"} <= set(d)]
    ratios = [d["rule on"].run_us / d["rule off"].run_us for d in both]
    print(f"rule on / rule off: {geomean(ratios):.3f}, worst {max(ratios, default=1):.3f}, "
          f"best {min(ratios, default=1):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
