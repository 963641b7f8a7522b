"""Products with a dynamic M: compiled once, at a hint, and timed over M = 1 … 8192.

    python benchmarks/dynamic_sizes.py [--json FILE] [--seconds N] [--part I/N] [--default]

Layers of LLMs, alone and with pointwise ops behind them, in bfloat16, and some in float32 and in
batches; each is compiled at several hints by plain torch.compile (the reference), by Diode and,
with `--default`, by max-autotune's DEFAULT search. Every way's calls are captured in a CUDA graph
for each M, which goes through operands that are together larger than the cache; the graphs are
replayed in turn, and the median round counts. `--part 2/4` is the second of four parts, so that
several GPUs can share the work; `--report FILE …` prints the summary of the files of all parts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import torch
from in_turn import graph_of, in_turn_us
from measuring import MAX_AUTOTUNE, geomean
from torch._inductor.utils import fresh_cache

import diode_engine

LAYERS = [  # N, K: projections and MLPs of Llama 3 8B, Qwen3 8B, Gemma 3 4B, an attention output
    (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (1024, 4096), (20480, 2560),
    (2560, 10240),
]  # fmt: skip
HINTS = (5, 16, 64, 300, 2048)
ROWS = (
    1,
    2,
    3,
    5,
    8,
    13,
    16,
    32,
    50,
    64,
    100,
    128,
    200,
    256,
    300,
    512,
    777,
    1024,
    2048,
    4096,
    8192,
)
OPERANDS_BYTES = 192 << 20  # of all sets together: three times the cache
MAX_BYTES = 8 << 30
NETS: dict[str, Callable[..., torch.Tensor]] = {
    "alone": lambda a, b, r: a @ b,
    "SiLU": lambda a, b, r: torch.nn.functional.silu(a @ b),
    "ReLU and residual": lambda a, b, r: torch.relu(a @ b) + r,
}
# Diode is installed in all ways. It does nothing in the default mode, and leaves a search with a
# limit to Inductor, also where the limit is above the number of configs.
# Pointwise kernels are not tuned. Inductor would tune them at the hint, where all take the same
# time; the one that it takes by chance is up to 1.2 times slower at other sizes, in any way.
SAME = {"triton.autotune_pointwise": False}
WAYS: dict[str, dict[str, Any]] = {"plain": SAME, "diode": {**SAME, **MAX_AUTOTUNE}}
DEFAULT = {"DEFAULT": {**SAME, **MAX_AUTOTUNE, "test_configs.max_mm_configs": 10**6}}


def cases() -> list[dict[str, Any]]:
    found = [
        {"net": net, "N": n, "K": k, "B": 1, "hint": hint, "dtype": "bfloat16"}
        for n, k in LAYERS
        for net in NETS
        for hint in HINTS
    ]
    found += [
        {"net": net, "N": n, "K": k, "B": 1, "hint": hint, "dtype": "float32"}
        for n, k in ((1024, 1024), (13, 512), (512, 479))
        for net in ("alone", "ReLU and residual")
        for hint in (16, 300)
    ]
    found += [
        {"net": "alone", "N": n, "K": k, "B": b, "hint": hint, "dtype": dtype}
        for b, n, k in ((32, 128, 128), (512, 64, 77))
        for dtype in ("bfloat16", "float32")
        for hint in (16, 300)
    ]
    return found


def operands(case: dict[str, Any], m: int) -> list[tuple[torch.Tensor, ...]]:
    """Sets of operands, as many as are needed to go beyond the cache."""
    dtype = getattr(torch, case["dtype"])
    batch = (case["B"],) if case["B"] > 1 else ()
    n, k = case["N"], case["K"]
    shapes = ((*batch, m, k), (*batch, n, k), (*batch, m, n))
    size = sum(math.prod(shape) for shape in shapes) * dtype.itemsize
    count = max(1, min(math.ceil(OPERANDS_BYTES / size), 64, MAX_BYTES // size))
    sets = []
    for _ in range(count):
        a, b, r = (torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes)
        sets.append((a, b.transpose(-1, -2), r))
    return sets


def compiled(case: dict[str, Any], options: dict[str, Any]) -> tuple[Any, list[str]]:
    """The function, compiled at the case's hint, and the kernels that Diode took for it."""
    net = NETS[case["net"]]
    # A code of its own, for which Dynamo keeps no other way's graphs.
    alone = types.FunctionType(net.__code__.replace(), net.__globals__)
    function = torch.compile(alone, options=options or None)
    with diode_engine.profile_predictions() as profile, fresh_cache(), torch.no_grad():
        a, b, r = operands(case, case["hint"])[0]
        for tensor in (a, r):
            torch._dynamo.mark_dynamic(tensor, tensor.dim() - 2)
        function(a, b, r)
        chosen = [str(selection.candidates[0]) for selection in profile.selections]
        function(*operands(case, 1)[0])  # M = 1 is compiled apart
    return function, chosen


def measured(case: dict[str, Any], ways: dict[str, dict[str, Any]]) -> dict[str, Any]:
    functions, row = {}, dict(case)
    for name, options in ways.items():
        functions[name], row[f"{name} chose"] = compiled(case, options)
    row["us"] = {}
    for m in ROWS:
        sets = operands(case, m)
        with torch.no_grad():
            graphs = {name: graph_of(function, sets) for name, function in functions.items()}
        times = in_turn_us(graphs, len(sets), rounds=5, round_us=3000)
        row["us"][m] = {name: us for name, (us, _) in times.items()}
    return row


def summary(rows: list[dict[str, Any]]) -> None:
    for way in ("diode", "DEFAULT"):
        groups: dict[str, list[float]] = {}
        worst: list[tuple[float, str]] = []
        for row in rows:
            ratios = [us[way] / us["plain"] for us in row["us"].values() if way in us]
            if not ratios:
                continue
            name = f"{row['dtype']}{' in batches' if row['B'] > 1 else ''}, {row['net']}"
            groups.setdefault(name, []).append(geomean(ratios))
            worst.append((max(ratios), f"{row['N']}×{row['K']} at a hint of {row['hint']}, {name}"))
        for name, values in groups.items():
            print(
                f"{way} / plain  {name:36s} geomean {geomean(values):.3f}, the worst product "
                f"{max(values):.3f}, of {len(values)}"
            )
        if worst:
            every = [value for values in groups.values() for value in values]
            print(f"{way} / plain  all: geomean {geomean(every):.3f}, products {max(every):.3f}")
            for ratio, name in sorted(worst, reverse=True)[:5]:
                print(f"    {ratio:.3f} at its worst M: {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--report", type=Path, nargs="+")
    args = parser.parse_args()
    if args.report:
        summary([row for path in args.report for row in json.loads(path.read_text())["rows"]])
        return
    measuring.need_gpu()
    part, parts = map(int, args.part.split("/"))
    results = measuring.Results(args.json, args.seconds)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    ways = WAYS | (DEFAULT if args.default else {})
    if not diode_engine.install_diode_choices(top_k_configs=1):
        sys.exit(f"Diode is not active: {diode_engine.get_stats()['reason']}")
    with measuring.always(lambda: summary(results.rows)):
        for case in cases()[part - 1 :: parts]:
            if results.late:
                break
            try:
                results.add(measured(case, ways))
            except Exception as error:  # noqa: BLE001  # the other cases are worth having
                print(f"{case} failed: {error!r}"[:300], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
