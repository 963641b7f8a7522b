"""A map of counts: each cell has its number, and the fuller ones are brighter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import ScrollableContainer
from textual.widgets import Static


@dataclass(frozen=True)
class Map:
    """`counts` is [rows, columns], drawn with the first row at the top; labels for both."""

    counts: Sequence[Sequence[int]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_name: str = ""
    column_name: str = ""


class HeatMap(ScrollableContainer, can_focus=True):
    """Scrolls where it is larger than its place."""

    DEFAULT_CSS = "HeatMap { height: 1fr; Static { width: auto; height: auto; } }"

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def show(self, chart: Map) -> None:
        self.query_one(Static).update(self._drawn(chart))

    def _drawn(self, chart: Map) -> Text:
        most = max((max(row, default=0) for row in chart.counts), default=0)
        margin = max((len(label) for label in (*chart.rows, chart.row_name)), default=0)
        width = max((len(label) for label in (*chart.columns, _short(most))), default=1) + 1
        variables = self.app.theme_variables
        low, high = Color.parse(variables["surface"]), Color.parse(variables["primary"])
        drawn = Text(no_wrap=True)
        for label, counts in zip(chart.rows, chart.counts, strict=True):
            drawn.append(f"{label:>{margin}} ")
            for count in counts:
                # By the logarithm: the map is there to show where there is little.
                part = math.log1p(count) / math.log1p(most) if most else 0.0
                ground = low.blend(high, part)
                style = Style(
                    color=ground.get_contrast_text(1.0).rich_color, bgcolor=ground.rich_color
                )
                drawn.append(f"{_short(count) if count else '·':>{width}}", style)
            drawn.append("\n")
        drawn.append(" " * (margin + 1))
        for label in chart.columns:
            drawn.append(f"{label:>{width}}")
        drawn.append(f"\n{chart.row_name:>{margin}} ↑   {chart.column_name} →")
        return drawn


def _short(count: int) -> str:
    """In four characters: 998, 1.2k, 35k, 2.1M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)
