"""Programs of libraries that call torch.compile: cold start, step time and peak memory.

    python benchmarks/clients.py --json FILE [--only REGEX] [--all] [--seconds N] [--limit N]

Each way of a program runs in a separate process with empty caches: plain torch.compile twice, stock
max-autotune, and Diode, which the environment variable DIODE_AUTOLOAD alone turns on. Max-autotune
and Diode have the option max_autotune_gemm, so that only the kernels of products differ from
plain's. The processes run one after the other. Without --all only the first six programs run. A row
is written as soon as it is there; run it again with the same file to continue. `--tiny` tries
everything in small sizes on a CPU. Diode has to be installed, or its entry point has to be on
PYTHONPATH. docs/write_figures.py makes a table of the rows in results/.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path

from processes import Row, Rows, each_in_a_process, python, rows_out

WARM = "warm"  # a process that is not counted: files and the GPU's libraries are read for the rest
WAYS = ("plain", "diode", "again", "search")
LONG = {"plain": "plain", "again": "plain again", "diode": "Diode", "search": "max-autotune"}
TUNED = {"max_autotune_gemm": True}
MEGA = 2**20


def main() -> None:
    args = arguments()
    if args.one:
        write = rows_out()
        import client_measuring

        write(client_measuring.measure(*args.one, tiny=args.tiny))
        return
    import client_programs

    known = list(client_programs.PROGRAMS) if args.all or args.only else client_programs.CORE
    rows = Rows(args.json)
    with tempfile.TemporaryDirectory(prefix="diode-clients-") as caches:
        tasks = [
            (program, way)
            for program in known
            for way in args.ways
            if re.search(args.only, program)
            and not any(is_of(row, program, way) for row in rows.rows)
        ]
        commands = [
            (f"{program}\n{way}", command(program, way, Path(caches) / str(number), args.tiny))
            for number, (program, way) in enumerate([(WARM, "plain"), *tasks] if tasks else [])
        ]

        def take(name: str, row: Row) -> None:
            program, way = name.split("\n")
            if program == WARM and not row.get("error"):
                return
            row = {"program": program, "way": way, **row}
            rows.add(row)
            print(line(row), flush=True)

        until = time.monotonic() + args.seconds
        each_in_a_process(commands, [{}], take, limit_s=args.limit, until=until)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--seconds", type=float, default=1800, help="no process begins later")
    parser.add_argument("--limit", type=float, default=150, help="seconds of a process")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("PROGRAM", "WAY"), help=argparse.SUPPRESS)
    return parser.parse_args()


def command(program: str, way: str, caches: Path, tiny: bool) -> list[str]:
    """The command of a process that measures one way of a program, with empty caches."""
    environment = [
        f"TORCHINDUCTOR_CACHE_DIR={caches}/inductor", f"TRITON_CACHE_DIR={caches}/triton",
        f"DIODE_AUTOLOAD={int(way == 'diode')}", "HF_HUB_OFFLINE=1",
    ]  # fmt: skip
    flags = ["--tiny"] if tiny else []
    return ["env", *environment, *python("--one", program, way, *flags)]


def is_of(row: Row, program: str, way: str) -> bool:
    return (row["program"], row["way"]) == (program, way)


def line(row: Row) -> str:
    """A row in a few words."""
    head = f"{row['program']:40s} {LONG[row['way']]:13s}"
    if row.get("error"):
        return f"{head} {row['error'][-300:]}"
    return (f"{head} cold {row['cold_s']:6.1f} s  step {row['step_us'] / 1e3:8.3f} ms"
            f"  peak {row['first_bytes'] / MEGA:6.0f} and {row['step_bytes'] / MEGA:6.0f} MiB"
            f"  {row['stats'] or ''}")  # fmt: skip


if __name__ == "__main__":
    main()
