"""A program's report as plain text, and the rows that a page of it has too."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from diode_engine.documents import shortened
from diode_engine.plain_text import format_number, format_table
from diode_engine.reports.record import Outcome, Place, Product, Report

_WIDTH = 100  # of a line of sentences, in characters
_PHASES = ("forward", "backward", "inference")


@dataclass(frozen=True)
class Row:
    """Products of one problem and one choice, of all graphs."""

    products: tuple[Product, ...]
    phases: tuple[str, ...]

    @property
    def first(self) -> Product:
        """One of them."""
        return self.products[0]

    @property
    def count(self) -> int:
        """How many products there are."""
        return sum(product.count for product in self.products)

    @property
    def saved_us(self) -> float:
        """What their kernels save beside the library's, each graph run once, in microseconds."""
        return sum(product.saved_us for product in self.products)

    @property
    def places(self) -> list[str]:
        """Where they are in the model, a text for each group of alike places."""
        return describe_places(place for product in self.products for place in product.places)

    @property
    def kernel(self) -> str:
        """The kernel in words."""
        product = self.first
        if product.kernel is None:
            return "the library's"
        others = f", or {product.timed - 1} more" if product.timed else ""
        return f"{product.kernel}{others}"


def rows_of(report: Report) -> list[Row]:
    """Return the report's rows: those that save most first, then those that take longest."""
    groups: dict[object, list[Product]] = {}
    for p in report.products:
        choice = p.outcome, p.kernel, p.why, p.predicted_us, p.library_us
        key = p.problem or p.name, p.dynamic, choice
        groups.setdefault(key, []).append(p)
    rows = []
    for group in groups.values():
        there = {report.graphs[product.graph].phase for product in group}
        phases = tuple(phase for phase in _PHASES if phase in there)
        rows.append(Row(tuple(group), phases))
    return sorted(rows, key=lambda row: (-row.saved_us, -row.count * (row.first.predicted_us or 0)))


def describe_places(places: Iterable[Place]) -> list[str]:
    """Return where products are, as texts: places whose module differs in numbers alone, such as
    those of a model's layers, are one text."""
    names: dict[str, set[str]] = {}
    for place in places:
        name = place.module or place.kind
        if not name and place.file:
            name = f"{place.file.rpartition('/')[2]}:{place.line}"
        if place.kind and not re.search("[A-Za-z]", place.module):
            name = f"{place.kind} {place.module}".rstrip()
        names.setdefault(re.sub(r"\d+", "*", name) if place.module else name, set()).add(name)
    return [
        min(alike) if len(alike) == 1 else f"{pattern} ({len(alike)})"
        for pattern, alike in names.items()
    ]


def render_text(report: Report, top: int = 20) -> str:
    """Return the report as a text, with its `top` first rows."""
    rows = rows_of(report)
    heading = f"{render_heading(report)} (times in µs, all predicted):"
    parts = [f"{heading}\nfingerprint {report.fingerprint}" if report.active else heading]
    chosen = [row for row in rows if row.first.outcome is not Outcome.LEFT]
    if chosen:
        parts.append(_table(report, chosen[:top]))
        if len(chosen) > top:
            parts.append(f"{len(chosen) - top} more rows are in the report's file.")
    left = [row for row in rows if row.first.outcome is Outcome.LEFT]
    if left:
        lines = [
            f"{row.count} × {row.first.name}: {row.first.why}{_in(row.places)}"
            for row in left[:top]
        ]
        parts.append("\n  ".join(["Left to the library:", *lines]))
    sentences = (*summarize(report), *report.notes)
    parts += [textwrap.fill(sentence, _WIDTH) for sentence in sentences]
    return "\n\n".join(parts) + "\n"


def render_heading(report: Report) -> str:
    """Return what the report is about."""
    by = f", by {report.model}" if report.model else ""
    return f"{shortened(report.program, _WIDTH)} on {report.hardware}{by}"


def summarize(report: Report) -> list[str]:
    """Return the report's sums, as sentences."""
    count = sum(product.count for product in report.products)
    if not count:
        return ["The program compiled no product."]
    library = report.predicted_us + report.saved_us
    gain = f" ({report.saved_us / library:.0%})" if library else ""
    distinct = len({product.problem or product.name for product in report.products})
    unknown = sum(p.count for p in report.products if p.predicted_us is None)
    without = f", {unknown} without a prediction" if unknown else ""
    runs = sum(graph.runs or 0 for graph in report.graphs)
    in_runs = ""
    if report.saved_in_runs_us is not None and runs != len(report.graphs):
        in_runs = (
            f" The program ran its {len(report.graphs)} graphs {runs:,} times: "
            f"{format_us(report.saved_in_runs_us)} less in all."
        )
    return [
        f"{count} product{'s' * (count > 1)} of {distinct} problem{'s' * (distinct > 1)}{without}. "
        "With every compiled graph run once, they are predicted to take "
        f"{format_us(report.predicted_us)}, "
        f"{format_us(report.saved_us)} less than with the library's kernels{gain}.{in_runs} "
        "Nothing was timed.",
        f"max-autotune's search would time {report.search_candidates:,} candidates: "
        f"about {report.search_seconds:,.0f} s of compiling.",
    ]


def format_us(us: float) -> str:
    """Return a time with its unit."""
    return f"{us / 1e3:,.3g} ms" if us >= 1e4 else f"{us:,.3g} µs"


def _in(places: Sequence[str]) -> str:
    return f" (in {', '.join(places[:3])})" if any(places) else ""


def _table(report: Report, rows: Sequence[Row]) -> str:
    """Return the table. The phase is a column where there are several."""
    phases = {graph.phase for graph in report.graphs}
    header = ["product", "in the model", "kernel", "count", "µs", "library's", "saved", "sure"]
    lines = []
    for row in rows:
        product, places = row.first, row.places
        more = f", {len(places) - 1} more" if len(places) > 1 else ""
        name = f"{product.name}{' dynamic' if product.dynamic else ''}"
        if len(phases) > 1:
            name += f", {'/'.join(row.phases)}"
        lines.append(
            [
                name, f"{places[0] if places else ''}{more}", row.kernel, str(row.count),
                format_number(product.predicted_us), format_number(product.library_us),
                format_number(row.saved_us), format_number(product.confidence, ".2f"),
            ]
        )  # fmt: skip
    return format_table(header, lines)
