"""Timings a second of `collect --direct` on an NVIDIA GPU, beside Inductor's exhaustive search.

    python benchmarks/collect_rate.py [--json FILE] [--problems N] [--each N] [--op OP …]
        [--type TYPE …] [--compile-seconds N] [--direct-seconds N] [--reference-seconds N]

It draws problems log-normally, of few ops and types, so that kernels are shared as in a collection
of thousands. For as many problems as there is time for, it compiles ATen, the DEFAULT space and a
sample of the EXHAUSTIVE one; problems whose kernels serve the most others come first. Then `collect
--direct` times all that is compiled, into a fresh store each time, until its seconds are over. The
sustained rate is from the first batch in the store to the last: without the start of the workers,
but with Inductor's listing of the candidates.

The reference, on the same problems in the same run, is max-autotune's own search of the EXHAUSTIVE
space: the candidates a second that it benchmarks, in a process of its own with cold caches, without
its start and one small compile. It is stopped when its seconds are over, or when the process is
told to end (SIGTERM). It compiles for minutes before it benchmarks the first candidate.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measuring
import torch

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.local import Direct, LocalExecutor, cores
from diode_engine.collect.planning.candidate_plan import plausible
from diode_engine.collect.planning.plan import CandidateSelection, Plan, PlannedProblem
from diode_engine.collect.processes.compiler_pool import CompilerPool
from diode_engine.collect.progress import Progress
from diode_engine.collect.run import collect
from diode_engine.collect.workers.inputs import random_inputs
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import environment
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.core.table import TimingTable
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import shared_class
from diode_engine.inductor.patches import patch_attribute
from diode_engine.problems.sources import mixed
from diode_engine.problems.sources.wanted import Wanted
from diode_engine.store import Store

Chosen = list[tuple[Problem, list[Candidate]]]
TARGET_RATE = 500
TARGET_RATIO = 100
EXHAUSTIVE = {**measuring.MAX_AUTOTUNE, "max_autotune_gemm_search_space": "EXHAUSTIVE"}


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
            if not measuring.done_in(order, end - time.monotonic()):
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


def exhaustive(problems: Sequence[Problem], counted: Any, began: Any, done: Any) -> None:
    """max-autotune's search on each problem, in a process of its own. `counted` is the number of
    candidates that it has benchmarked, `done` the number of problems that it has finished."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache
    from torch._inductor.utils import fresh_cache

    benchmark_choice = AlgorithmSelectorCache.benchmark_choice

    def counting(*args: Any) -> float:
        try:
            return benchmark_choice(*args)
        finally:  # one that fails has been tried
            counted.value += 1

    def compile_one(problem: Problem, options: dict[str, Any]) -> None:
        torch._dynamo.reset()
        operands = random_inputs(problem, torch.device("cuda"))
        function = problem.op.function(torch, problem)
        with kernels.tf32(problem.allow_tf32), fresh_cache():
            torch.compile(function, options=options)(*operands)
        torch.cuda.synchronize()

    compile_one(Problem.make("mm", 512, 512, 512, "bfloat16"), measuring.MAX_AUTOTUNE)
    with patch_attribute(AlgorithmSelectorCache, "benchmark_choice", staticmethod(counting)):
        began.value = time.monotonic()
        for problem in problems:
            try:
                compile_one(problem, EXHAUSTIVE)
            except Exception as error:  # noqa: BLE001  # the next one is worth having
                print(f"{problem}: {error!r}"[:200], file=sys.stderr, flush=True)
            done.value += 1


def searched(problems: Sequence[Problem], seconds: float, found: dict[str, Any]) -> None:
    """Runs the exhaustive search for so many seconds, or until this process is told to end, and
    puts its figures into `found`."""
    spawn = multiprocessing.get_context("spawn")
    counted, done = spawn.Value("q", 0), spawn.Value("q", 0)
    began = spawn.Value("d", 0.0)
    # A search of Inductor's own, whose end this process does not wait for.
    child = spawn.Process(target=exhaustive, args=(problems, counted, began, done))
    before = os.environ.get("DIODE_DISABLE")
    os.environ["DIODE_DISABLE"] = "1"  # the child has the environment of its start
    child.start()
    if before is None:
        del os.environ["DIODE_DISABLE"]
    else:
        os.environ["DIODE_DISABLE"] = before
    try:
        start = time.monotonic()
        while child.is_alive() and time.monotonic() < (began.value or start + 60) + seconds:
            child.join(0.2)
    finally:
        took = time.monotonic() - began.value if began.value else 0.0
        found |= {"problems_done": done.value, "benchmarked": counted.value, "seconds": took}
        child.kill()
        child.join()


def summary(rates: Sequence[float], found: dict[str, Any], results: measuring.Results) -> None:
    if not rates:
        return
    rate = statistics.median(rates)
    print(f"sustained, median of {len(rates)}: {rate:.0f} timings a second "
          f"({rate / TARGET_RATE:.2f} × the target of {TARGET_RATE})", flush=True)  # fmt: skip
    if not found:
        return
    results.add({"exhaustive": found})
    # Where it has benchmarked none yet, one counts: its rate is at most that.
    reference = max(1, found["benchmarked"]) / found["seconds"] if found["seconds"] else 0.0
    print(f"EXHAUSTIVE max-autotune: {found['benchmarked']} candidates of "
          f"{found['problems_done']} finished problems and the next in {found['seconds']:.0f} s: "
          f"{reference:.2f} a second")  # fmt: skip
    ratio = rate / reference if reference else float("nan")
    results.add({"rate": rate, "reference": reference, "ratio": ratio})
    print(f"ratio: {ratio:.0f} (at least {TARGET_RATIO})")


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
    parser.add_argument("--reference-seconds", type=float, default=400)
    args = parser.parse_args()
    measuring.need_gpu()
    results = measuring.Results(args.json, float("inf"))
    rates: list[float] = []
    found: dict[str, Any] = {}
    with measuring.always(lambda: summary(rates, found, results)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            began = time.monotonic()
            wanted = Wanted(ops=tuple(args.op), types=tuple(args.type))
            drawn = mixed(args.problems, args.seed, ["log-normal"], wanted)
            todo = most_shared_first([(p, chosen(p, args.each)) for p in drawn])
            listed = time.monotonic()
            binaries = Binaries(folder / "binaries", environment())
            todo = compiled(todo, binaries, args.compile_seconds, cores())
            pairs = sum(len(candidates) for _, candidates in todo)
            if not todo:
                sys.exit("Nothing was compiled in that time; give more --compile-seconds.")
            row = {
                "problems": len(todo), "pairs": pairs, "binaries": len(binaries.keys()),
                "list_seconds": listed - began, "compile_seconds": time.monotonic() - listed,
            }  # fmt: skip
            results.add({"compiled": row})
            print(f"compiled: {row['binaries']} kernels in {row['compile_seconds']:.0f} s, for "
                  f"{pairs} pairs of {len(todo)} problems", flush=True)  # fmt: skip
            how = Direct(folder / "binaries", compilers=1)
            end = time.monotonic() + args.direct_seconds
            while not rates or time.monotonic() < end:
                progress, sustained = direct(todo, folder / f"{len(rates)}.db", how)
                rates.append(sustained)
                results.add({"direct": progress.to_dict(), "sustained": sustained})
                print(f"collect --direct: {progress.timings} timings in {progress.seconds:.1f} s, "
                      f"sustained {sustained:.0f} a second; {sum(progress.failures.values())} "
                      f"failed, {progress.problems_refused} problems refused",
                      flush=True)  # fmt: skip
        searched([problem for problem, _ in todo], args.reference_seconds, found)


if __name__ == "__main__":
    main()
