"""How well the features estimate a kernel's registers, beside kernels that are compiled here.

    python benchmarks/registers.py [--kernels N] [--workers N] [--dataset FILE]

Draws timed kernels from a dataset, three in four of operands with odd strides, compiles them for
the H200 (which need not be here), and compares the registers a thread and the spills that
`features` estimates with those of the binaries. The reference, in the same run, is the mean of the
compiled registers. Where the dataset has the compiler's facts on kernels, nothing is compiled here.
For those that spill it then also prints how many `core.resources.spills_erratically` expects to,
and how much longer than predicted they take.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import triton

from diode_engine import features
from diode_engine.collect.binaries import Binaries
from diode_engine.collect.processes.compiler_pool import CompilerPool
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.core.table import TimingTable
from diode_engine.core.templates import template_of
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass, shared_class
from diode_engine.models.predictor import Predictor
from diode_engine.registry import load_predictor
from diode_engine.store.datasets.reading import read_dataset

DATASETS = Path(__file__).parents[1] / "datasets/nvidia-h200"
ODD = 0.75  # of the sample
MAX_REGISTERS = 255  # a thread; beyond it they are spilled
SPILLED_BYTES = 16  # of stack: fewer are no loop's


def drawn(table: TimingTable, count: int) -> dict[KernelClass, tuple[Problem, Candidate]]:
    """So many kernels, each with a problem that it was timed on."""
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


class Compiled(NamedTuple):
    """A timed kernel, and the compiler's facts on it."""

    problem: Problem
    candidate: Candidate
    registers: int
    spilled_bytes: int
    time_us: float = math.nan


def recorded(table: TimingTable) -> list[Compiled]:
    """The rows for which the dataset has these facts."""
    assert table.kernel is not None
    return [
        Compiled(
            table.problems[table.problem[row]], table.candidates[table.candidate[row]],
            facts.registers, facts.spill_stores, float(table.time_us[row]),
        )
        for row in np.flatnonzero((table.kernel[:, 0] >= 0) & (table.failure == 0)).tolist()
        if (facts := table.kernel_facts(row)) is not None
    ]  # fmt: skip


def compiled_here(
    sample: Mapping[KernelClass, tuple[Problem, Candidate]], workers: int
) -> list[Compiled]:
    environment = Environment(H200, "", str(torch.__version__), triton.__version__)
    with tempfile.TemporaryDirectory() as root:
        binaries = Binaries(Path(root), environment)
        with CompilerPool(binaries, workers) as compilers:
            compilers.order(list(sample)).result()
        return [
            Compiled(*of, b.registers, b.stack_bytes)
            for cls, of in sample.items()
            if isinstance(b := binaries.get(cls), Binary)
        ]


def show_unexpected(found: list[Compiled], model: Predictor) -> None:
    """Prints, for kernels that spill, how many a rule expects to spill, and their times divided by
    the predictions."""
    spill = [one for one in found if one.spilled_bytes > SPILLED_BYTES]
    erratic = [bool(spills_erratically(one.problem, [one.candidate])[0]) for one in spill]
    print(f"{sum(erratic)} of the {len(spill)} are named by the rule of what spills erratically")
    for name, some in (("that spill", spill), ("all", found)):
        ratios = [
            one.time_us / float(model.predict_us(one.problem, [one.candidate])[0]) for one in some
        ]
        ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
        if ratios:
            print(
                f"time over the predicted, {name}: median {np.median(ratios):.2f}, 99th percentile "
                f"{np.percentile(ratios, 99):.2f}, over twice {np.mean(np.array(ratios) > 2):.2%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=400)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dataset", type=Path, default=max(DATASETS.glob("*direct*")))
    options = parser.parse_args()

    table = read_dataset(options.dataset)
    if table.kernel is None:
        found = compiled_here(drawn(table, options.kernels), options.workers)
    else:
        found = recorded(table)
    registers = np.array([one.registers for one in found])
    stack = np.array([one.spilled_bytes for one in found])
    every = np.arange(len(found))
    x = features.matrix(
        [one.problem for one in found], [one.candidate for one in found], every, every, H200
    )
    guess = 2 ** x[:, features.NAMES.index("log2_registers")]
    spills = x[:, features.NAMES.index("spilled")] > 0

    within = registers < MAX_REGISTERS
    error = np.sqrt(np.mean((np.minimum(guess, MAX_REGISTERS) - registers)[within] ** 2))
    spread = registers[within].std()
    print(f"{len(found)} kernels, {(~within).sum()} at the limit of {MAX_REGISTERS}")
    print(f"registers: rms error {error:.1f}, {error / spread:.2f} of that of their mean")
    spilled = stack > SPILLED_BYTES
    print(
        f"spilled: {spilled.sum()} kernels, of which {(spilled & spills).sum()} are named, and "
        f"{(spills & ~spilled).sum()} others"
    )
    if table.kernel is not None:
        show_unexpected(found, load_predictor(H200))


if __name__ == "__main__":
    main()
