"""The set's timer, checked on an NVIDIA GPU: candidates of drawn problems by CUDA graphs as well.

    python benchmarks/regret/check_timer.py [--problems N] [--each N] [--seconds S] [--json FILE]
    python benchmarks/regret/check_timer.py --rows FILE

Of each problem the library's kernel, the three best of the set and others of up to three times the
best's time are timed

collector  as `collect --direct` does it, which made the set: launches one behind the other, each
           between two events, with fresh operands;
graph      in CUDA graphs, without events between the launches: a graph for each candidate holds
           its launches on different operands; the graphs are replayed in turn, behind a kernel
           that fills the cache with other data, and the median of the rounds counts.

It prints how far the two are apart. It also prints, by the graphs' times, how much slower than the
best candidate the one is that the collector (or the set) finds best. With --rows it prints this for
the rows of an earlier run; that needs no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from score import SET, read

Row = dict[str, Any]
Timed = tuple[Row, float]  # a candidate and its microseconds
BEST = 3  # of the set
NEAR = 3.0  # times the best's time: the others are drawn from those under it
MAX_FLOPS = 2e11  # longer ones say nothing more, and take the time of others
ROUNDS = 9
GRAPH_US = 2000  # of a graph, or as many launches as MAX_LAUNCHES
MAX_LAUNCHES = 256
MIN_LAUNCHES = 8
CACHES = 4  # so many caches' worth of other data are read before a replay
WAIT_US = 500  # of the device before a replay, so that the host has enqueued all of it
PASSES = ("collector", "recorded")


def drawn(path: Path, count: int, each: int, seed: int) -> list[tuple[Row, list[Timed]]]:
    """So many problems of the set, each with so many of its candidates and their times."""
    head, rows = read(path)
    rng = random.Random(seed)
    rng.shuffle(rows)
    found = []
    for row in rows:
        p = row["problem"]
        if 2 * p["B"] * p["M"] * p["N"] * p["K"] > MAX_FLOPS:
            continue
        pairs = list(
            zip((head["candidates"][i] for i in row["candidates"]), row["us"], strict=True)
        )
        kernels = [(c, us) for c, us in pairs if c["template"].startswith("triton::")]
        kernels.sort(key=lambda pair: pair[1])
        near = [pair for pair in kernels[BEST:] if pair[1] <= NEAR * min(row["us"])]
        others = rng.sample(near, min(len(near), max(0, each - BEST - 1)))
        found.append((p, [pairs[row["library"]], *kernels[:BEST], *others]))
        if len(found) == count:
            break
    return found


def off(ratios: Sequence[float]) -> str:
    """The median ratio, and how far the ratios are from it."""
    if not ratios:
        return "none"
    middle = statistics.median(ratios)
    away = sorted(100 * abs(r / middle - 1) for r in ratios)
    return (
        f"{len(ratios)} pairs, ratio {middle:.3f}, off from it by {statistics.median(away):.1f} % "
        f"(90th percentile {away[int(0.9 * (len(away) - 1))]:.1f} %)"
    )


def best_by(rows: Sequence[Row], which: str) -> list[float]:
    """By problem: the best graph's time over the graph's time of the candidate best by `which`."""
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(row["problem"], []).append(row)
    return [
        min(r["graph"] for r in some) / min(some, key=lambda r: float(r[which]))["graph"]
        for some in by.values()
        if len(some) > 1
    ]


def summary(rows: Sequence[Row]) -> None:
    """Prints what the rows say."""
    print(f"spread of the graphs' rounds: {statistics.median(r['spread'] for r in rows):.2%}")
    bands = {
        "all": rows,
        "under 10 µs": [r for r in rows if r["graph"] < 10],
        "10 to 100 µs": [r for r in rows if 10 <= r["graph"] < 100],
        "over 100 µs": [r for r in rows if r["graph"] >= 100],
        "the library's": [r for r in rows if r["library"]],
        "Triton's": [r for r in rows if not r["library"]],
    }
    for which in PASSES:
        for band, some in bands.items():
            print(f"{which} / graph, {band}: {off([r[which] / r['graph'] for r in some])}")
        found = best_by(rows, which)
        if found:
            print(
                f"the best by {which} has {statistics.geometric_mean(found):.4f} of the best "
                f"graph's speed on {len(found)} problems, at worst {min(found):.3f}"
            )


def graph_times(
    launches: Sequence[Callable[[Any, int], None]],
    operands: Any,
    about_us: Sequence[float],
    l2_bytes: int,
    clock_mhz: int,
) -> list[tuple[float, float]]:
    """Each one's microseconds a launch, and how far its rounds are apart (the longest over the
    shortest, less 1)."""
    import torch

    graphs: list[tuple[Any, int]] = []
    for launch, us in zip(launches, about_us, strict=True):
        count = min(MAX_LAUNCHES, max(MIN_LAUNCHES, int(GRAPH_US / us)))
        places = [operands.next() for _ in range(count)]
        launch(places[0], torch.cuda.current_stream().cuda_stream)  # warm: a library loads its code
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for place in places:
                launch(place, torch.cuda.current_stream().cuda_stream)
        graphs.append((graph, count))
    other = torch.empty(CACHES * l2_bytes // 4, device="cuda").normal_()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(ROUNDS + 1):  # the first is not counted: a graph is uploaded at its first launch
        for (graph, count), found in zip(graphs, times, strict=True):
            other.sum()
            torch.cuda._sleep(int(WAIT_US * clock_mhz))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            found.append(1e3 * begin.elapsed_time(end) / count)
    return [(statistics.median(t[1:]), max(t[1:]) / min(t[1:]) - 1) for t in times]


def measured(options: argparse.Namespace) -> list[Row]:
    import torch

    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here; --rows compares what an earlier run has written.")
    from diode_engine.collect.binaries import Binaries
    from diode_engine.collect.local import cores
    from diode_engine.collect.processes import protocol
    from diode_engine.collect.processes.compiler_pool import CompilerPool
    from diode_engine.collect.workers.direct_worker import Bench
    from diode_engine.collect.workers.driver import Driver
    from diode_engine.collect.workers.launch import Launch
    from diode_engine.collect.workers.operands import Operands, Pools
    from diode_engine.collect.workers.worker import ProblemOnGpu
    from diode_engine.core.candidate import Candidate
    from diode_engine.core.hardware import environment
    from diode_engine.core.problem import Problem
    from diode_engine.inductor.lowering import kernels
    from diode_engine.inductor.lowering.binary import Binary
    from diode_engine.inductor.lowering.kernel_class import KernelClass, shared_class

    deadline = time.monotonic() + options.seconds
    device = torch.device("cuda", 0)
    todo = [
        (Problem.from_dict(p), [(Candidate.make(**c), us) for c, us in pairs])
        for p, pairs in drawn(SET, options.problems, options.each, options.seed)
    ]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")  # problems at work empty it
        lock = folder / "gpu.lock"
        binaries = Binaries(folder / "binaries", environment())
        hardware = binaries.environment.hardware
        began = time.monotonic()
        with CompilerPool(binaries, max(1, cores() - 1)) as compilers:
            orders = [
                compilers.order([cls for c, _ in pairs if (cls := shared_class(p, c))])
                for p, pairs in todo
            ]
            for order in orders:  # half of the time at most; what is missing then is left out
                left = began + options.seconds / 2 - time.monotonic()
                if not select.select([order], [], [], max(0.0, left))[0]:
                    break
                order.result()
        print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)

        def ready(problem: Problem, candidate: Candidate) -> bool:
            cls = shared_class(problem, candidate)
            return candidate.is_extern or (cls is not None and binary_of(cls) is not None)

        def binary_of(cls: KernelClass) -> Binary | None:
            found = binaries.get(cls)
            return found if isinstance(found, Binary) else None

        driver = Driver(device=0)
        bench = Bench(device, lock, binaries, driver)
        pools = Pools(device, hardware.l2_bytes)
        scratches: list[torch.Tensor] = []

        def scratch_of(nbytes: int) -> int:
            if not scratches or scratches[-1].nbytes < nbytes:
                scratches.append(torch.empty(nbytes, dtype=torch.uint8, device=device))
            return scratches[-1].data_ptr()

        def launching(work: Any, candidate: Any, operands: Any) -> Callable[[Any, int], None]:
            cls = shared_class(work.problem, candidate)
            if cls is None:
                library = kernels.library_call(work.choices[candidate])

                def call(place: Any, _: int) -> None:
                    inputs, out = operands.tensors(place)
                    library(*inputs, out=out)

                return call
            binary = binary_of(cls)
            launch = Launch(
                driver, binary, cls, work.problem, multiprocessors=hardware.multiprocessors,
                scratch=scratch_of,
            )  # fmt: skip
            launch.use(driver.load(binary))
            return launch

        for problem, all_pairs in todo:
            pairs = [(c, us) for c, us in all_pairs if ready(problem, c)]
            if len(pairs) < 2:
                continue
            if time.monotonic() > deadline:
                print("The time limit is reached; the other problems are left out.")
                break
            with contextlib.closing(ProblemOnGpu(problem, device, lock)) as work:
                candidates = [c for c, _ in pairs]
                timings = {
                    m["timing"]: protocol.timing(m).time_us
                    for m in bench.answers(work, candidates)
                    if "timing" in m
                }
                there = [i for i in range(len(pairs)) if timings.get(i)]
                if len(there) < 2:
                    continue
                operands = Operands(problem, pools)
                launches = [launching(work, candidates[i], operands) for i in there]
                about = [float(timings[i] or 0) for i in there]
                graphs = graph_times(
                    launches, operands, about, hardware.l2_bytes, hardware.clock_mhz
                )
            for i, (us, spread) in zip(there, graphs, strict=True):
                row = {
                    "problem": str(problem), "candidate": str(candidates[i]),
                    "library": candidates[i].is_extern, "recorded": pairs[i][1],
                    "collector": timings[i], "graph": us, "spread": spread,
                }  # fmt: skip
                rows.append(row)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    summary(json.loads(options.rows.read_text()) if options.rows else measured(options))


if __name__ == "__main__":
    main()
