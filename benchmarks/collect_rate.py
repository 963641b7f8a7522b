"""Timings a second of `collect --direct` on an NVIDIA GPU, beside the target.

    python benchmarks/collect_rate.py [--json FILE] [--problems N] [--each N] [--op OP …]
        [--type TYPE …] [--compile-seconds N] [--direct-seconds N]

It draws problems log-normally, of few ops and types, so that kernels are shared as in a collection
of thousands. For as many problems as there is time for, it compiles ATen, the DEFAULT space and a
sample of the EXHAUSTIVE one; problems whose kernels serve the most others come first. Then `collect
--direct` times all that is compiled, into a fresh store each time, until its seconds are over. The
sustained rate is from the first batch in the store to the last: without the start of the workers,
but with Inductor's listing of the candidates.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

import measuring
import torch
from processes import Rows

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.local import Direct, LocalExecutor, cores
from diode_engine.collect.planning.candidate_plan import plausible
from diode_engine.collect.planning.plan import CandidateSelection, Plan, PlannedProblem
from diode_engine.collect.processes.compiler_pool import CompilerPool
from diode_engine.collect.progress import Progress
from diode_engine.collect.run import collect
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import environment
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.core.table import TimingTable
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import shared_class
from diode_engine.problems.sources import mixed
from diode_engine.problems.sources.wanted import Wanted
from diode_engine.store import Store

Chosen = list[tuple[Problem, list[Candidate]]]
TARGET_RATE = 500


def chosen(problem: Problem, each: int) -> list[Candidate]:
    """ATen, the DEFAULT space, and a sample of the other plausible candidates: at most `each`."""
    with kernels.graph_for(problem, torch.device("cuda", 0)) as operands:
        default = list(kernels.offered(problem.op, operands, space="DEFAULT"))
        offered = list(kernels.offered(problem.op, operands, space="EXHAUSTIVE"))
    usable = [c for c in dict.fromkeys([*default, *offered]) if c.tile is not None]
    ok = fits(problem, usable, environment().hardware)
    usable = [c for c, fit in zip(usable, ok, strict=True) if fit and plausible(problem, c)]
    first = [c for c in usable if c in set(default)]
    rest = [c for c in usable if c not in set(default)]
    # The same sample for all problems: most kernels then serve several, as in a collection.
    rest.sort(key=lambda c: zlib.crc32(str(c).encode()))
    return [*[c for c in default if c.is_extern], *first, *rest][:each]


def most_shared_first(todo: Chosen) -> Chosen:
    """Problems whose kernels serve the most other problems come first. So the kernels that are
    compiled in so many seconds are used by as many problems as in a collection of thousands."""
    keys = [[cls.key for c in cs if (cls := shared_class(p, c)) is not None] for p, cs in todo]
    serves = Counter(itertools.chain.from_iterable(keys))
    means = [statistics.fmean([serves[key] for key in own] or [0]) for own in keys]
    order = sorted(range(len(todo)), key=lambda i: -means[i])
    return [todo[i] for i in order]


def compiled(todo: Chosen, binaries: Binaries, seconds: float, workers: int) -> Chosen:
    """The candidates that have a binary, or need none, after so many seconds of compiling."""
    end = time.monotonic() + seconds
    with CompilerPool(binaries, workers) as compilers:
        orders = [
            compilers.order([cls for c in candidates if (cls := shared_class(p, c)) is not None])
            for p, candidates in todo
        ]
        for order in orders:
            try:
                order.result(max(0.0, end - time.monotonic()))
            except TimeoutError:
                break
    found: Chosen = []
    for problem, candidates in todo:
        classes = [(c, shared_class(problem, c)) for c in candidates]
        ready = [
            c for c, cls in classes
            if c.is_extern or (cls is not None and isinstance(binaries.get(cls), Binary))
        ]  # fmt: skip
        if any(not c.is_extern for c in ready):
            found.append((problem, ready))
    return found


class Marked(Store):
    """A store that remembers when each batch was added, and how many timings it had."""

    marks: list[tuple[float, int]]

    def add(self, run: int, table: TimingTable) -> int:
        added = super().add(run, table)
        self.marks.append((time.monotonic(), len(table)))
        return added


def direct(todo: Chosen, path: Path, how: Direct) -> tuple[Progress, float]:
    """The progress of `collect --direct` into a fresh store, and its sustained timings a second."""
    plan = Plan(
        tuple(
            PlannedProblem(p, CandidateSelection(fixed=tuple(candidates))) for p, candidates in todo
        )
    )
    with Marked.open(path) as store:
        store.marks = []
        progress = collect(store, plan, LocalExecutor([0], direct=how), adviser=lambda _: None)
    (first, _), *rest = store.marks or [(0.0, 0)]
    took = rest[-1][0] - first if rest else 0.0
    return progress, sum(count for _, count in rest) / took if took else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--each", type=int, default=100, help="candidates of a problem")
    parser.add_argument("--op", nargs="+", default=["mm"])
    parser.add_argument("--type", nargs="+", default=["bf16"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile-seconds", type=float, default=80)
    parser.add_argument("--direct-seconds", type=float, default=40)
    args = parser.parse_args()
    measuring.need_gpu()
    rows = Rows(args.json)
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = Wanted(ops=tuple(args.op), types=tuple(args.type))
        drawn = mixed(args.problems, args.seed, ["log-normal"], wanted)
        todo = most_shared_first([(p, chosen(p, args.each)) for p in drawn])
        listed = time.monotonic()
        binaries = Binaries(folder / "binaries", environment())
        todo = compiled(todo, binaries, args.compile_seconds, cores())
        pairs = sum(len(candidates) for _, candidates in todo)
        if not todo:
            sys.exit("Nothing was compiled in that time; give more --compile-seconds.")
        seconds = time.monotonic() - listed
        rows.add({"kernels": len(binaries.keys()), "pairs": pairs, "compile_seconds": seconds})
        print(f"compiled: {len(binaries.keys())} kernels in {seconds:.0f} s, for {pairs} pairs of "
              f"{len(todo)} problems", flush=True)  # fmt: skip
        how = Direct(folder / "binaries", compilers=1)
        end = time.monotonic() + args.direct_seconds
        while not rates or time.monotonic() < end:
            progress, sustained = direct(todo, folder / f"{len(rates)}.db", how)
            rates.append(sustained)
            rows.add({"direct": progress.to_dict(), "sustained": sustained})
            print(f"collect --direct: {progress.timings} timings in {progress.seconds:.1f} s, "
                  f"sustained {sustained:.0f} a second; {sum(progress.failures.values())} failed, "
                  f"{progress.problems_refused} problems refused", flush=True)  # fmt: skip
    rate = statistics.median(rates)
    print(f"sustained, median of {len(rates)}: {rate:.0f} timings a second "
          f"({rate / TARGET_RATE:.2f} × the target of {TARGET_RATE})")  # fmt: skip


if __name__ == "__main__":
    main()
