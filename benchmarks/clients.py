"""Programs of libraries that call torch.compile: cold start, step time and peak memory.

    python benchmarks/clients.py --json FILE [--only REGEX] [--all] [--seconds N] [--limit N]

Each way of a program runs in a separate process with empty caches: plain torch.compile twice, stock
max-autotune, and Diode, which the environment variable DIODE_AUTOLOAD alone turns on. Max-autotune
and Diode have the option max_autotune_gemm, so that only the kernels of products differ from
plain's. The processes run one after the other. Without --all only the first six programs run. A row
is written as soon as it is there; run it again with the same file to continue. `--tiny` tries
everything in small sizes on a CPU. Diode has to be installed, or its entry point has to be on
PYTHONPATH.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    print(table(rows.rows))


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


def ratios(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """By program, Diode's cold start in units of plain's (the mean of its two) and of
    max-autotune's, its step in units of the slower of plain's and of max-autotune's, and its peak
    memory in units of plain's. Where the search took longer than its limit (`search_over`), Diode's
    cold start is divided by the limit less the seconds that Diode's process took before it."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["program"], {})[row["way"]] = row
    return {name: _ratios(ways) for name, ways in found.items() if _is_measured(ways)}


def _is_measured(ways: Mapping[str, Row]) -> bool:
    return all(way in ways and "cold_s" in ways[way] for way in ("plain", "again", "diode"))


def _ratios(ways: Mapping[str, Row]) -> dict[str, Any]:
    diode, plain, again = (ways[way] for way in ("diode", "plain", "again"))
    search = ways.get("search", {})
    over = re.search(r"over (\d+) s", search.get("error", ""))
    before = diode.get("process_s", 0.0) - diode["cold_s"]
    searched = search.get("cold_s") or (float(over[1]) - before if over else None)
    return {
        "cold_plain": 2 * diode["cold_s"] / (plain["cold_s"] + again["cold_s"]),
        "cold_search": diode["cold_s"] / searched if searched else None,
        "search_over": bool(over),
        "step_plain": diode["step_us"] / max(plain["step_us"], again["step_us"]),
        "step_search": diode["step_us"] / search["step_us"] if "step_us" in search else None,
        "memory": max(diode["first_bytes"], diode["step_bytes"])
        / max(plain["first_bytes"], plain["step_bytes"], 1),
    }


def table(rows: Sequence[Row]) -> str:
    """Diode's ratios, one line a program."""
    lines = [f"{'':40s} {'cold start over':>20s} {'step over':>20s} {'memory':>8s}",
             f"{'':40s} {'plain':>10s}{'search':>10s} {'plain':>10s}{'search':>10s}"
             f" {'plain':>8s}"]  # fmt: skip
    for name, of in ratios(rows).items():
        sign = "<" if of["search_over"] else ""
        cold, step = (
            "-" if of[key] is None else f"{of[key]:.3f}" for key in ("cold_search", "step_search")
        )
        lines.append(f"{name:40s} {of['cold_plain']:10.3f}{sign + cold:>10s}"
                     f" {of['step_plain']:10.3f}{step:>10s} {of['memory']:8.3f}")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
