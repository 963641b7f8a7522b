"""Direct launching compared with Inductor's own static kernels, on an NVIDIA GPU.

    python benchmarks/calibrate.py [--problems N] [--each N] [--json FILE]
    python benchmarks/calibrate.py --rows FILE

Times the same (problem, candidate) pairs in one run, over sizes, dtypes, layouts and alignments:

static    as `diode-engine collect` does it: each compiled and launched by Inductor, the cache
          flushed before each launch. The reference.
again     the same once more: the noise between two runs (A/A)
direct    as `diode-engine collect --direct` does it: binaries that problems share, fresh operands,
          in turn
repeat    the same once more (A/A)

For each pass it prints the median of its ratios to the reference, the median and 90th percentile of
|ratio − 1|, and the geomean efficiency, by static timings, of the candidate that is best by this
pass; then |ratio − 1| by kinds of pairs. With --rows, which needs no GPU, the rows of an earlier
run (.json or .json.zst) are compared again; those of November 2026 have further passes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from diode_engine.collect.planning.candidate_plan import plausible
from diode_engine.collect.planning.plan import CandidateSelection, Plan, PlannedProblem
from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import named
from diode_engine.core.problem import Problem
from diode_engine.core.resources import MAX_ODD_ALIGN
from diode_engine.core.timing import Timing
from diode_engine.inductor.lowering.kernel_class import (
    ALL_FIXED,
    addresses_erratic,
    shared_class,
)

Pair = tuple[Problem, Candidate]
Times = dict[Pair, Timing]

# Longer pairs say nothing that shorter ones do not, and cost the run its time.
MAX_FLOPS = 2e11


def problems(count: int, seed: int) -> list[Problem]:
    """Problems of log-uniform sizes, a third of them skinny. Every second one has sizes that are
    not multiples of 16, from divisible by 8 to odd."""
    rng = random.Random(seed)
    kinds = itertools.cycle(
        itertools.product(
            ("bfloat16", "float16", "tf32", "bfloat16", "float32"),
            (("row", "row"), ("row", "col"), ("col", "row")),
        )
    )
    ops = itertools.cycle(("mm", "mm", "addmm", "bmm", "mm", "mm", "baddbmm"))
    found: list[Problem] = []
    while len(found) < count:
        dtype, (a, b) = next(kinds)
        op = next(ops)
        step = 16 if len(found) % 2 else rng.choice((8, 4, 2, 1))

        def size(low: float, high: float, step: int = step) -> int:
            drawn = 2 ** rng.uniform(math.log2(low), math.log2(high))
            return max(1, round(drawn / step)) * step + (0 if step > 1 else rng.randrange(2))

        m = rng.choice((1, 4, 16, 17, 32, 64)) if rng.random() < 1 / 3 else size(64, 8192)
        batch = rng.choice((2, 8, 32)) if named(op).batched else 1
        high = 8192 if batch == 1 else 1024
        problem = Problem.make(
            op, min(m, high), size(64, high), size(64, high),
            "float32" if dtype == "tf32" else dtype,
            B=batch, a_layout=a, b_layout=b, allow_tf32=dtype == "tf32",
        )  # fmt: skip
        if problem.flops <= MAX_FLOPS and problem not in found:
            found.append(problem)
    return found


def chosen(problem: Problem, each: int, seed: int) -> tuple[Candidate, ...]:
    """ATen, and a sample of the plausible candidates that Inductor offers."""
    import torch

    from diode_engine.core.hardware import detect
    from diode_engine.core.resources import fits
    from diode_engine.inductor.lowering import kernels

    with kernels.graph_for(problem, torch.device("cuda", 0)) as operands:
        offered = list(kernels.offered(problem.op, operands, space="EXHAUSTIVE"))
    ok = fits(problem, offered, detect())
    usable = [c for c, fit in zip(offered, ok, strict=True) if fit and c.tile is not None]
    usable = [c for c in usable if plausible(problem, c)]
    sample = random.Random(f"{seed}/{problem.key}").sample(usable, min(each, len(usable)))
    return (*[c for c in offered if c.is_extern][:1], *sample)


def static(plan: Plan, folder: Path) -> Times:
    """Timings through Inductor."""
    from diode_engine.collect.local import LocalExecutor
    from diode_engine.collect.run import collect
    from diode_engine.store import Store

    with Store.open(folder / "static.db") as store:
        collect(store, plan, LocalExecutor([0]), adviser=lambda _: None)
        table = store.read()
    return {
        (table.problems[table.problem[i]], table.candidates[table.candidate[i]]): table.timing(i)
        for i in range(len(table))
    }


def direct(pairs: Sequence[tuple[Problem, tuple[Candidate, ...]]], bench: Any, lock: Path) -> Times:
    """Timings by direct launches."""
    import torch

    from diode_engine.collect.processes import protocol
    from diode_engine.collect.workers.worker import ProblemOnGpu

    times: Times = {}
    for problem, candidates in pairs:
        with contextlib.closing(ProblemOnGpu(problem, torch.device("cuda", 0), lock)) as work:
            for message in bench.answers(work, list(candidates)):
                if "timing" in message:
                    pair = problem, candidates[message["timing"]]
                    times[pair] = protocol.timing(message)
    return times


def ratios(times: Times, reference: Times, pairs: Iterable[Pair]) -> list[float]:
    found = []
    for pair in pairs:
        ours, theirs = times.get(pair), reference.get(pair)
        if ours and theirs and ours.time_us and theirs.time_us:
            found.append(ours.time_us / theirs.time_us)
    return found


def spread(found: Sequence[float]) -> dict[str, float | int]:
    """Count, median ratio, and median and 90th percentile of |ratio − 1| in percent."""
    if not found:
        return {"pairs": 0}
    off = sorted(100 * abs(r - 1) for r in found)
    return {
        "pairs": len(found),
        "ratio": round(statistics.median(found), 4),
        "median_percent": round(statistics.median(off), 2),
        "p90_percent": round(off[int(0.9 * (len(off) - 1))], 2),
    }


def efficiency(times: Times, reference: Times, problems: Iterable[Problem]) -> float:
    """The geometric mean, over the problems, of the reference's best time over the reference's time
    of the candidate that is best by `times`."""
    logs = []
    for problem in problems:
        both = {
            pair: (t.time_us, reference[pair].time_us)
            for pair, t in times.items()
            if pair[0] == problem and pair in reference
        }
        known = [(a, b) for a, b in both.values() if a and b]
        if len(known) > 1:
            logs.append(math.log(min(b for _, b in known) / min(known)[1]))
    return math.exp(statistics.fmean(logs)) if logs else float("nan")


def kinds(pair: Pair, reference: Times) -> list[str]:
    """The kinds of pairs that the report shows apart."""
    problem, candidate = pair
    timing = reference.get(pair)
    us = timing.time_us if timing and timing.time_us else 0.0
    names = ["under 10 µs" if us < 10 else "10 to 100 µs" if us < 100 else "over 100 µs"]
    if us >= 10:
        names.append("all over 10 µs")
    if candidate.is_extern:
        return [*names, "ATen"]
    assert candidate.tile is not None
    loops = -(-problem.K // candidate.tile["block_k"])
    names.append(
        "K loop to 8" if loops <= 8 else "K loop 9 to 36" if loops <= 36 else "K loop over 36"
    )
    align = min(problem.a.align, problem.b.align)
    names.append("aligned by 8 or 16" if align >= 8 else f"aligned by {align}")
    names.append(candidate.template)
    names.append("tf32" if problem.allow_tf32 else str(problem.dtype))
    cls = shared_class(problem, candidate)
    if align > MAX_ODD_ALIGN and addresses_erratic(problem, candidate):
        names.append("many loads a thread" + (", over 10 µs" if us >= 10 else ", under 10 µs"))
    names.append("own binary" if cls is not None and cls.fixed == ALL_FIXED else "shared binary")
    return names


def compared(passes: dict[str, Times], flat: Sequence[Pair]) -> dict[str, Any]:
    """The report on what the passes measured of the pairs; it is printed too."""
    reference, named = passes["static"], list(dict.fromkeys(problem for problem, _ in flat))
    report: dict[str, Any] = {"passes": {}, "kinds": {}}
    print(f"\n{'':<10}{'pairs':>6}{'ratio':>9}{'median':>9}{'p90':>9}{'best is':>9}{'failed':>8}")
    for which, times in passes.items():
        against = passes["direct"] if which == "repeat" else reference
        row = spread(ratios(times, against, flat)) | {
            "best_efficiency": round(efficiency(times, reference, named), 4),
            "failed": sum(t.failure is not None for t in times.values()),
        }
        report["passes"][which] = row
        print(
            f"{which:<10}{row['pairs']:>6}{row.get('ratio', math.nan):>9.3f}"
            f"{row.get('median_percent', math.nan):>8.2f}%{row.get('p90_percent', math.nan):>8.2f}%"
            f"{row['best_efficiency']:>9.4f}{row['failed']:>8}"
        )
    print("(against static; repeat against direct)\n")
    groups: dict[str, list[Pair]] = {}
    for pair in flat:
        for kind in kinds(pair, reference):
            groups.setdefault(kind, []).append(pair)
    others = [name for name in passes if name != "static"]
    for kind, members in sorted(groups.items()):
        by = {w: spread(ratios(passes[w], reference, members)) for w in others}
        report["kinds"][kind] = by
        shown = "  ".join(
            f"{which} {row.get('ratio', math.nan):.3f} ±{row.get('median_percent', math.nan):.1f}%"
            for which, row in by.items()
        )
        print(f"{kind:<28}{len(members):>5}  {shown}")
    report["rows"] = [
        {
            "problem": p.to_dict(),
            "candidate": c.to_dict(),
            **{w: t.time_us for w, times in passes.items() if (t := times.get((p, c)))},
        }
        for p, c in flat
    ]
    return report


def recalled(path: Path) -> tuple[dict[str, Times], list[Pair]]:
    """The passes and the pairs of the rows in a report."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().stream_reader(data).read()
    rows = json.loads(data)["rows"]
    flat = [(Problem.from_dict(r["problem"]), Candidate.from_dict(r["candidate"])) for r in rows]
    names = [name for name in rows[0] if name not in ("problem", "candidate", "collect")]
    passes = {
        name: {p: Timing(median_us=r[name]) for p, r in zip(flat, rows, strict=True) if r.get(name)}
        for name in names
    }
    return passes, flat


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=70)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compilers", type=int)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    if options.rows:
        compared(*recalled(options.rows))
        return
    measure(options)


def measure(options: argparse.Namespace) -> None:
    """Times the pairs in all passes, and compares them."""
    import torch

    from diode_engine.collect.binaries import Binaries
    from diode_engine.collect.local import cores
    from diode_engine.collect.processes.compiler_pool import CompilerPool
    from diode_engine.collect.workers.direct_worker import Bench
    from diode_engine.collect.workers.driver import Driver
    from diode_engine.core.hardware import environment

    if not torch.cuda.is_available():
        sys.exit("There is no GPU here; this compares timings.")
    pairs = [
        (p, chosen(p, options.each, options.seed)) for p in problems(options.problems, options.seed)
    ]
    flat: list[Pair] = [(p, c) for p, candidates in pairs for c in candidates]
    plan = Plan(
        tuple(PlannedProblem(p, CandidateSelection(fixed=candidates)) for p, candidates in pairs)
    )
    print(f"{len(flat)} pairs of {len(pairs)} problems", flush=True)
    passes: dict[str, Times] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")  # problems at work empty it
        lock = folder / "gpu.lock"
        binaries = Binaries(folder / "binaries", environment())
        with CompilerPool(binaries, options.compilers or max(1, cores() - 1)) as compilers:
            compilers.order([c for p in flat if (c := shared_class(*p)) is not None]).result()
        for which in ("static", "again", "direct", "repeat"):
            (folder / which).mkdir()
            if which in ("static", "again"):
                passes[which] = static(plan, folder / which)
            else:
                bench = Bench(torch.device("cuda", 0), lock, binaries, Driver(device=0))
                passes[which] = direct(pairs, bench, lock)
                del bench
                torch.cuda.empty_cache()
            print(f"{which}: {len(passes[which])} timings", flush=True)
    report = compared(passes, flat)
    report["environment"] = binaries.environment.to_dict()
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
