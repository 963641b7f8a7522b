"""The table by which Diode chooses FlexAttention's configs, and how well it chooses.

    python benchmarks/flex_chooser.py [--rows FILE] [--write FILE]

docs/notes/flex-attention.md says how the rows were measured. Some of the calls are held out: a
quarter, by the hash of the call, and all forward calls of 16 heads of 128 elements that share no
keys. The table is made of the other calls, and judged on the held-out ones. `--write` writes the
table.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean as geomean
from typing import Any

import numpy as np
from processes import Row, read_rows

from diode_engine.core.hardware import H200
from diode_engine.models.flex_attention import (
    BACKWARD,
    DECODING,
    FORWARD,
    Config,
    FlexCall,
    FlexGroup,
    FlexTable,
)

ROWS = Path(__file__).parent / "results" / "flex-h200-2026-11-22.jsonl.zst"
SOURCE = "benchmarks/results/flex-h200-2026-11-22.jsonl.zst, torch 2.11, Triton 3.6"
CONFIGS = 5  # of a group
MIN_CALLS = 3  # of a group

# Inductor's own on compute capability 9.0, with which each row compares its config.
DEFAULTS: Mapping[tuple[str, int], Config] = {
    (FORWARD, 64): (128, 128, 3, 4),
    (FORWARD, 128): (128, 64, 3, 8),
    (FORWARD, 256): (64, 32, 3, 4),
    (BACKWARD, 64): (64, 128, 128, 64, 3, 8),
    (BACKWARD, 128): (64, 128, 128, 64, 3, 8),
    **{(DECODING, head): (64, 1, 2) for head in (64, 128, 256)},
}

Judged = dict[str, tuple[float, float]]  # by call: times as fast as the default; the best's


@dataclass(frozen=True)
class Measured:
    """A call, and for each config how many times as fast as the default it is: by the last timing,
    where there is one. `failed` are the configs that cannot be launched."""

    key: str
    heads: tuple[int, int]  # the query's, and the keys'
    call: FlexCall
    speeds: Mapping[Config, float]
    failed: frozenset[Config]

    @property
    def group(self) -> tuple[str, int]:
        return self.call.kind, self.call.head

    @property
    def held_out(self) -> str:
        """Why the call is held out; "" where it is not."""
        if self.call.kind == FORWARD and self.call.head == 128 and self.heads == (16, 16):
            return "by heads"
        digest = int(hashlib.sha256(self.key.encode()).hexdigest(), 16)
        return "" if digest % 4 else "by hash"


def read(path: Path) -> list[Measured]:
    """The measured calls in a file of rows, compressed or not."""
    by_call: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(path):
        if isinstance(row["config"], list):
            by_call[row["problem"]].append(row)
    return [_measured(key, rows) for key, rows in by_call.items()]


def _measured(key: str, rows: Sequence[Mapping[str, Any]]) -> Measured:
    row = rows[0]
    call = FlexCall(
        row["kind"], row["head"], row["dtype"], row["batch"] * row["heads"], row["length"],
        row["mask"] != "dense", row["mask"] == "document",
    )  # fmt: skip
    timed = [r for r in rows if "us" in r]
    timed.sort(key=lambda r: r["tier"] == "confirmed")  # these last
    speeds = {tuple(r["config"]): r["default_us"] / r["us"] for r in timed}
    speeds[DEFAULTS[call.kind, call.head]] = 1.0
    failed = frozenset(tuple(r["config"]) for r in rows if "error" in r)
    return Measured(key, (row["heads"], row["kv_heads"]), call, speeds, failed)


def fitted(measured: Iterable[Measured]) -> FlexTable:
    """The table that is made of these calls."""
    groups: dict[tuple[str, int], list[Measured]] = defaultdict(list)
    for each in measured:
        groups[each.group].append(each)
    return FlexTable(
        H200.name,
        SOURCE,
        tuple(_group(some) for _, some in sorted(groups.items()) if len(some) >= MIN_CALLS),
    )


def _group(measured: Sequence[Measured]) -> FlexGroup:
    """The configs of a group of calls. Each is added for the calls on which it is much faster than
    those before; only configs that were timed for every call are taken."""
    ordered = sorted(measured, key=lambda each: each.key)
    common = set.intersection(*(set(each.speeds) - each.failed for each in ordered))
    gains = {config: np.log([each.speeds[config] for each in ordered]) for config in sorted(common)}
    reached = np.zeros(len(ordered))
    chosen: list[Config] = []
    for _ in range(CONFIGS):
        config = max(gains, key=lambda one: np.maximum(reached, gains[one]).mean())
        if np.maximum(reached, gains[config]).mean() <= reached.mean():
            break
        chosen.append(config)
        reached = np.maximum(reached, gains[config])
    kind, head = ordered[0].group
    return FlexGroup(
        kind,
        head,
        tuple(sorted({each.call.dtype for each in ordered})),
        DEFAULTS[kind, head],
        tuple(chosen),
        tuple(each.call for each in ordered),
        np.array([[round(each.speeds[one], 3) for one in chosen] for each in ordered]),
    )


def judged(table: FlexTable, measured: Iterable[Measured]) -> Judged:
    """How good the table's choices are. Where it leaves a call to Inductor, its choice is the
    default."""
    found: Judged = {}
    for each in measured:
        group = table.group(*each.group, each.call.dtype)
        choice = None if group is None else group.chosen(each.call)
        config = DEFAULTS[each.group] if choice is None else choice.config
        found[each.key] = each.speeds[config], max(each.speeds.values())
    return found


def summarize(what: str, found: Judged) -> str:
    """One line of the report."""
    speeds = [speed for speed, _ in found.values()]
    shares = [speed / best for speed, best in found.values()]
    bests = [best for _, best in found.values()]
    return (
        f"{what:<30}{len(found):>4} calls: {geomean(speeds):.3f} × the default's speed (the best "
        f"timed {geomean(bests):.3f}), {geomean(shares):.3f} of the best timed; at worst "
        f"{min(speeds):.3f} × the default's, {min(shares):.3f} of the best"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    measured = read(args.rows)
    known = [each for each in measured if not each.held_out]
    table = fitted(known)
    for why in ("by hash", "by heads"):
        print(f"Held out {why}:")
        for kind in (FORWARD, BACKWARD, DECODING):
            some = [e for e in measured if e.held_out == why and e.call.kind == kind]
            if some:
                print("  " + summarize(kind, judged(table, some)))
    if args.write is not None:
        args.write.write_text(table.to_json())
        print(f"{args.write}: {len(table.groups)} groups, {args.write.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
