"""Products of groups of experts: how much faster the best kernel is than the library's, and how
much is lost where the groups differ from those that it was chosen for.

    python benchmarks/grouped_mm.py [--json FILE] [--dataset FILE] [--minutes N] [--problems N]
    python benchmarks/grouped_mm.py --report FILE

All candidates that Inductor offers for torch._grouped_mm, and in 8 bits for _scaled_grouped_mm, are
compiled by processes on all cores, and timed with every division of a problem's groups
(`core/operators/grouped.py`): equal groups, a router's mild and strong skew, one hot group, and
empty ones. The problems are drawn from the layers of published models; all are held out, so that no
shipped model has learned from them. The reference is the library's call, which plain torch.compile
makes. Beside it the report has what the shipped model for the H200 takes, which does not know the
groups, and what one would take who knew equal groups, as Inductor's own search does, or a router's.

`--dataset` writes the timings in the form that Diode learns from: the mean over a router's
divisions. Each row is written at once, one JSON object a line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import measuring
import torch
import zstandard

from diode_engine.choosing.policy import taken
from diode_engine.collect.workers import inputs, timer
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment, environment
from diode_engine.core.operators.grouped import DIVISIONS, ROUTED, UNIFORM, offsets_tensor
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.inductor.lowering import kernels
from diode_engine.models.predictor import Predictor
from diode_engine.problems.sources.experts import GroupedExperts
from diode_engine.problems.splits import held_out_by
from diode_engine.registry import load_predictor
from diode_engine.store.datasets.writing import write_dataset

AHEAD = 6  # problems that are being compiled while one is timed
BUDGET_MS = 3.0  # of launches of a candidate with one division of the groups
ROUTED_MEAN = "a router's"  # the mean over a router's divisions
HOPELESS = 3.0  # times the library's time: a slower candidate is not timed with more divisions

Row = dict[str, Any]


class Prepared:
    """A problem's kernels, being compiled."""

    def __init__(self, problem: Problem, device: torch.device, compilers: Any) -> None:
        self.problem = problem
        self.callers: dict[Candidate, Any] = {}
        self._futures: dict[Candidate, Any] = {}
        with kernels.graph_for(problem, device) as operands:
            for candidate, offer in kernels.offered(
                problem.op, operands, fields=problem.op_fields
            ).items():
                caller = offer.choice
                if caller is None:
                    continue
                self.callers[candidate] = offer
                if not candidate.is_extern:
                    request = caller.bmreq
                    self._futures[candidate] = compilers.triton(
                        request.kernel_name, Path(request.module_path).read_text()
                    )

    def wait(self, candidate: Candidate) -> None:
        """Until it is compiled. Raises what the compiler raises."""
        future = self._futures.get(candidate)
        # A kernel that was compiled before is returned itself, not as a future.
        if future is not None and hasattr(future, "result"):
            future.result()


def timed(work: Prepared, device: torch.device) -> Iterator[Row]:
    """A row for each candidate: its times by division, or the error."""
    problem, clock = work.problem, timer.Timer(device)
    operands = inputs.random_inputs(problem, device)
    out = inputs.empty_output(problem, device)
    divisions = DIVISIONS if problem.op.divided else (UNIFORM,)
    sets, references = {}, {}
    dtype, place = getattr(torch, problem.dtype), -1
    if problem.op.divided:
        place = list(problem.input_shapes()).index("offsets")
    for division in divisions:
        given = list(operands)
        if problem.op.divided:
            given[place] = offsets_tensor(torch, problem, division, device)
        sets[division] = given
        references[division] = inputs.reference(problem, given)
    library: dict[str, float] = {}
    for candidate, offer in work.callers.items():
        row: Row = {"problem": problem.to_dict(), "candidate": candidate.to_dict(), "us": {}}
        try:
            work.wait(candidate)
            for division, given in sets.items():
                launch: Callable[[], Any] = kernels.launchable(offer, given, out)
                out.fill_(float("nan"))
                result = launch()
                result = result if isinstance(result, torch.Tensor) else out
                right = references[division]
                if not timer.is_right(result, right, tf32=False, dtype=dtype):
                    row.setdefault("wrong", []).append(division)
                    continue
                timing = clock.time(launch)
                row["us"][division] = [timing.min_us, timing.median_us]
                if candidate.is_extern:
                    library[division] = timing.median_us or 0.0
                elif (timing.median_us or 0.0) > HOPELESS * library.get(division, 1e12):
                    break
        except Exception as error:  # noqa: BLE001  # whatever a kernel does is a result
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        yield row


def run(problems: Sequence[Problem], rows: list[Row], path: Path | None, end: float) -> None:
    from torch._inductor.async_compile import AsyncCompile

    timer.BUDGET_MS = BUDGET_MS
    device = torch.device("cuda", torch.cuda.current_device())
    compilers = AsyncCompile()
    AsyncCompile.wait_pool_ready()
    done = {json.dumps(row["problem"], sort_keys=True) for row in rows}
    todo = [p for p in problems if json.dumps(p.to_dict(), sort_keys=True) not in done]
    ahead: list[Prepared] = []
    with path.open("a") if path else contextlib.nullcontext() as file:
        while (todo or ahead) and time.monotonic() < end:
            while todo and len(ahead) < AHEAD:
                try:
                    ahead.append(Prepared(todo[0], device, compilers))
                except Exception as error:  # noqa: BLE001  # the other problems are worth having
                    print(f"{todo[0]} is left out: {error!r}"[:200], flush=True)
                del todo[0]
            if not ahead:
                break
            work = ahead.pop(0)
            found: list[Row] = []
            try:
                found.extend(timed(work, device))
                torch.cuda.empty_cache()
            except torch.OutOfMemoryError as error:
                print(f"{work.problem} is left out: {error!r}"[:200], flush=True)
            except RuntimeError as error:  # the device is of no more use to this process
                print(f"It ends at {work.problem}: {error!r}"[:300], flush=True)
                return
            rows += found
            if file:
                file.writelines(json.dumps(row) + "\n" for row in found)
                file.flush()
            print(f"{work.problem}: {len(found)} candidates", flush=True)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file (.jsonl or .jsonl.zst), without one that was not written to its end."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompress(data)
    return [json.loads(line) for line in data.splitlines() if line.endswith(b"}")]


def by_problem(rows: Sequence[Row]) -> dict[Problem, dict[Candidate, Row]]:
    found: dict[Problem, dict[Candidate, Row]] = defaultdict(dict)
    for row in rows:
        candidate = Candidate.from_dict(row["candidate"])
        found[Problem.from_dict(row["problem"])][candidate] = row
    return found


def routed_us(problem: Problem, row: Row) -> tuple[float, float] | None:
    """The least and the median time, each as the mean over a router's divisions (where nothing is
    divided, the one time); None where some of them are missing."""
    wanted = ROUTED if problem.op.divided else (UNIFORM,)
    if "error" in row or any(division not in row["us"] for division in wanted):
        return None
    least, median = zip(*(row["us"][division] for division in wanted), strict=True)
    return statistics.fmean(least), statistics.fmean(median)


def choices(
    model: Predictor | None, problem: Problem, of: Mapping[Candidate, Row]
) -> dict[str, Candidate]:
    """The kernel that each way takes, by the name of the way."""
    routed = {c: us[1] for c, row in of.items() if (us := routed_us(problem, row))}
    equal = {c: of[c]["us"][UNIFORM][1] for c in routed if UNIFORM in of[c]["us"]}
    ways = {
        "a router's groups": min(routed, key=lambda c: routed[c]),
        "equal groups": min(equal, key=lambda c: equal[c]),
        "the library's": next(c for c in routed if c.is_extern),
    }
    candidates = list(routed)
    ranking = None if model is None else model.predict(problem, candidates)
    if ranking is not None and ranking.order.size:
        ways["the shipped model"] = candidates[taken(problem, candidates, ranking)[0]]
    return ways


def report(rows: Sequence[Row], model: Predictor | None = None) -> None:
    """Prints the best kernel's speed over the library's, and what each way of choosing reaches
    under each division of the groups, by type."""
    failed = sum("error" in row for row in rows)
    wrong = sum("wrong" in row for row in rows)
    timed_in_full = {
        problem: of
        for problem, of in by_problem(rows).items()
        if any(c.is_extern and routed_us(problem, row) for c, row in of.items())
    }
    print(f"{len(timed_in_full)} problems; {failed} candidates failed, {wrong} gave a wrong result")
    for dtype in sorted({problem.dtype for problem in timed_in_full}):
        some = {p: of for p, of in timed_in_full.items() if p.dtype == dtype}
        print(f"{dtype}, {len(some)} problems:")
        _report(some, model)


def _report(found: Mapping[Problem, Mapping[Candidate, Row]], model: Predictor | None) -> None:
    gains: list[float] = []
    lost: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for problem, of in found.items():
        ways = choices(model, problem, of)
        routed = {c: us[1] for c, row in of.items() if (us := routed_us(problem, row))}
        library = next(c for c in routed if c.is_extern)
        gains.append(routed[library] / min(routed.values()))
        by_division = {ROUTED_MEAN: routed}
        for division in DIVISIONS if problem.op.divided else ():
            rows = {c: row["us"] for c, row in of.items() if division in row["us"]}
            by_division[division] = {c: us[division][1] for c, us in rows.items()}
        for division, times in by_division.items():
            for way, choice in ways.items():
                if choice in times and library in times:
                    time_us = times[choice]
                    results = min(times.values()) / time_us, times[library] / time_us
                    lost[way, division].append(results)
    over = sum(gain > 1.02 for gain in gains) / len(gains)
    print(
        f"the best over the library's, with a router's groups: {measuring.geomean(gains):.3f} "
        f"in the geomean, over 1.02 for {over:.0%}, at most {max(gains):.2f}"
    )
    for (way, division), each in lost.items():
        best, speed = map(list, zip(*each, strict=True))
        print(
            f"chosen by {way:19s} under {division:13s}: {measuring.geomean(best):.3f} of the best, "
            f"at worst {min(best):.3f}; {measuring.geomean(speed):.3f} of the library's speed "
            f"({len(each)})"
        )


def table(rows: Sequence[Row], where: Environment) -> TimingTable:
    """The complete timings, in the form that Diode learns from."""
    records = []
    for problem, of in by_problem(rows).items():
        for candidate, row in of.items():
            us = routed_us(problem, row)
            if us is not None:
                records.append((problem, candidate, where, Timing(*us)))
    return TimingTable.from_records(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    path = args.report or args.json
    rows = [] if path is None or not path.exists() else read_rows(path)
    model = load_predictor(H200)
    if args.report:
        report(rows, model)
        return
    measuring.need_gpu()
    end = time.monotonic() + 60 * args.minutes
    drawn = dict.fromkeys(islice(GroupedExperts().problems(0), 20 * args.problems))
    held_out = islice(filter(held_out_by, drawn), args.problems)
    with measuring.always(lambda: report(rows, model)):
        run(list(held_out), rows, args.json, end)
        if args.dataset:
            write_dataset(table(rows, environment()), args.dataset)
    measuring.leave()


if __name__ == "__main__":
    main()
