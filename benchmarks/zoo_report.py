"""Reports on the zoo's rows: a line for each, and tables by model and by way."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from processes import Row, read_rows

MIN_SHARE = 1.02  # a step over this many times plain's is a failure (see `over_plain`)
FAR_OVER = 1.05
NEAR = 1.5  # an error over so many times plain's is looked at
# Said of products that the model has not learned or that Diode cannot describe
# (docs/troubleshooting.md); any other reason for leaving a product to Inductor is wrong.
_DOCUMENTED = re.compile(
    r"Diode makes no choice for (?:GEMMs|some products): .* "
    r"\((no_prediction|unsupported); logged once"
)
_GEMMS = (
    "mm", "addmm", "bmm", "baddbmm", "bias_addmm", "_int_mm", "_scaled_mm", "_grouped_mm",
    "aten._addmm_activation",
)  # fmt: skip
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
    rows = read_rows(path)
    if any("kernels" in row for row in rows):
        print_lowered(rows)
    else:
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
    of_ways: dict[str, list[Row]] = {}
    for way in others:
        of_way = [r for (_, w), r in timed.items() if w == way and r.get("ratio")]
        of_ways[way] = of_way
        for row in sorted(of_way, key=lambda r: str(r["group"])):
            of_ways.setdefault(f"{way}, {row['group']}", []).append(row)
    summary = []
    for name, of_way in of_ways.items():
        ratios = [r["ratio"] for r in of_way]
        choosing = [r["ratio"] for r in of_way if r.get("products") or r["way"] == "DEFAULT"]
        if not ratios:
            continue
        worst = max(of_way, key=lambda r: r["ratio"])
        summary.append([
            name, str(len(ratios)), _geomean(ratios), _geomean(choosing),
            f"{worst['ratio']:.3f} {worst['model']}",
            *(str(sum(over_plain(r) > share for r in of_way)) for share in (MIN_SHARE, FAR_OVER)),
            _geomean([r["compile_ratio"] for r in of_way if r.get("compile_ratio")]),
            _geomean([r["error_ratio"] for r in of_way if r.get("error_ratio")]),
            str(sum((r.get("error_ratio") or 0) > NEAR for r in of_way)),
            _geomean([r["step_bytes_ratio"] for r in of_way if r.get("step_bytes_ratio")]),
            _geomean([r["compile_bytes_ratio"] for r in of_way if r.get("compile_bytes_ratio")]),
        ])  # fmt: skip
    _table(
        ["way, over plain", "models", "step", "with products to choose", "worst",
         f"over {MIN_SHARE}", f"over {FAR_OVER}", "compile", "error", f"error over {NEAR}",
         "memory of a step", "of the compile"],
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


# Rows of --lower


def wrong(row: Row) -> list[str]:
    """What is wrong in a row of --lower; empty where nothing is."""
    found = [row["error"]] if row.get("error") else []
    found += [
        f"a new warning: {text}" for text in row.get("warnings", ()) if not _DOCUMENTED.search(text)
    ]
    found += [f"does not fit: {text}" for text in row.get("unfit", ())]
    return found


def print_lowered(rows: Sequence[Row]) -> None:
    """Prints how many models were lowered in which ways, and what differs from plain Inductor."""
    by_model: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[row["way"]] = row
    counts = Counter(way for ways in by_model.values() for way in ways)
    print(f"{len(by_model)} models:", dict(counts))
    for name, ways in by_model.items():
        failed = ways.get("plain", ways.get("", {})).get("error")
        for sentence in [f"plain: {failed}"] if failed else differences(ways):
            print(f"{name}, {sentence.splitlines()[0]}")


def differences(ways: Mapping[str, Row]) -> Iterator[str]:
    """What stands in the rows of a model that does not in stock's."""
    for way, row in ways.items():
        if way == "plain":
            continue
        if not way:
            yield f"the process: {row['error']}"
            continue
        for sentence in wrong(row):
            yield f"{way}: {sentence}"
        if row["error"]:
            continue
        for name, count in row["stats"].items():
            if count and name.startswith(("fallback_", "passed_")):
                yield f"{way}: {name} {count}: {row['warnings']}"
        theirs, ours = Counter(ways["plain"]["kernels"]), Counter(row["kernels"])
        gemms = sum(theirs[name] for name in _GEMMS)
        moved = row["stats"].get("activations_moved", 0)
        left = gemms - row["products"] - row["stats"]["fallbacks"] - moved
        if left > 0:  # max-autotune has more, where a convolution is a product
            yield f"{way}: {left} of {gemms} products not asked for"
        if ours["convolution"] < theirs["convolution"]:  # max-autotune computes them as products
            continue
        if row["stats"].get("padding_decided"):  # the copies to padded operands are kernels too
            continue
        for kind in sorted({*ours, *theirs} - {*_GEMMS, "tem"}):
            if kind == "bytes" and theirs["_grouped_mm"]:  # which allocates its result itself
                continue
            if ours[kind] > theirs[kind] * (1.02 if kind == "bytes" else 1):
                yield f"{way}: {ours[kind]} {kind}, stock has {theirs[kind]}"
