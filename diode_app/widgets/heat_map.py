"""A map of counts: each cell has its number, and the fuller ones are brighter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import ScrollableContainer
from textual.geometry import Region
from textual.message import Message
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
    """Scrolls where it is larger than its area. The arrows move a cursor over the cells, which
    posts `HeatMap.Pointed`; Enter or a click posts `HeatMap.Chosen`."""

    DEFAULT_CSS = "HeatMap { height: 1fr; Static { width: auto; height: auto; } }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1, 0)", "Up", show=False),
        Binding("down", "move(1, 0)", "Down", show=False),
        Binding("left", "move(0, -1)", "Left", show=False),
        Binding("right", "move(0, 1)", "Right", show=False),
        Binding("enter", "choose", "Choose", show=False),
    ]

    class Pointed(Message):
        def __init__(self, row: int, column: int) -> None:
            super().__init__()
            self.row = row
            self.column = column

    class Chosen(Pointed):
        pass

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chart = Map((), (), ())
        self.cursor = (0, 0)

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def show(self, chart: Map, cursor: tuple[int, int] | None = None) -> None:
        """Draw this map, with the cursor on this cell (None: where it was)."""
        self._chart = chart
        row, column = self.cursor if cursor is None else cursor
        self.point(row, column)

    def point(self, row: int, column: int) -> None:
        """Put the cursor on this cell, or the nearest that exists."""
        chart = self._chart
        if not chart.rows or not chart.columns:
            self.query_one(Static).update("")
            return
        row = min(max(row, 0), len(chart.rows) - 1)
        column = min(max(column, 0), len(chart.columns) - 1)
        self.cursor = row, column
        self.query_one(Static).update(self._draw_map(chart))
        margin, width, height = self._sizes(chart)
        here = Region(margin + column * width, row * height, width, height)
        self.call_after_refresh(self.scroll_to_region, here, animate=False)  # it has its size then
        self.post_message(self.Pointed(row, column))

    def action_move(self, down: int, right: int) -> None:
        row, column = self.cursor
        self.point(row + down, column + right)

    def action_choose(self) -> None:
        if self._chart.rows:
            self.post_message(self.Chosen(*self.cursor))

    def on_click(self, event: events.Click) -> None:
        margin, width, height = self._sizes(self._chart)
        at = event.get_content_offset(self.query_one(Static))
        if at is None or at.x < margin:
            return
        row, column = at.y // height, (at.x - margin) // width
        if row < len(self._chart.rows) and column < len(self._chart.columns):
            self.point(row, column)
            self.action_choose()

    def on_resize(self) -> None:
        if self._chart.rows:
            self.query_one(Static).update(self._draw_map(self._chart))

    def _sizes(self, chart: Map) -> tuple[int, int, int]:
        """Return the width of the rows' labels with a blank, and a cell's width and height: larger
        where there is room."""
        most = max((max(row, default=0) for row in chart.counts), default=0)
        margin = 1 + max((len(label) for label in (*chart.rows, chart.row_name)), default=0)
        least = 1 + max((len(label) for label in (*chart.columns, _short(most))), default=1)
        room = self.scrollable_content_region
        wide = (room.width - margin) // max(len(chart.columns), 1)
        high = (room.height - 2) // max(len(chart.rows), 1)
        return margin, max(least, min(wide, 2 * least)), max(1, min(high, 3))

    def _draw_map(self, chart: Map) -> Text:
        most = max((max(row, default=0) for row in chart.counts), default=0)
        margin, width, height = self._sizes(chart)
        variables = self.app.theme_variables
        low, high = Color.parse(variables["surface"]), Color.parse(variables["primary"])
        drawn = Text(no_wrap=True)
        for r, (label, counts) in enumerate(zip(chart.rows, chart.counts, strict=True)):
            styles = []
            for c, count in enumerate(counts):
                # By the logarithm: the map is there to show where there is little.
                part = math.log1p(count) / math.log1p(most) if most else 0.0
                ground = low.blend(high, part)
                here = (r, c) == self.cursor
                styles.append(
                    Style(
                        color=ground.get_contrast_text(1.0).rich_color,
                        bgcolor=ground.rich_color,
                        reverse=here,
                        bold=here,
                    )
                )
            for line in range(height):
                middle = line == height // 2
                drawn.append(f"{label if middle else '':>{margin - 1}} ")
                for count, style in zip(counts, styles, strict=True):
                    number = (_short(count) if count else "·") if middle else ""
                    drawn.append(_in_cell(number, width), style)
                drawn.append("\n")
        drawn.append(" " * margin)
        for label in chart.columns:
            drawn.append(_in_cell(label, width))
        drawn.append(f"\n{chart.row_name:>{margin - 1}} ↑   {chart.column_name} →")
        return drawn


def _in_cell(words: str, width: int) -> str:
    """To the right; with a blank behind it in a wide cell."""
    return f"{words:>{width - 1}} " if width > 5 else f"{words:>{width}}"


def _short(count: int) -> str:
    """In four characters: 998, 1.2k, 35k, 2.1M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)
