"""Times cuBLASLt's algorithms beside torch's own call, product by product, on a GPU.

    python benchmarks/library_algorithms.py --json FILE [--seconds S]
        [--learn N | --again ROWS [--long] | SHAPESET …]

With --learn the products are N that Diode draws for training, none of them held out; else those of
the shapesets, or of `library_problems/`, one of each file after the other. Timed for each product
are torch's call, twice; up to LISTED algorithms that the heuristic lists; those that Diode's trees
expect to be the fastest; some that were fast for others (`library_catalogue.json`); and the best
four with one attribute changed. With --again, for the products of rows, only the first two kinds;
with --long the heuristic's first and the four expected to be the fastest, in turns of 24 ms. All
are launched once, checked against float64 on 64 × 64 places, and timed in turn.

Each row goes to --json at once, one JSON object a line; products that it has are not done again. A
process that crashes or hangs costs one product. Rows of held-out products are for no training set.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from library_measuring import Library, Operands, self_check, steady
from library_rows import line
from processes import Row, Rows, each_in_a_process, python, read_rows, rows_out

from diode_engine.core.hardware import detect
from diode_engine.core.problem import Problem
from diode_engine.inductor.library.cublaslt import CublasError, Product, Result
from diode_engine.models.library_algorithms import UNLISTED, Config, Offer, describe, model_for
from diode_engine.problems.sources import Wanted, mixed, read_shapeset
from diode_engine.problems.splits import held_out_by

FOLDER = Path(__file__).parent / "library_problems"
LISTED = 200  # algorithms of the heuristic
LEARNING = "learning"  # the source of products for training
CATALOGUE = FOLDER.with_name("library_catalogue.json")
OPS = ("mm", "addmm", "bmm", "baddbmm")
SOURCES = ("transformers", "harvest:side=learned", "zoo", "log-normal")
FLOPS, BYTES = 798e12, 3.0e12  # a second, measured on an H100
LEAST_US, MOST_US = 4, 400
EXPECTED, KNOWN, VARIED, LONG = 10, 48, 32, 5  # algorithms of a product
SPLITS, CLUSTERS = (2, 3, 4, 5, 6, 8, 12, 16), (0, *range(2, 17))
HANG_SECONDS = 25
MOST_VALUES = 64  # of an attribute that are tried


class Task(NamedTuple):
    source: str  # the shapeset's name
    problem: Problem
    wide: bool = True  # with algorithms that nothing speaks for
    long: bool = False  # few algorithms, in long turns

    @property
    def key(self) -> Row:
        return {"source": self.source, "problem": self.problem.to_dict()}


class Way(NamedTuple):
    """An algorithm that cuBLASLt accepts for a product, and where it is from."""

    origin: str
    found: Result
    config: Config

    def values(self, error: float, us: float) -> list[Any]:
        """The values of library_rows.COLUMNS, of a result with this error after `us`."""
        found = self.found
        return [
            "",
            self.origin,
            *self.config,
            found.workspace,
            short(found.waves),
            short(error),
            us,
        ]


def short(number: float) -> float:
    return float(f"{number:.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shapesets", nargs="*", type=Path, metavar="SHAPESET")
    parser.add_argument("--learn", type=int, metavar="N", help="draw N products for training")
    parser.add_argument("--again", type=Path, metavar="ROWS", help="products to time again")
    parser.add_argument("--json", type=Path, metavar="FILE", required=True, help="for the rows")
    parser.add_argument("--long", action="store_true", help="time few algorithms in long turns")
    parser.add_argument("--seconds", type=float, default=3600, help="limit of the whole run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here, which this benchmark needs.")
    end = time.monotonic() + args.seconds
    if args.learn:
        tasks = drawn_tasks(args.learn)
    elif args.again:
        tasks = tasks_of(read_rows(args.again), args.long)
    else:
        tasks = tasks_in(args.shapesets or sorted(FOLDER.glob("*.json")))
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

    which = ["--learn", str(args.learn)] if args.learn else []
    which += ["--again", str(args.again), *["--long"] * args.long] if args.again else []
    command = ["--child", "--json", str(args.json), *which, *map(str, args.shapesets)]
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


def tasks_in(files: Sequence[Path]) -> list[Task]:
    """The products of the shapesets, one of each file after the other. Raises DatasetError."""
    each = [
        [Task(file.stem, problem) for problem in read_shapeset(file).problems(0)] for file in files
    ]
    return [task for several in zip_longest(*each) for task in several if task]


def drawn_tasks(count: int) -> list[Task]:
    """Products in half precision for training. None is held out or takes the host's time alone, by
    what a GPU can do at best."""
    drawn = mixed(8 * count, 0, SOURCES, Wanted(OPS, ("bf16", "fp16")))
    fit = [p for p in drawn if not held_out_by(p) and LEAST_US < least_us(p) < MOST_US]
    tasks = [Task(LEARNING, problem) for problem in fit[:count]]
    random.Random(0).shuffle(tasks)
    return tasks


def tasks_of(rows: Sequence[Row], long: bool = False) -> list[Task]:
    """The products of rows."""
    return [
        Task(row["source"], Problem.from_dict(row["problem"]), wide=False, long=long)
        for row in rows
        if not row["error"]
    ]


def least_us(problem: Problem) -> float:
    """What a product in half precision takes on an H100 at best; others take longer."""
    return max(problem.flops / FLOPS, problem.moved_bytes[1] / BYTES) * 1e6


def find_left(tasks: Sequence[Task], rows: Rows) -> list[Task]:
    done = {json.dumps({name: row[name] for name in ("source", "problem")}) for row in rows.rows}
    return [task for task in tasks if json.dumps(task.key) not in done]


def measure(tasks: Sequence[Task], write: Callable[[Row], None], end: float) -> None:
    """Measures the products until `end`; a row for each."""
    library = Library()
    self_check(library)
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
            row = measured(library, task, pools)
        except Exception as error:  # noqa: BLE001  # the other products are worth having
            torch.cuda.synchronize()  # raises where the device is lost
            row = {"error": f"{type(error).__name__}: {error}"[:500]}
        write({**task.key, **head, "error": "", **row, "seconds": time.monotonic() - start})
    faulthandler.cancel_dump_traceback_later()


def measured(library: Library, task: Task, pools: dict[torch.dtype, torch.Tensor]) -> Row:
    """The row of one product."""
    torch.backends.cuda.matmul.allow_tf32 = task.problem.allow_tf32
    operands = Operands(task.problem, pools)
    torchs, sets = operands.torch_call(), operands.sets()
    plain_error = operands.errors([torchs], sets[0])[0]
    product = operands.product(library, sets[0])
    listed = [
        Way("listed", each, library.config(each.algorithm))
        for each in product.list_algorithms(LISTED)
    ]
    expected = expected_fastest(library, product, task.problem, listed)
    ways = [*listed, *(way for way in expected if way.origin != "listed")]
    if task.long:
        ways = [*listed[:1], *(way for way in expected if way not in listed[:1])][:LONG]
    if task.wide:
        ways += from_catalogue(library, product, ways, random.Random(str(task.problem)))
        ways += varied(library, product, expected or listed, ways)
    calls = [operands.call(product, way.found) for way in ways]
    errors = operands.errors(calls, sets[0])
    works = [i for i, error in enumerate(errors) if error is not None]
    timed = [torchs, *(calls[i] for i in works), torchs]
    first, *each, last = map(short, steady(timed, sets, least_us(task.problem), task.long))
    return {
        "sets": len(sets), "error_of_torch": plain_error,
        "us": {"torch": [first], "again": [last]},
        "algorithms": [
            ways[i].values(errors[i] or 0.0, us) for i, us in zip(works, each, strict=True)
        ],
    }  # fmt: skip


def expected_fastest(
    library: Library, product: Product, problem: Problem, listed: Sequence[Way]
) -> list[Way]:
    """EXPECTED algorithms at most: those that the GPU's shipped trees expect to be the fastest of
    all that they may take."""
    hardware = detect()
    model = model_for(hardware)
    if model is None or not listed:
        return []
    every = [*listed, *from_configs(library, product, model.configs, listed)]
    places = [*range(len(listed)), *[UNLISTED] * (len(every) - len(listed))]
    offers = [
        Offer(way.config, way.found.workspace, way.found.waves, place)
        for place, way in zip(places, every, strict=True)
    ]
    x = describe(problem, offers, model.tiles, hardware.multiprocessors)
    return [every[i] for i in model.predict(x).argsort()[:EXPECTED]]


def from_catalogue(
    library: Library, product: Product, listed: Sequence[Way], rng: random.Random
) -> list[Way]:
    """KNOWN algorithms at most, drawn from those that were fast for other products."""
    configs = [Config(*each) for each in json.loads(CATALOGUE.read_text())["configs"]]
    rng.shuffle(configs)
    return list(islice(from_configs(library, product, configs, listed), KNOWN))


def from_configs(
    library: Library, product: Product, configs: Iterable[Config], listed: Sequence[Way]
) -> Iterator[Way]:
    """The algorithms so described that cuBLASLt accepts and does not list."""
    done = {way.config for way in listed}
    for config in configs:
        with contextlib.suppress(CublasError):
            algorithm = library.changed(product.initial(config.id), config)
            result = product.check(algorithm) if algorithm and config not in done else None
            if result:
                yield Way("known", result, config)


def varied(
    library: Library, product: Product, best: Sequence[Way], others: Sequence[Way]
) -> list[Way]:
    """VARIED algorithms at most: the first four of the best with one attribute changed, which are
    none of the others."""
    rng = random.Random(0)
    changes = [
        (way, way.config._replace(**change))
        for way in best[:4]
        for some in attributes(library, way)
        for change in rng.sample(some, min(len(some), 40))
    ]
    rng.shuffle(changes)
    done = {way.config for way in others}
    ways: list[Way] = []
    for way, config in changes:
        if config not in done and len(ways) < VARIED:
            done.add(config)
            changed = library.changed(way.found.algorithm, config)
            result = product.check(changed) if changed else None
            if result:
                ways.append(Way("varied", result, config))
    return ways


def attributes(library: Library, way: Way) -> list[list[dict[str, int]]]:
    """The values that an algorithm's capabilities allow, as parts of a config, by attribute."""
    can = library.capabilities(way.found.algorithm)
    schemes = [scheme for scheme in (1, 2, 4) if can.reductions & scheme]
    splits = [{"split_k": 1, "reduction": 0}]
    if can.split_k:
        splits += [{"split_k": n, "reduction": each} for n in SPLITS for each in schemes]
    return [
        [{"tile": each} for each in can.tiles], [{"stages": each} for each in can.stages],
        splits, [{"swizzle": each} for each in range(min(can.swizzle, 7) + 1)],
        [{"custom": each} for each in range(min(can.custom, MOST_VALUES) + 1)],
        [{"inner": each} for each in range(5)], [{"cluster": each} for each in CLUSTERS],
    ]  # fmt: skip


if __name__ == "__main__":
    main()
