"""What cuBLASLt's algorithms could bring beside torch's own call, product by product, on a GPU.

    python benchmarks/library_algorithms.py --json FILE [--seconds S] [--learn N | SHAPESET …]
    python benchmarks/library_algorithms.py --show FILE

Without a shapeset the products are those of `library_problems/`, one of each file after the other.
For each product: torch's call, twice; up to LISTED algorithms that the heuristic lists; then
algorithms beyond its list, by changing single attributes of the fastest four (`varied`) and at
random (`drawn`). All are launched once, checked against float64 on 64 × 64 places, and timed by
three launches; the fastest are then timed again as CUDA graphs in turn (`replays.py`), where one
half of the rounds chooses and the other is reported. For odd strides also the product with some
operands' strides rounded up to 16 bytes, and the copies that this takes. The file `epilogues` is
measured with each fused epilogue, beside torch's call and a pointwise kernel.

With --learn the products are N that Diode draws for training, none of them held out. Each has the
heuristic's list, algorithms that were fast for others (`library_catalogue.json`) and changed ones,
each timed by three launches twice; nothing is timed again.

Each row goes to --json at once, one JSON object a line; products that it has are not done again. A
process that crashes or hangs costs one product. Rows of held-out products are for no training set.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from library_measuring import LAUNCHES, Operands, quick, self_check
from library_report import error_limit, least_us, line, show
from processes import Row, Rows, each_in_a_process, python, read_rows, rows_out
from replays import graph_of, in_turn

from diode_engine.core.problem import Problem
from diode_engine.inductor.library.cublaslt import (
    EPILOGUES,
    Algorithm,
    CublasError,
    Library,
    Product,
    Result,
)
from diode_engine.models.library_algorithms import Config
from diode_engine.problems.sources import Wanted, mixed, read_shapeset
from diode_engine.problems.splits import held_out_by

FOLDER = Path(__file__).parent / "library_problems"
LISTED, FIRST, BEYOND = 200, 24, 160  # algorithms: of the heuristic, always timed, beyond its list
QUICK_SECONDS, DRAW_SECONDS = 0.35, 0.12  # of launches for each of these groups; of drawing
PRECISE, ROUNDS, WAY_SECONDS = 8, 8, 0.03
LEARNING = "learning"  # the source of products for training
CATALOGUE = FOLDER.with_name("library_catalogue.json")
OPS = ("mm", "addmm", "bmm", "baddbmm")
SOURCES = ("transformers", "harvest:side=learned", "zoo", "log-normal")
LEAST_US, MOST_US = 4, 1000
KNOWN, VARIED = 48, 32  # algorithms of a product for training: of the catalogue, and changed
SPLITS, CLUSTERS = (2, 3, 4, 5, 6, 8, 12, 16), (0, *range(2, 17))
HANG_SECONDS = 25
MOST_VALUES = 64  # of an attribute that are tried


class Task(NamedTuple):
    source: str  # the shapeset's name
    problem: Problem
    epilogue: str

    @property
    def key(self) -> Row:
        return {
            "source": self.source, "problem": self.problem.to_dict(), "epilogue": self.epilogue
        }  # fmt: skip


class Way(NamedTuple):
    """An algorithm for a product with some strides rounded up: `aligned` names these tensors."""

    aligned: str
    origin: str
    product: Product
    found: Result
    config: Config
    sets: Sequence[tuple[torch.Tensor, ...]]  # of a, b and out


class Timed(NamedTuple):
    """An algorithm that works, the error of its result, and its microseconds at a first glance."""

    way: Way
    error: float
    us: float

    def row(self, us: Sequence[float | None]) -> list[Any]:
        """The values of library_report.COLUMNS."""
        way, found = self.way, self.way.found
        waves, error, quick_us = map(short, (found.waves, self.error, self.us))
        head = way.aligned, way.origin, *way.config
        return [*head, found.workspace, waves, error, quick_us, *us]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shapesets", nargs="*", type=Path, metavar="SHAPESET")
    parser.add_argument("--learn", type=int, metavar="N", help="draw N products for training")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the rows; it is continued")
    parser.add_argument("--seconds", type=float, default=3600, help="limit of the whole run")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print what the rows say")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.show:
        show(read_rows(args.show))
        return
    if args.json is None:
        parser.error("--json FILE is needed, for the rows.")
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here, which this benchmark needs.")
    end = time.monotonic() + args.seconds
    if args.learn:
        tasks = drawn_tasks(args.learn)
    else:
        tasks = list(tasks_in(args.shapesets or sorted(FOLDER.glob("*.json"))))
    rows = Rows(args.json)
    if args.child:
        measure(find_left(tasks, rows), rows_out(), end)
        return
    begun: Row = {}
    failed = ""

    def take(_: str, row: Row) -> None:
        nonlocal begun, failed
        if "begun" in row:
            begun = row["begun"]
        elif "problem" in row:
            rows.add(row)
            with contextlib.suppress(ArithmeticError, LookupError, TypeError):
                print(line(row), flush=True)
        else:
            failed = row["error"]

    learn = ["--learn", str(args.learn)] if args.learn else []
    command = ["--child", "--json", str(args.json), *learn, *map(str, args.shapesets)]
    while find_left(tasks, rows) and (seconds := end - time.monotonic()) > 15:
        begun, failed = {}, ""
        child = python(*command, "--seconds", f"{seconds:.0f}")
        each_in_a_process([("", child)], [{}], take, limit_s=seconds, until=end)
        if not failed or time.monotonic() > end - 2:
            break
        print(failed, file=sys.stderr)
        if not begun:
            sys.exit("The measuring process failed before the first product.")
        rows.add({**begun, "error": failed[-500:]})


def tasks_in(files: Sequence[Path]) -> Iterator[Task]:
    """The products of the shapesets, one of each file after the other. Raises DatasetError."""
    each = []
    for file in files:
        names = [name for name in EPILOGUES if name] if file.stem == "epilogues" else [""]
        problems = read_shapeset(file).problems(0)
        each.append([Task(file.stem, problem, name) for problem in problems for name in names])
    for several in zip_longest(*each):
        yield from (task for task in several if task)


def drawn_tasks(count: int) -> list[Task]:
    """Products for training: three quarters in half precision, the rest in float32 and TF32. None
    is held out or takes the host's time alone, by what a GPU can do at best."""
    tasks: list[Task] = []
    for share, types in ((0.75, ("bf16", "fp16")), (0.25, ("fp32", "tf32"))):
        drawn = mixed(8 * count, 0, SOURCES, Wanted(OPS, types))
        fit = [p for p in drawn if not held_out_by(p) and LEAST_US < least_us(p, "H100") < MOST_US]
        tasks += [Task(LEARNING, problem, "") for problem in fit[: int(count * share)]]
    random.Random(0).shuffle(tasks)
    return tasks


def find_left(tasks: Sequence[Task], rows: Rows) -> list[Task]:
    names = ("source", "problem", "epilogue")
    done = {json.dumps({name: row[name] for name in names}) for row in rows.rows}
    return [task for task in tasks if json.dumps(task.key) not in done]


def measure(tasks: Sequence[Task], write: Callable[[Row], None], end: float) -> None:
    """Measures the products until `end`; a row for each."""
    library = Library()
    broken = self_check(library)
    head = {
        "device": torch.cuda.get_device_name(), "torch": str(torch.__version__),
        "cublaslt": library.version,
    }  # fmt: skip
    pools: dict[torch.dtype, torch.Tensor] = {}
    for task in tasks:
        if time.monotonic() > end - 2:
            break
        write({"begun": task.key | head})
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        start = time.monotonic()
        try:
            if task.epilogue in broken:
                raise CublasError(f"The self-check of {task.epilogue} failed.")
            how = measured_for_training if task.source == LEARNING else measured
            row = how(library, task, pools)
        except Exception as error:  # noqa: BLE001  # the other products are worth having
            torch.cuda.synchronize()  # raises where the device is lost
            row = {"error": f"{type(error).__name__}: {error}"[:500]}
        write({**task.key, **head, "error": "", **row, "seconds": time.monotonic() - start})
    faulthandler.cancel_dump_traceback_later()


def measured(library: Library, task: Task, pools: dict[torch.dtype, torch.Tensor]) -> Row:
    """The row of one product."""
    torch.backends.cuda.matmul.allow_tf32 = task.problem.allow_tf32
    operands = Operands(task.problem, task.epilogue, pools)
    torchs, sets = operands.torch_call(), operands.sets("")
    plain_error = operands.errors([torchs], sets[0])[0]
    plain_us = quick([torchs], sets)[0]
    most = max(FIRST, int(QUICK_SECONDS * 1e6 / (plain_us * 1.3 * (LAUNCHES + 1))))
    limit = error_limit(plain_error or 0.0)
    found: list[Timed] = []

    def ranked(some: Sequence[Timed]) -> list[Timed]:
        right = [each for each in some if each.error <= limit]
        return sorted(right, key=lambda each: each.us)

    def try_all(ways: Sequence[Way]) -> list[Timed]:
        some = try_ways(operands, ways)
        found.extend(some)
        return some

    main = operands.product(library, sets[0])
    listed = try_all(ways_of(library, main, "", sets, min(LISTED, most)))
    chosen = listed[:1] + ranked(listed[:FIRST])[:2] + ranked(listed)[:2]
    if not task.epilogue:
        try_all(list(beyond(library, main, sets, [each.way for each in ranked(found)], most)))
    chosen += ranked(found)[:PRECISE]
    precise: list[tuple[str, Callable[..., Any], Sequence[Any]]]
    precise = [("torch", torchs, sets), ("again", torchs, sets)]
    odd = operands.odd
    for aligned in dict.fromkeys([*odd, "+".join(odd)] if odd else []):
        some = operands.sets(aligned)
        other = operands.product(library, some[0])
        tried = try_all(ways_of(library, other, aligned, some, FIRST))
        chosen += tried[:1] + ranked(tried)[:2]
    for name in odd:
        place = ("a", "b", "out").index(name)
        pairs = zip(sets, operands.sets(name), strict=False)
        # an operand is copied to aligned strides, the output from them
        copies = [(x[place], y[place])[:: -1 if name == "out" else 1] for x, y in pairs]
        precise.append((f"copy {name}", lambda x, y: y.copy_(x), copies))
    chosen = list({id(each): each for each in chosen}.values())
    for number, (way, *_) in enumerate(chosen):
        precise.append((str(number), operands.call(way.product, way.found), way.sets))
    graphs = {name: graph_of(call, some) for name, call, some in precise}
    us = {name: halves(each) for name, each in in_turn(graphs, ROUNDS, WAY_SECONDS).items()}
    by_way = {id(each): us[str(number)] for number, each in enumerate(chosen)}
    return {
        "sets": len(sets), "error_of_torch": plain_error,
        "us": {name: each for name, each in us.items() if not name.isdigit()},
        "algorithms": [each.row(by_way.get(id(each), (None, None))) for each in found],
    }  # fmt: skip


def try_ways(operands: Operands, ways: Sequence[Way], times: int = 1) -> list[Timed]:
    """Those of the ways that work, each with the error of its product and the mean of `times` quick
    timings. All ways have the same operands."""
    if not ways:
        return []
    calls = [operands.call(way.product, way.found) for way in ways]
    errors = operands.errors(calls, ways[0].sets[0])
    works = [i for i, error in enumerate(errors) if error is not None]
    us = [quick([calls[i] for i in works], ways[0].sets) for _ in range(times)]
    means = [statistics.mean(each) for each in zip(*us, strict=True)]
    return [Timed(ways[i], errors[i] or 0.0, each) for i, each in zip(works, means, strict=True)]


def measured_for_training(
    library: Library, task: Task, pools: dict[torch.dtype, torch.Tensor]
) -> Row:
    """The row of a product that a model may learn from."""
    torch.backends.cuda.matmul.allow_tf32 = task.problem.allow_tf32
    operands = Operands(task.problem, task.epilogue, pools)
    torchs, sets = operands.torch_call(), operands.sets("")
    plain_error = operands.errors([torchs], sets[0])[0]
    product = operands.product(library, sets[0])
    found = try_ways(operands, ways_of(library, product, "", sets, LISTED), times=2)
    fastest = [each.way for each in sorted(found, key=lambda each: each.us)]
    rng = random.Random(str(task.problem))
    known = from_catalogue(library, product, sets, {way.config for way in fastest}, rng)
    changed = islice(beyond(library, product, sets, [*fastest, *known], KNOWN), VARIED)
    found += try_ways(operands, [*known, *changed], times=2)
    us = [(quick([torchs], sets)[0], quick([torchs], sets)[0]) for _ in range(2)]
    return {
        "sets": len(sets), "error_of_torch": plain_error,
        "us": dict(zip(("torch", "again"), us, strict=True)),
        "algorithms": [each.row((None, None)) for each in found],
    }  # fmt: skip


def from_catalogue(
    library: Library, product: Product, sets: Sequence[Any], done: Set[Config], rng: random.Random
) -> list[Way]:
    """KNOWN algorithms at most, drawn from those that were fast for other products."""
    configs = [Config(*each) for each in json.loads(CATALOGUE.read_text())["configs"]]
    rng.shuffle(configs)
    ways = []
    for config in configs:
        with contextlib.suppress(CublasError):
            algorithm = library.changed(product.initial(config.id), config)
            result = product.check(algorithm) if algorithm and config not in done else None
            if result:
                ways.append(Way("", "known", product, result, config, sets))
        if len(ways) == KNOWN:
            break
    return ways


def short(number: float) -> float:
    return float(f"{number:.4g}")


def halves(us: Sequence[float]) -> tuple[float, float]:
    """The medians of the even and of the odd rounds."""
    return short(statistics.median(us[::2])), short(statistics.median(us[1::2]))


def ways_of(
    library: Library, product: Product, aligned: str, sets: Sequence[Any], most: int
) -> list[Way]:
    """The algorithms that the heuristic lists."""
    return [
        Way(aligned, "listed", product, each, library.config(each.algorithm), sets)
        for each in product.listed(most)
    ]


def beyond(
    library: Library, product: Product, sets: Sequence[Any], known: Sequence[Way], most: int
) -> Iterator[Way]:
    """Algorithms that the heuristic does not list: the fastest known with one attribute changed,
    then any, until there are enough or the time of drawing is over."""
    rng = random.Random(0)
    initial = {}
    for number in product.ids():
        with contextlib.suppress(CublasError):
            initial[number] = product.initial(number)
    can = {number: library.capabilities(each) for number, each in initial.items()}
    done, most = {way.config for way in known}, min(BEYOND, most)

    @functools.cache
    def values(number: int) -> list[Sequence[dict[str, int]]]:
        caps = can[number]
        schemes = [scheme for scheme in (1, 2, 4) if caps.reductions & scheme]
        splits = [{"split_k": 1, "reduction": 0}]
        if caps.split_k:
            splits += [{"split_k": n, "reduction": each} for n in SPLITS for each in schemes]
        return [
            [{"tile": each} for each in caps.tiles], [{"stages": each} for each in caps.stages],
            splits, [{"swizzle": each} for each in range(min(caps.swizzle, 7) + 1)],
            [{"custom": each} for each in range(min(caps.custom, MOST_VALUES) + 1)],
            [{"inner": each} for each in range(5)], [{"cluster": each} for each in CLUSTERS],
        ]  # fmt: skip

    def drawn() -> Iterator[tuple[str, Algorithm, Config]]:
        varied = [
            ("varied", way.found.algorithm, way.config._replace(**change))
            for way in known[:4]
            if way.config.id in can
            for changes in values(way.config.id)
            for change in rng.sample(changes, min(len(changes), 40))
        ]
        rng.shuffle(varied)
        yield from varied
        while can:
            number = rng.choice(list(can))
            config = Config(number)
            for changes in values(number):
                config = config._replace(**rng.choice(changes))
            yield "drawn", initial[number], config

    counts = {"varied": 0, "drawn": 0}
    start = time.monotonic()
    for origin, algorithm, config in drawn():
        late = time.monotonic() - start > DRAW_SECONDS * (1 + (origin == "drawn"))
        if (origin == "drawn" and late) or sum(counts.values()) >= most:
            return
        if late or config in done or (origin == "varied" and counts[origin] >= most * 2 // 3):
            continue
        done.add(config)
        changed = library.changed(algorithm, config)
        result = product.check(changed) if changed else None
        if result:
            counts[origin] += 1
            yield Way("", origin, product, result, config, sets)


if __name__ == "__main__":
    main()
