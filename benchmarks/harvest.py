"""Harvests the matrix products of the programs of benchmarks/harvest_models.

    python benchmarks/harvest.py --json FILE [--models REGEX] [--workers N] [--seconds S]
    python benchmarks/harvest.py --json FILE --write SHAPESET
    python benchmarks/harvest.py --list [--models REGEX]

Each program is traced on tensors without data. Then Inductor lowers it for a pretended H200, up to
the point where it would generate code: its products are known then. It needs transformers, timm and
torchvision, and no GPU. Each row goes to --json at once, one JSON object a line. A program that has
a row without an error in the file is not done again. How the rows are used: docs/collection.md.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHUNK = 24  # programs a process: importing the libraries takes as long as several of them
LIMIT_S = 150  # a program


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],  # type: ignore[union-attr]
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the rows; it is continued")
    parser.add_argument("--models", default="", metavar="REGEX", help="only programs of such names")
    parser.add_argument("--workers", type=int, default=1, help="processes that lower")
    parser.add_argument("--seconds", type=float, default=7200, help="time limit to begin a program")
    parser.add_argument("--write", type=Path, metavar="SHAPESET", help="from --json's rows")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    from harvest_models.programs import all_programs

    programs = [p for p in all_programs() if re.search(args.models, p.name)]
    if args.list:
        for program in programs:
            print(f"{program.family:20s} {program.name}")
    elif args.one:
        _one(Path(args.one).read_text().splitlines())
    elif not args.json:
        families = len({program.family for program in programs})
        print(f"There are {len(programs)} programs of {families} families; --json harvests them.")
    elif args.write:
        _write(args.json, {program.name: program for program in programs}, args.write)
    else:
        _harvest(args, [p.name for p in programs])


def _one(names: list[str]) -> None:
    """The work of one process."""
    from processes import rows_out

    write = rows_out()
    from harvest_lowering import products
    from harvest_models.programs import all_programs

    known = {program.name: program for program in all_programs()}

    def late(*_: Any) -> None:
        raise TimeoutError(f"It took over {LIMIT_S} s.")

    signal.signal(signal.SIGALRM, late)
    for name in names:
        program, start = known[name], time.perf_counter()
        row: dict[str, Any] = {
            "program": name, "family": program.family, "model": program.model,
            "library": program.library, "way": program.way, "error": "",
        }  # fmt: skip
        signal.alarm(LIMIT_S)
        try:
            row["batch"], row["asked"], row["left_out"] = products(program)
        except Exception as error:  # noqa: BLE001
            row["error"] = f"{type(error).__name__}: {error}"[:1000]
        finally:
            signal.alarm(0)
        row["seconds"] = round(time.perf_counter() - start, 2)
        write(row)
    import measuring

    measuring.leave()


def _harvest(args: argparse.Namespace, names: list[str]) -> None:
    from processes import each_in_a_process, python

    done = set()
    if args.json.exists():
        rows = map(json.loads, args.json.read_text().splitlines())
        done = {row["program"] for row in rows if not row["error"]}
    left = [name for name in names if name not in done]
    told = collections.Counter()

    def take(_: str, row: dict[str, Any]) -> None:
        if "program" not in row:  # the process failed: its other programs are left to the next run
            print(row["error"], file=sys.stderr, flush=True)
            return
        with args.json.open("a") as file:
            file.write(json.dumps(row) + "\n")
        told["error" if row["error"] else "fine"] += 1
        print(
            f"{row['program']:70s} {len(row.get('asked', ())):3d} products "
            f"{row['seconds']:6.1f} s  {row['error'][:150]}",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="diode-harvest-") as folder:
        tasks = []
        for i in range(0, len(left), CHUNK):
            path = Path(folder) / f"{i}.txt"
            path.write_text("\n".join(left[i : i + CHUNK]))
            tasks.append((str(i), python("--one", str(path))))
        slots = [
            {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache{i}", "OMP_NUM_THREADS": "1"}
            for i in range(args.workers)
        ]
        each_in_a_process(
            tasks, slots, take, limit_s=CHUNK * LIMIT_S, until=time.monotonic() + args.seconds
        )
    print(dict(told))


def _write(rows: Path, programs: dict[str, Any], path: Path) -> None:
    import harvest_writing

    given = [json.loads(line) for line in rows.read_text().splitlines()]
    fine = [row for row in given if not row["error"] and row["program"] in programs]
    places = harvest_writing.write(fine, programs, path, "benchmarks/harvest.py")
    print(f"{len(places)} problems of {len(fine)} programs are in {path}")


if __name__ == "__main__":
    main()
