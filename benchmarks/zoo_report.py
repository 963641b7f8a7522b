"""Reports on the zoo's rows: a line for each, and tables by model and by way."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

MIN_SHARE = 1.02  # a step over this many times plain's is a failure (see `over_plain`)
NEAR = 1.5  # an error over so many times plain's is looked at
_ORDER = ("plain", "import", "fast", "install", "threshold", "mode", "DEFAULT", "again")


def finished(rows: Iterable[Row]) -> set[tuple[str, str]]:
    """(model, way) of the rows that need not be measured again: those that were timed, and those
    that failed for a reason of their own, not because the process ended."""
    return {(row["model"], row["way"]) for row in rows if row.get("way")}


def over_plain(row: Row) -> float:
    """The least ratio of the step that counts against a way: over the slower of two plain compiles,
    by the better of Diode's two compiles (there is a second one only where the first was slower).
    Older rows have one plain compile."""
    first = row.get("slower_plain_ratio") or row.get("ratio") or 0.0
    return float(min(first, row.get("second_ratio", first)))


def line(row: Row) -> str:
    """One row as a line of text."""
    head = f"{row['model']:36s} {row.get('way', ''):10s}"
    if row.get("error"):
        return f"{head} failed: {row['error'].splitlines()[0][:160]}"
    return (
        f"{head} compile {row['compile_s']:6.2f} s  step {row['step_us']:9.1f} us ± "
        f"{100 * row['spread']:4.1f} %  {_number(row.get('ratio'))} of plain"
        f"{_counted(row)}  "
        f"error {_number(row.get('error_ratio'))}  memory {_number(row.get('step_bytes_ratio'))}"
        f"{'' if row['timing'] == 'graph' else '  by events'}"
    )


def _counted(row: Row) -> str:
    """What counts, where that is another figure than the ratio to the first plain compile."""
    if row.get("ratio") is None or over_plain(row) == row["ratio"]:
        return ""
    return f" ({over_plain(row):.3f} counts)"


def _number(x: float | None, digits: int = 3) -> str:
    return "-" if x is None else f"{x:.{digits}f}"


def show(path: Path, *, markdown: bool) -> None:
    """Prints the tables of a file of rows."""
    rows = []
    for text in path.read_text().splitlines():
        try:
            rows.append(json.loads(text))
        except ValueError:  # cut short
            continue
    print_tables(rows, markdown=markdown)


def print_tables(rows: Sequence[Row], *, markdown: bool = False) -> None:
    """Prints a table by model (plain's step time and each way's ratio to it), a table by way, and
    the failures."""
    last = {(r["model"], r.get("way", "")): r for r in rows}  # the newest of each
    timed = {key: r for key, r in last.items() if not r.get("error") and "step_us" in r}
    ways = [w for w in _ORDER if any(way == w for _, way in timed)]
    others = [w for w in ways if w != "plain"]
    names = list(dict.fromkeys(name for name, _ in timed))
    head = ["model", "kind", "plain, µs", *others, "compile", "error", "memory"]
    lines = []
    for name in names:
        each = {way: timed[name, way] for way in ways if (name, way) in timed}
        first = next(iter(each.values()))
        plain_us = each["plain"]["step_us"] if "plain" in each else first.get("plain_us")
        chosen = each.get("import", {})
        lines.append([
            name, first["kind"] + ("" if first["timing"] == "graph" else ", by events"),
            _number(plain_us, 1),
            *(_number(each.get(way, {}).get("ratio")) for way in others),
            _number(chosen.get("compile_ratio"), 2), _number(chosen.get("error_ratio"), 2),
            _number(chosen.get("step_bytes_ratio"), 2),
        ])  # fmt: skip
    _table(head, lines, markdown=markdown)
    print()
    summary = []
    for way in others:
        of_way = [r for (_, w), r in timed.items() if w == way and r.get("ratio")]
        ratios = [r["ratio"] for r in of_way]
        choosing = [r["ratio"] for r in of_way if r.get("products") or way == "DEFAULT"]
        if not ratios:
            continue
        worst = max(of_way, key=lambda r: r["ratio"])
        summary.append([
            way, str(len(ratios)), _geomean(ratios), _geomean(choosing),
            f"{worst['ratio']:.3f} {worst['model']}",
            str(sum(over_plain(r) > MIN_SHARE for r in of_way)),
            _geomean([r["compile_ratio"] for r in of_way if r.get("compile_ratio")]),
            _geomean([r["error_ratio"] for r in of_way if r.get("error_ratio")]),
            str(sum((r.get("error_ratio") or 0) > NEAR for r in of_way)),
            _geomean([r["step_bytes_ratio"] for r in of_way if r.get("step_bytes_ratio")]),
            _geomean([r["compile_bytes_ratio"] for r in of_way if r.get("compile_bytes_ratio")]),
        ])  # fmt: skip
    _table(
        ["way, over plain", "models", "step", "with products to choose", "worst",
         f"over {MIN_SHARE}", "compile", "error", f"error over {NEAR}", "memory of a step",
         "of the compile"],
        summary, markdown=markdown,
    )  # fmt: skip
    slow = [
        r
        for r in timed.values()
        if over_plain(r) > MIN_SHARE and r["way"] not in ("plain", "again", "DEFAULT")
    ]
    far = [r for r in timed.values() if (r.get("error_ratio") or 0) > NEAR]
    failed = [r for r in last.values() if r.get("error")]
    for title, some in (
        ("Slower than plain", slow),
        ("Errors to look at", far),
        ("Failed", failed),
    ):
        if some:
            print(f"\n{title}:{chr(10) if markdown else ''}")
            for row in some:
                print(f"{'- ' if markdown else '  '}{line(row)}")


def _geomean(ratios: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.3f}" if ratios else "-"


def _table(head: list[str], lines: list[list[str]], *, markdown: bool) -> None:
    if markdown:
        for row in (head, ["---"] * len(head), *lines):
            print(f"| {' | '.join(row)} |")
        return
    widths = [max(len(row[i]) for row in (head, *lines)) for i in range(len(head))]
    for row in (head, *lines):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
