"""Single products, each compiled alone: Diode beside plain torch.compile, on a GPU.

    python benchmarks/fresh_products.py [--json FILE] [--seconds S] [--compilers N] [SHAPESET …]
    python benchmarks/fresh_products.py --report FILE

Without a shapeset the products are those of `fresh_products/`, whose sizes were in no dataset when
they were drawn (docs/notes/experiments.md). First processes, one a core, compile all with Diode
(fast_autotune), which fills a cache. Then this process, alone on the GPU, takes them one by one:
compiled by plain torch.compile, by plain once more, and with Diode from the cache. Each is a CUDA
graph of one call for each set of operands, 512 MB or more together; the graphs are replayed in
turn, and the median of nine rounds counts. `speed` is plain's first time divided by Diode's; a
product is slower where Diode takes over 1.05 times as long as the slower of plain's two.

Each row goes to --json at once, one JSON object a line; products that it has are not done again.
After --seconds nothing goes on, and what was done is summed up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import torch
from measuring import Way, diode, stock
from processes import Row, Rows, each_in_a_process, python, rows_out
from replays import graph_of, in_turn_us
from zoo_measuring import kept_alive

import diode_engine
from diode_engine.collect.workers.inputs import empty, fill
from diode_engine.core.problem import Problem
from diode_engine.errors import DiodeError
from diode_engine.inductor.lowering import kernels
from diode_engine.problems.sources import read_shapeset

FOLDER = Path(__file__).parent / "fresh_products"
OPS = {"mm", "addmm", "bmm", "baddbmm"}  # whose inputs are random numbers of the operands' type
PLAIN, DIODE = Way({}, stock), Way({"fast_autotune": True}, diode(top_k_configs=1))
ALL_BYTES = 512e6  # of the sets of operands together
MOST_SETS = 8192
SLOWER = 1.05
COMPILING = 0.6  # the share of --seconds that compiling may take


class Product(NamedTuple):
    source: str  # the shapeset's name
    problem: Problem


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],  # type: ignore[union-attr]
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shapesets", nargs="*", type=Path, metavar="SHAPESET")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the rows; it is continued")
    parser.add_argument("--seconds", type=float, default=3600, help="limit of the whole run")
    parser.add_argument("--compilers", type=int, help="processes; one a core")
    parser.add_argument("--report", type=Path, metavar="FILE")
    parser.add_argument("--compile", metavar="NUMBERS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.report:
        report(Rows(args.report).rows)
        return
    try:
        products = products_in(args.shapesets or sorted(FOLDER.glob("*.json")))
    except DiodeError as error:
        parser.error(str(error))
    measuring.need_gpu()
    if args.compile:
        write = rows_out()
        for number in map(int, args.compile.split(",")):
            write({"number": number, **compiled_with_diode(products[number].problem)})
        measuring.leave()
    rows = Rows(args.json)
    with measuring.always(lambda: report(rows.rows)):
        measure(products, rows, args)
    measuring.leave()


def products_in(files: Sequence[Path]) -> list[Product]:
    """The products of the shapesets, one of each file after the other, so that a time limit cuts
    off no single file. Raises DatasetError."""
    each = [
        [
            Product(file.stem, problem)
            for problem in read_shapeset(file).problems(0)
            if str(problem.op) in OPS
        ]
        for file in files
    ]
    return [product for several in zip_longest(*each) for product in several if product]


def measure(products: Sequence[Product], rows: Rows, args: argparse.Namespace) -> None:
    """Compiles and times the products that the rows do not have, until the time is over."""
    done = {(row["source"], json.dumps(row["problem"])) for row in rows.rows}
    left = [
        number
        for number, (source, problem) in enumerate(products)
        if (source, json.dumps(problem.to_dict())) not in done
    ]
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="diode-products-") as folder,
        contextlib.suppress(measuring.Late),
        measuring.alarm(args.seconds),
    ):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        found = compile_all(left, args.shapesets, args.compilers, COMPILING * args.seconds)
        print(f"{len(found)} of {len(left)} compiled in {time.monotonic() - start:.0f} s")
        for number in left:
            source, problem = products[number]
            if number not in found:
                continue
            row = {"source": source, "kind": kind(problem), "problem": problem.to_dict()}
            row |= found[number]
            if not row["error"]:
                row |= timed(problem)
            rows.add(row)
            print(line(row), flush=True)


def compile_all(
    numbers: Sequence[int], shapesets: Sequence[Path], compilers: int | None, seconds: float
) -> dict[int, Row]:
    """Compiles the products of these numbers with Diode, in one process a core,
    for at most `seconds`. Returns by number what `compiled_with_diode` said."""
    found: dict[int, Row] = {}
    count = min(compilers or len(os.sched_getaffinity(0)), len(numbers)) or 1
    parts = [",".join(map(str, numbers[i::count])) for i in range(count)]
    files = [str(file) for file in shapesets]
    tasks = [(part, python("--compile", part, *files)) for part in parts if part]
    slot = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def take(part: str, row: Row) -> None:
        if "number" in row:
            found[row.pop("number")] = row
        else:
            print(f"a process that compiles: {row['error']}"[:500], file=sys.stderr)

    until = time.monotonic() + seconds
    each_in_a_process(tasks, [slot] * count, take, limit_s=seconds, until=until)
    return found


def compiled_with_diode(problem: Problem) -> Row:
    """Compiles the product with Diode and runs it once. Returns the seconds, the kernel with its
    predicted time and the model's confidence, and why nothing was chosen; or the error."""
    start = time.perf_counter()
    try:
        with DIODE.installed(), diode_engine.profile_predictions() as profile:
            before = diode_engine.get_stats()
            compiled(problem, DIODE, operand_sets(problem, "cuda", 0)[0])
            after = diode_engine.get_stats()
    except Exception as error:  # noqa: BLE001  # the other products are worth having
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    row: Row = {"error": "", "compile_s": time.perf_counter() - start, "kernel": "plain's"}
    row["stats"] = {
        name: count
        for name, count in after.items()
        if name.startswith(("fallback_", "passed_", "padding_")) and count != before.get(name)
    }
    for choice in profile.selections[:1]:
        row["kernel"] = str(choice.candidates[0])
        row["predicted_us"], row["confidence"] = choice.predicted_us[0], choice.confidence
        if choice.problem != problem:
            row["chosen_for"] = str(choice.problem)
    return row


def compiled(problem: Problem, way: Way, operands: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """The product compiled in this way, and run once. What surrounds the call must be the way's
    too."""
    operator = problem.op.function(torch, problem)
    torch._dynamo.reset()
    with kernels.tf32(problem.allow_tf32), torch.no_grad():
        call = torch.compile(lambda *x: operator(*x), options=way.options or None, dynamic=False)
        call(*operands)
    torch.cuda.synchronize()
    return call


def timed(problem: Problem) -> Row:
    """The microseconds of the product by plain, by plain once more and with Diode."""
    from torch._inductor.utils import fresh_cache

    torch.cuda.empty_cache()
    try:
        sets = operand_sets(problem, "cuda", ALL_BYTES)
        graphs = {}
        with kernels.tf32(problem.allow_tf32), torch.no_grad(), kept_alive():
            for name, way in (("plain", PLAIN), ("again", PLAIN), ("diode", DIODE)):
                cold = fresh_cache() if way is PLAIN else contextlib.nullcontext()
                with way.installed(), cold:
                    graphs[name] = graph_of(compiled(problem, way, sets[0]), sets)
            us = in_turn_us(graphs)
    except Exception as error:  # noqa: BLE001  # the other products are worth having
        torch.cuda.synchronize()  # raises where the device is lost
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    return {
        "device": torch.cuda.get_device_name(), "torch": str(torch.__version__),
        "sets": len(sets), "spread": max(spread for _, spread in us.values()),
        **{f"{name}_us": each for name, (each, _) in us.items()},
    }  # fmt: skip


def operand_sets(problem: Problem, device: str, all_bytes: float) -> list[tuple[torch.Tensor, ...]]:
    """Sets of inputs of the op with random numbers: enough that they have `all_bytes` together,
    but MOST_SETS at most; two or more, or one where no bytes are asked for."""
    shapes = problem.input_shapes().values()
    generator = torch.Generator(device).manual_seed(0)

    def one() -> tuple[torch.Tensor, ...]:
        return tuple(fill(empty(shape, device), generator) for shape in shapes)

    sets = [one()]
    if all_bytes:
        each = sum(x.untyped_storage().nbytes() for x in sets[0])
        sets += [one() for _ in range(max(2, min(MOST_SETS, int(all_bytes / each) + 1)) - 1)]
    return sets


def kind(problem: Problem) -> str:
    """What the report has figures of."""
    if problem.dtype == "float32":
        return "TF32" if problem.allow_tf32 else "float32"
    strides = min(problem.a.align, problem.b.align)
    aligned = strides >= 8 and problem.N % 8 == problem.K % 8 == 0
    return "half aligned" if aligned else "half odd"


def speed(row: Row) -> float:
    return float(row["plain_us"] / row["diode_us"])


def slower(row: Row) -> bool:
    """Whether Diode is slower than both of plain's compiles by over 5 %."""
    return bool(row["diode_us"] > SLOWER * max(row["plain_us"], row["again_us"]))


def line(row: Row) -> str:
    """One row as a line of text."""
    problem = Problem.from_dict(row["problem"])
    bias = "" if problem.bias == "none" else f" bias {problem.bias}"
    head = f"{row['source']:8s} {f'{problem}{bias}':60s}"
    if row["error"]:
        return f"{head} failed: {row['error'].splitlines()[0][:160]}"
    return (
        f"{head} plain {row['plain_us']:8.2f} us (again {row['again_us']:8.2f})  "
        f"Diode {row['diode_us']:8.2f} us ± {100 * row['spread']:4.1f} %  "
        f"speed {speed(row):.3f}{' SLOWER' if slower(row) else ''}  {row['kernel']}"
    )


def report(rows: Sequence[Row]) -> None:
    """Prints the geometric mean of the speeds, the share that is slower, and the worst, by source
    and by kind; and what is slower, and what failed."""
    good = [row for row in rows if not row["error"]]
    groups: dict[str, list[Row]] = {}
    for name in ("source", "kind"):
        for row in sorted(good, key=lambda row: str(row[name])):
            groups.setdefault(f"{name} {row[name]}", []).append(row)
    print(f"\n{'':24s} products   speed  slower by over 5 %   worst")
    for name, some in [("all", good), *groups.items()]:
        if not some:
            continue
        mean = statistics.geometric_mean(map(speed, some))
        share, worst = sum(map(slower, some)), min(some, key=speed)
        print(
            f"{name:24s} {len(some):8d}  {mean:6.3f}  {share:6d} ({share / len(some):6.1%})"
            f"   {speed(worst):6.3f} {Problem.from_dict(worst['problem'])}"
        )
    for title, chosen in (
        ("Slower", [row for row in good if slower(row)]),
        ("Named, and under 0.97 of plain's speed",
         [row for row in good if row["source"] == "named" and speed(row) < 0.97]),
        ("Failed", [row for row in rows if row["error"]]),
    ):  # fmt: skip
        if chosen:
            print(f"\n{title}:")
        for row in chosen:
            print(f"  {line(row)}")


if __name__ == "__main__":
    main()
