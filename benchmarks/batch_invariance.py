"""Whether a row's result is the same whatever batch it is in, and what that costs, on a GPU.

    python benchmarks/batch_invariance.py [--json FILE] [--seconds S] [--workers N]
                                          [--parts kernels layers serving] [--only WORD …]
    python benchmarks/batch_invariance.py --report FILE

kernels: kernels of each order of summation (diode_engine/choosing/summation.py), compiled as
`collect --direct` does it and launched on the same rows in batches of other sizes, on four kinds of
data. A kernel's `digest` is of the bits of all rows: two kernels with equal digests agree.

layers: layers of Llama 3, Qwen 3, Gemma 3 and DeepSeek by torch.compile with the option
diode_batch_invariant, by Diode without it, by the library and by one persistent kernel. 1,000 pairs
of batches of random sizes share rows, which are compared bit by bit; then all are timed. A few
layers are in float32, TF32 and float8, for fewer sizes: --only float TF32.

serving: a decoder of four blocks that completes 1,000 prompts in batches of several sizes, and the
tokens a second that it decodes.

Each task runs in a separate process, some at a time; one that times has the GPU alone. Each row
goes to --json at once; tasks that it has are not done again, and none is begun after --seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from processes import Row, Rows, each_in_a_process, need_gpu, python, read_rows, rows_out

PARTS = ("kernels", "layers", "serving")
WAYS = ("invariant", "dynamic", "diode", "library", "fixed")
SMALL = 64
INSTRUCTIONS = {"wgmma": "WGMMA", "mma.sync": "MMA", "fma": "FMA"}  # as summation.Instruction


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],  # type: ignore[union-attr]
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the rows; it is continued")
    parser.add_argument("--seconds", type=float, default=3600, help="no task begins later")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="tasks whose names have one of them"
    )
    parser.add_argument("--workers", type=int, help="processes; one a core, less two")
    parser.add_argument("--report", type=Path, metavar="FILE")
    parser.add_argument("--task", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.report:
        print(report(read_rows(args.report)))
    elif args.task:
        work(args.task)
    else:
        need_gpu()
        measure(args)


def measure(args: argparse.Namespace) -> None:
    """Starts a process for each task, and keeps its rows."""
    rows = Rows(args.json)
    done = {row["task"] for row in rows.rows if row.get("done")}
    left = [
        (name, python("--task", name))
        for name in tasks(args.parts)
        if name not in done and any(word in name for word in args.only)
    ]
    count = args.workers or max(1, len(os.sched_getaffinity(0)) - 2)
    with tempfile.TemporaryDirectory(prefix="diode-invariance-") as folder:
        slot = {
            "ZOO_LOCK": f"{folder}/lock", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache",
            "TRITON_CACHE_DIR": f"{folder}/triton", "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip

        def take(name: str, row: Row) -> None:
            rows.add({"task": name, **row})
            if "error" in row:
                print(f"{name}: {row['error']}"[:600], file=sys.stderr)

        until = time.monotonic() + args.seconds
        each_in_a_process(left, [slot] * count, take, limit_s=args.seconds, until=until)
    print(report(rows.rows))


def tasks(parts: Sequence[str]) -> dict[str, Callable[[], Iterator[Row]]]:
    """The tasks of the parts by name."""
    import invariance_tasks
    from invariance_serving import serve, time_serving

    serving = {"serving": serve, "serving, speed": time_serving}
    return dict(invariance_tasks.tasks(parts)) | (serving if "serving" in parts else {})


def work(name: str) -> None:
    """Does a task, the work of one process."""
    write = rows_out()
    from invariance_tasks import take_as_proven, where

    take_as_proven()  # before Diode chooses for the first time
    for row in tasks(PARTS)[name]():
        write(where() | row)
    write({"done": True})


def report(rows: Sequence[Row]) -> str:
    """The tables of what the rows show."""
    tables = (orders, proofs, pairs, speeds, parts, serving)
    return "\n\n".join(text for table in tables if (text := table(rows)))


def proofs(rows: Sequence[Row]) -> str:
    """The entries for PROOFS of diode_engine/choosing/proofs.py: the orders of summation whose
    kernels all computed the same bits of each product and each kind of data, in all batches."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in select(rows, "digest"):
        if fields := row.get("fields"):
            type_ = ", ".join(
                str(fields.get(name, False))
                for name in ("operands", "promoted_after", "block_k", "in_groups")
            )
            found.setdefault((type_, row["arch"], row["torch"], row["triton"]), []).append(row)
    lines = []
    for (_, arch, *versions), some in found.items():
        digests: dict[tuple[str, ...], set[str]] = {}
        for row in some:
            for data, digest in row["digest"].items():
                digests.setdefault((row["kind"], str(row["size"]), data), set()).add(digest)
        shown = all(all(row["same"].values()) for row in some)
        kernels = len({row["candidate"] for row in some})
        if shown and kernels > 1 and all(len(each) == 1 for each in digests.values()):
            both = ", ".join(str((".".join(v.split(".")[:2]),) * 2) for v in versions)
            orders = dict.fromkeys(_written(row["fields"]) for row in some)
            lines.append(
                f'Proof(({"".join(f"{each}, " for each in orders)}), "{arch}", {both}, '
                f"{kernels}, {len(digests) * max(some[0]['batches'])}, SOURCE),"
            )
    return "\n".join(lines)


def _written(fields: Row) -> str:
    """An order of summation as Python writes it."""
    first, *values = fields.values()
    return f"SummationOrder(Instruction.{INSTRUCTIONS[first]}, {', '.join(map(repr, values))})"


def select(rows: Sequence[Row], key: str) -> list[Row]:
    return [row for row in rows if key in row]


def orders(rows: Sequence[Row]) -> str:
    """Of each order of summation the kernels that were compared, whether each gives the same rows
    in all batches, and into how many groups of equal bits they fall, by product and data."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in select(rows, "digest"):
        found.setdefault((row["order"], row["kind"]), []).append(row)
    lines = [
        "| order of summation | products | kernels | same rows in all batches "
        "| groups of equal kernels |",
        "|---|---|---|---|---|",
    ]
    for (order, kind), some in sorted(found.items()):
        same = sum(all(row["same"].values()) for row in some)
        groups: Counter[int] = Counter()
        for size in {tuple(row["size"]) for row in some}:
            for data in some[0]["digest"]:
                groups[len({r["digest"][data] for r in some if tuple(r["size"]) == size})] += 1
        text = ", ".join(f"{n} ({count} ×)" for n, count in sorted(groups.items()))
        kernels = len({row["candidate"] for row in some})
        lines.append(f"| {order} | {kind} | {kernels} | {same} of {len(some)} | {text} |")
    return "\n".join(lines) if found else ""


def pairs(rows: Sequence[Row]) -> str:
    """Of each layer, how many pairs of batches gave the rows that they share the same bits."""
    found: dict[str, dict[str, Row]] = {}
    for row in select(rows, "pairs"):
        found.setdefault(row["task"], {})[row["way"]] = row
    ways = [way for way in WAYS if any(way in each for each in found.values())]
    lines = [f"| layer (N×K) | {' | '.join(ways)} |", "|---" * (1 + len(ways)) + "|"]
    for each in found.values():
        cells = [f"{r['equal']:,} of {r['pairs']:,}" if (r := each.get(w)) else "–" for w in ways]
        some = next(iter(each.values()))
        lines.append(f"| {some['layer']} ({some['N']}×{some['K']}) | {' | '.join(cells)} |")
    return "\n".join(lines) if found else ""


def speeds(rows: Sequence[Row]) -> str:
    """For layers of each type, the speed of each way in units of Diode's without the option, by M:
    geometric means over the layers, over all M, and over M up to SMALL."""
    of_type: dict[str, list[Row]] = {}
    for row in select(rows, "us"):
        of_type.setdefault(row["dtype"], []).append(row)
    return "\n\n".join(_speeds(dtype, timed) for dtype, timed in of_type.items())


def _speeds(dtype: str, timed: Sequence[Row]) -> str:
    ways = [way for way in WAYS if all(way in row["us"] for row in timed)]
    lines = [f"| M, {dtype} | {' | '.join(ways)} |", "|---" * (1 + len(ways)) + "|"]
    sizes = sorted({row["M"] for row in timed})
    groups = [(str(m), [row for row in timed if row["M"] == m]) for m in sizes]
    groups.append((f"up to {SMALL}", [row for row in timed if row["M"] <= SMALL]))
    for name, some in [*filter(lambda group: group[1], groups), ("all", timed)]:
        cells = [
            f"{statistics.geometric_mean(r['us']['diode'] / r['us'][way] for r in some):.3f}"
            for way in ways
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parts(rows: Sequence[Row]) -> str:
    """Of a decoder's block and its parts, the batches in which the rows had the same bits."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in select(rows, "program"):
        found.setdefault((row["program"], row["options"]), []).append(row)
    lines = ["| program | options | same bits | other bits |", "|---|---|---|---|"]
    for (program, options), some in found.items():
        both = [
            ", ".join(str(row["batch"]) for row in some if row["equal"] is equal) or "–"
            for equal in (True, False)
        ]
        lines.append(f"| {program} | {options} | {both[0]} | {both[1]} |")
    return "\n".join(lines) if found else ""


def serving(rows: Sequence[Row]) -> str:
    """Of a decoder, the prompts that got one completion whatever the batch, and tokens a second."""
    ways = [row["way"] for row in select(rows, "prompts")]
    lines = [f"| a decoder | {' | '.join(ways)} |", "|---" * (1 + len(ways)) + "|"]
    for row in select(rows, "tokens_per_s"):
        cells = [f"{row['tokens_per_s'][way]:,.0f}" for way in ways]
        lines.append(f"| tokens/s in batches of {row['batch']} | {' | '.join(cells)} |")
    cells = [f"{row['single']:,} of {row['prompts']:,}" for row in select(rows, "prompts")]
    lines.append(f"| prompts with one completion | {' | '.join(cells)} |")
    return "\n".join(lines) if ways else ""


if __name__ == "__main__":
    main()
