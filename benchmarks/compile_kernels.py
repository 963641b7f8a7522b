"""How fast kernel classes are compiled, for a GPU that need not be here.

    python benchmarks/compile_kernels.py [--kernels N] [--workers N] [--json FILE]

Compiles a sample of the exhaustive space for bf16 matrix products in the three common layouts,
with the compilers that `diode-engine collect --direct` uses, into a folder of its own, for the
H200. The reference, in the same run, is a sample of the same candidates compiled as Inductor
compiles them, one problem's sizes as constants, by the same compilers. Says what the whole
space would take on 64 cores at this rate a core (the target is 180 s), start-up included.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.farm import Farm
from diode_engine.hardware import H200, Environment
from diode_engine.inductor.binary import Binary
from diode_engine.inductor.kernel_class import ALL_FIXED, KernelClass, class_of
from diode_engine.problem import Candidate, Layout, Problem

SIZE = 2048
SPACE_LAYOUTS = 3
SPACE_CONFIGS = 1400


def candidates() -> list[Candidate]:
    """Inductor's exhaustive space for large matrices: less what holds more than 255
    accumulators a thread."""
    blocks = (16, 32, 64, 128, 256)
    found = []
    for m, n, k, stages, warps in itertools.product(blocks, blocks, blocks, range(1, 6), (2, 4, 8)):
        warps_used = min(warps, m * n // 256)
        if warps_used == warps and m * n / (32 * warps) <= 255:
            found.append(
                Candidate.make(
                    "triton::mm", BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP_M=8,
                    num_stages=stages, num_warps=warps,
                )
            )  # fmt: skip
    return found


def problems() -> list[Problem]:
    layouts = [(Layout.ROW, Layout.ROW), (Layout.ROW, Layout.COL), (Layout.COL, Layout.ROW)]
    return [
        Problem.make("mm", SIZE, SIZE, SIZE, "bfloat16", a_layout=a, b_layout=b) for a, b in layouts
    ]


def compiled(classes: list[KernelClass], workers: int, environment: Environment) -> dict[str, Any]:
    """How long the farm took, its start apart."""
    with tempfile.TemporaryDirectory() as root:
        binaries = Binaries(Path(root), environment)
        began = time.perf_counter()
        with Farm(binaries, workers) as farm:
            farm.order(classes[:1]).result()
            started = time.perf_counter()
            farm.order(classes).result()
            done = time.perf_counter()
        results = [binaries.get(cls) for cls in classes]
    built = [r for r in results if isinstance(r, Binary)]
    return {
        "kernels": len(classes),
        "built": len(built),
        "start_seconds": round(started - began, 2),
        "seconds": round(done - started, 2),
        "kernels_a_second_a_core": round((len(classes) - 1) / (done - started) / workers, 3),
        "bytes_a_kernel": sum(len(b.cubin) for b in built) // max(1, len(built)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--reference", type=int, default=20)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import torch
    import triton

    environment = Environment(H200, "", str(torch.__version__), triton.__version__)
    pairs = list(itertools.product(problems(), candidates()))
    random.Random(0).shuffle(pairs)
    shared = list(dict.fromkeys(cls for p, c in pairs if (cls := class_of(p, c)) is not None))[
        : options.kernels
    ]
    own = [
        cls
        for p, c in pairs[: options.reference]
        if (cls := class_of(p, c, fixed=ALL_FIXED)) is not None
    ]
    rows = {
        "shared": compiled(shared, options.workers, environment),
        "reference": compiled(own, options.workers, environment),
    }
    rate = rows["shared"]["kernels_a_second_a_core"]
    whole = SPACE_LAYOUTS * SPACE_CONFIGS / rate / 64 + rows["shared"]["start_seconds"]
    report = {
        "torch": environment.torch,
        "triton": environment.triton,
        "workers": options.workers,
        **rows,
        "ratio": round(rate / rows["reference"]["kernels_a_second_a_core"], 2),
        "whole_space_on_64_cores_seconds": round(whole, 1),
    }
    for name, row in rows.items():
        print(f"{name:<10} {json.dumps(row)}")
    print(f"ratio {report['ratio']} (kernels a second a core, shared / reference)")
    print(f"{SPACE_LAYOUTS} × {SPACE_CONFIGS} kernels on 64 cores: {whole:.0f} s at this rate")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
