"""How fast kernel classes are compiled, for a GPU that need not be here.

    python benchmarks/compile_kernels.py [--kernels N | --whole [LAYOUTS]] [--workers N]
        [--reference N] [--seconds N] [--json FILE]

Compiles a sample of the exhaustive space for bf16 matrix products in the three common layouts,
with the compilers that `diode-engine collect --direct` uses, into a folder of its own, for the
H200. The reference, in the same run, is a sample of the same candidates compiled as Inductor
compiles them, one problem's sizes as constants, by the same compilers. It prints how long the whole
space would take on 64 cores at this rate a core, with the start (the target is 180 s). With
`--whole` it compiles the whole space, for all three layouts or the first so many, and prints the
time that it took.
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

import torch
import triton
from measuring import done_in

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.processes.compiler_pool import CompilerPool
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.operand import Layout
from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import ALL_FIXED, KernelClass, class_of

SIZE = 2048
SPACE_LAYOUTS = 3
SPACE_CONFIGS = 1400
LIMIT_SECONDS = 180


def candidates() -> list[Candidate]:
    """Inductor's exhaustive space for large matrices, without candidates of more than 255
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


def compiled(
    classes: list[KernelClass], workers: int, environment: Environment, seconds: float
) -> dict[str, Any]:
    """How long the compilers took, with their start apart; only the kernels that are done in so
    many seconds."""
    with tempfile.TemporaryDirectory() as root:
        binaries = Binaries(Path(root), environment)
        began = time.perf_counter()
        with CompilerPool(binaries, workers) as compilers:
            compilers.order(classes[:1]).result()
            started = time.perf_counter()
            complete = done_in(compilers.order(classes), seconds - (started - began))
            done = time.perf_counter()
        results = [r for cls in classes if (r := binaries.get(cls)) is not None]
    built = [r for r in results if isinstance(r, Binary)]
    rate = (len(results) - 1) / (done - started)
    return {
        "kernels": len(results),
        "complete": complete,
        "built": len(built),
        "start_seconds": round(started - began, 2),
        "seconds": round(done - started, 2),
        "kernels_a_second": round(rate, 1),
        "kernels_a_second_a_core": round(rate / workers, 3),
        "bytes_a_kernel": sum(len(b.cubin) for b in built) // max(1, len(built)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--whole", type=int, nargs="?", const=SPACE_LAYOUTS, metavar="LAYOUTS")
    parser.add_argument("--reference", type=int, help="kernels; two a worker, if not said")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=900, help="of the compiling")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    if options.reference is None:  # fewer than workers would leave some of them idle
        options.reference = max(20, 2 * options.workers)
    environment = Environment(H200, "", str(torch.__version__), triton.__version__)
    pairs = list(itertools.product(problems()[: options.whole], candidates()))
    random.Random(0).shuffle(pairs)
    shared = list(dict.fromkeys(cls for p, c in pairs if (cls := class_of(p, c)) is not None))
    if options.whole is None:
        del shared[options.kernels :]
    own = [
        cls
        for p, c in pairs[: options.reference]
        if (cls := class_of(p, c, fixed=ALL_FIXED)) is not None
    ]
    report: dict[str, Any] = {
        "torch": environment.torch,
        "triton": environment.triton,
        "workers": options.workers,
        "layouts": options.whole or SPACE_LAYOUTS,
    }
    for name, classes in (("shared", shared), ("reference", own)):
        report[name] = compiled(classes, options.workers, environment, options.seconds)
        print(f"{name:<10} {json.dumps(report[name])}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1))
    row = report["shared"]
    rate = row["kernels_a_second_a_core"]
    ratio = rate / report["reference"]["kernels_a_second_a_core"]
    print(f"ratio {ratio:.2f} (kernels a second a core, shared / reference)")
    if options.whole is not None:
        took = row["start_seconds"] + row["seconds"]
        print("" if row["complete"] else "cut short: ", end="")
        print(
            f"{row['kernels']} of {len(shared)} kernels on {options.workers} cores: {took:.0f} s, "
            f"{row['kernels_a_second']:.1f} a second; {took / LIMIT_SECONDS:.2f} of the limit of "
            f"{LIMIT_SECONDS} s, which is for {SPACE_LAYOUTS} layouts on 64 cores"
        )
    whole = SPACE_LAYOUTS * SPACE_CONFIGS / rate / 64 + row["start_seconds"]
    print(
        f"{SPACE_LAYOUTS} × {SPACE_CONFIGS} kernels on 64 cores: {whole:.0f} s at this rate a "
        f"core, {whole / LIMIT_SECONDS:.2f} of the limit"
    )


if __name__ == "__main__":
    main()
