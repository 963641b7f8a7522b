"""How well the features know a kernel's registers: against kernels that are compiled here.

    python benchmarks/registers.py [--kernels N] [--workers N] [--dataset FILE]

Draws timed kernels from a dataset, three in four of operands with odd strides, compiles them for
the H200 (which need not be here), and compares the registers a thread and the spills that
`features` estimates with those of the binaries. The reference, in the same run, is the mean of the
compiled registers.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import triton

from diode_engine import features
from diode_engine.collect.binaries import Binaries
from diode_engine.collect.farm import Farm
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Candidate, Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.templates import template_of
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass, shared_class
from diode_engine.store.transfer import read_dataset

DATASETS = Path(__file__).parents[1] / "datasets/nvidia-h200"
ODD = 0.75  # of the sample
MOST_REGISTERS = 255  # a thread; beyond it they are spilled
SPILLED_BYTES = 16  # of stack: fewer are no loop's


def drawn(table: TimingTable, count: int) -> dict[KernelClass, tuple[Problem, Candidate]]:
    """So many kernels, with a problem that each was timed on."""
    rng = np.random.default_rng(0)
    odd = np.array([min(p.a.align, p.b.align) * p.dtype.itemsize < 16 for p in table.problems])
    timed = table.failure == 0
    found: dict[KernelClass, tuple[Problem, Candidate]] = {}
    for which, wanted in ((odd, round(ODD * count)), (~odd, count)):
        for row in rng.permutation(np.flatnonzero(timed & which[table.problem])):
            if len(found) >= wanted:
                break
            problem = table.problems[table.problem[row]]
            candidate = table.candidates[table.candidate[row]]
            # TMA kernels have no addresses in registers.
            if not template_of(candidate.template).tma and (
                cls := shared_class(problem, candidate)
            ):
                found.setdefault(cls, (problem, candidate))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=400)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dataset", type=Path, default=max(DATASETS.glob("*direct*")))
    options = parser.parse_args()

    sample = drawn(read_dataset(options.dataset), options.kernels)
    environment = Environment(H200, "", str(torch.__version__), triton.__version__)
    with tempfile.TemporaryDirectory() as root:
        binaries = Binaries(Path(root), environment)
        with Farm(binaries, options.workers) as farm:
            farm.order(list(sample)).result()
        compiled = [
            (b, *of) for cls, of in sample.items() if isinstance(b := binaries.get(cls), Binary)
        ]
    registers = np.array([b.registers for b, _, _ in compiled])
    stack = np.array([b.stack_bytes for b, _, _ in compiled])
    every = np.arange(len(compiled))
    x = features.matrix(
        [p for _, p, _ in compiled], [c for _, _, c in compiled], every, every, H200
    )
    guess = 2 ** x[:, features.NAMES.index("log2_registers")]
    spills = x[:, features.NAMES.index("spilled")] > 0

    within = registers < MOST_REGISTERS
    error = np.sqrt(np.mean((np.minimum(guess, MOST_REGISTERS) - registers)[within] ** 2))
    spread = registers[within].std()
    print(f"{len(compiled)} kernels, {(~within).sum()} at the limit of {MOST_REGISTERS}")
    print(f"registers: rms error {error:.1f}, {error / spread:.2f} of that of their mean")
    spilled = stack > SPILLED_BYTES
    print(
        f"spilled: {spilled.sum()} kernels, of which {(spilled & spills).sum()} are named, and "
        f"{(spills & ~spilled).sum()} others"
    )


if __name__ == "__main__":
    main()
