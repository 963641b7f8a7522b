"""The zoo: models that people run, in every way that Diode chooses, beside plain torch.compile.

    python benchmarks/zoo.py [--models REGEX] [--ways WAY,…] [--json FILE] [--seconds S]
        [--gpus N] [--compilers N] [--limit S]          measure, on a GPU
    python benchmarks/zoo.py --lower [--models REGEX] [--ways …] [--json FILE] [--workers N]
        [--products FILE]                               lower for an H200 that need not be there
    python benchmarks/zoo.py --set FILE …               other models (a file like libraries.json),
        or products (a shapeset or a folder of them), each alone, its operands not in the cache
    python benchmarks/zoo.py --report FILE [--markdown] what was measured
    python benchmarks/zoo.py --list [--models REGEX]

Each row goes to --json at once, one JSON object a line. A model and way that the file has already
are not done again. What is measured, and how: docs/notes/README.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zoo_report
from processes import Rows, always, each_in_a_process, leave, need_gpu, python, rows_out
from zoo_models import ZOO, Model, libraries, missing, single
from zoo_report import wrong

from diode_engine.documents import read_document
from diode_engine.errors import DatasetError, DiodeError
from diode_engine.problems.sources.shapeset import LIMITS

QUICK = ("plain", "import", "fast", "install", "threshold")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],  # type: ignore[union-attr]
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", default="", metavar="REGEX", help="only models of such names")
    parser.add_argument("--ways", help="with commas; plain always comes first")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the rows; it is continued")
    parser.add_argument("--seconds", type=float, default=3600, help="time limit to begin a model")
    parser.add_argument("--limit", type=float, default=240, help="seconds a model, at most")
    parser.add_argument("--gpus", type=int, help="how many; all of this machine's")
    parser.add_argument("--compilers", type=int, default=2, help="models that compile for a GPU")
    parser.add_argument("--workers", type=int, default=1, help="processes that lower")
    parser.add_argument("--set", default="zoo", help="other models, or products")
    parser.add_argument("--products", type=Path, metavar="FILE", help="a shapeset, with --lower")
    parser.add_argument("--markdown", action="store_true", help="with --report")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--lower", action="store_true")
    what.add_argument("--report", type=Path, metavar="FILE")
    what.add_argument("--list", action="store_true")
    what.add_argument("--one", choices=("lower", "measure"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        models = _models(args)
    except re.error as error:
        parser.error(f"--models is no regular expression: {error}")
    except DiodeError as error:
        parser.error(str(error))
    if not models:
        parser.error(f"no model's name has {args.models!r} in it; --list shows them")
    if args.list:
        for model in models:
            print(f"{model.name:36s} {model.group:16s} {model.source:13s} {model.kind}")
    elif args.report:
        zoo_report.show(args.report, markdown=args.markdown)
    else:
        _ways(args, parser)
        if args.one:
            _one(args, models)
        elif args.lower:
            sys.exit(_lower(args, models))
        else:
            _measure(args, models)


def _models(args: argparse.Namespace) -> list[Model]:
    """The models of the set that --models names. Raises re.error, DatasetError."""
    path = Path(args.set)
    table = read_document(path, LIMITS, DatasetError) if path.is_file() else None
    if args.set == "zoo":
        models = list(ZOO.values())
    elif isinstance(table, dict) and "models" in table:
        models = list(libraries.models(table))
    else:
        models = single.products(path)
    return [model for model in models if re.search(args.models, model.name)]


def _ways(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    from zoo_ways import WAYS

    quick = [*QUICK, "mode"] if args.lower else QUICK
    given = quick if args.ways is None else args.ways.split(",")
    if unknown := set(given) - set(WAYS):
        parser.error(f"there is no way {', '.join(unknown)}; there are {', '.join(WAYS)}")
    args.ways = ["plain", *(way for way in WAYS if way in given and way != "plain")]


def _one(args: argparse.Namespace, models: list[Model]) -> None:
    """The work of one process."""
    write = rows_out()
    (model,) = models
    if args.one == "lower":
        import zoo_lowering

        zoo_lowering.lower(model, args.ways, write)
    else:
        import zoo_measuring

        zoo_measuring.measure(model, args.ways, write)
    leave()


def _tasks(
    models: list[Model], ways: list[str], done: set[tuple[str, str]], work: str, of: str = "zoo"
) -> list[tuple[str, list[str]]]:
    """(name, command) for each model that can be built here and has a way that is not done yet."""
    tasks = []
    for model in models:
        if reason := missing(model.source):
            print(f"{model.name}: left out, {reason}", file=sys.stderr)
        elif left := [way for way in ways if (model.name, way) not in done]:
            given = ",".join({"plain": None, **dict.fromkeys(left)})
            only = f"^{re.escape(model.name)}$"
            command = python("--one", work, "--set", of, "--models", only, "--ways", given)
            tasks.append((model.name, command))
    return tasks


def _lower(args: argparse.Namespace, models: list[Model]) -> int:
    """Lowers the models; returns the exit code: 1 where something is wrong."""
    import torch

    rows = Rows(args.json)
    here = str(torch.__version__)
    done = {(r["model"], r["way"]) for r in rows.rows if r.get("torch") == here and not wrong(r)}
    fresh: list[dict[str, Any]] = []

    def take(name: str, row: dict[str, Any]) -> None:
        row = {"model": name, "way": "", "torch": here, **row}
        rows.add(row)
        fresh.append(row)
        left = int(row.get("stats", {}).get("fallbacks", 0))
        for sentence in wrong(row):
            print(f"{name}, {row['way'] or 'the process'}: {sentence}", flush=True)
        print(
            f"{name:36s} {row['way']:10s} {row.get('products', 0):3d} products chosen "
            f"{row.get('seconds', 0):6.1f} s"
            f"{f', {left} left to Inductor' if left else ''}{'  WRONG' if wrong(row) else ''}",
            flush=True,
        )

    # Earlier rows without errors are kept. The rest is lowered again, and its rows are in `fresh`.
    with tempfile.TemporaryDirectory(prefix="diode-zoo-") as folder:
        slots = [
            {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/{i}", "OMP_NUM_THREADS": "1"}
            for i in range(args.workers)
        ]
        each_in_a_process(
            _tasks(models, args.ways, done, "lower", args.set), slots, take,
            limit_s=args.limit, until=time.monotonic() + args.seconds,
        )  # fmt: skip
    names = {model.name for model in models}
    kept = [r for r in rows.rows if r["model"] in names and r.get("torch") == here]
    if args.products:
        from diode_engine.core.problem import Problem
        from diode_engine.problems.sources import write_shapeset

        found = [Problem.from_dict(p) for row in kept for p in row.get("problems", ())]
        write_shapeset(dict.fromkeys(found), args.products, "the zoo, benchmarks/zoo.py")
        print(f"{len(set(found))} products are in {args.products}")
    plain = {r["model"] for r in fresh if r["way"] == "plain" and r["error"]}
    bad = [r for r in fresh if wrong(r) and not (r["error"] and r["model"] in plain)]
    print(
        f"{len({r['model'] for r in kept})} models, {len(kept)} rows, torch {here}: "
        f"{len(bad)} wrong; plain Inductor fails on {', '.join(sorted(plain)) or 'none'}"
    )
    return 1 if bad else 0


def _measure(args: argparse.Namespace, models: list[Model]) -> None:
    import torch

    need_gpu()
    gpus = min(args.gpus or torch.cuda.device_count(), torch.cuda.device_count())
    rows = Rows(args.json)
    done = zoo_report.finished(rows.rows)
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // (gpus * args.compilers))

    def take(name: str, row: dict[str, Any]) -> None:
        rows.add({"model": name, **row})
        print(zoo_report.line({"model": name, **row}), flush=True)

    with tempfile.TemporaryDirectory(prefix="diode-zoo-") as folder:
        slots = [
            {
                "CUDA_VISIBLE_DEVICES": str(gpu),
                "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
                "OMP_NUM_THREADS": str(min(threads, 4)),
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{gpu}-{i}",
                "ZOO_LOCK": f"{folder}/gpu{gpu}",
            }
            for i in range(args.compilers)
            for gpu in range(gpus)
        ]
        with always(lambda: zoo_report.print_tables(rows.rows)):
            each_in_a_process(
                _tasks(models, args.ways, done, "measure", args.set), slots, take,
                limit_s=args.limit, until=time.monotonic() + args.seconds,
            )  # fmt: skip


if __name__ == "__main__":
    main()
