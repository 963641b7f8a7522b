"""A screen as text: the plain mode, for a screen reader, without drawing characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from diode_app import text
from diode_app.data.tables import as_text
from diode_app.widgets.charts import Lines

# Lines and corners, blocks, shapes and braille; signs of a state have a letter.
_DRAWING = dict.fromkeys([*range(0x2500, 0x2600), *range(0x2800, 0x2900)], " ")
_SIGNS = str.maketrans({
    **{chr(code): blank for code, blank in _DRAWING.items()},
    "●": "*", "○": "o", "■": "*", "▲": "^", "▼": "v", "✓": "+", "✗": "x", "★": "*", "⚠": "!",
    "🔎": "  ",
})  # fmt: skip


class PlainText(LineFilter):
    """Writes a blank or a letter in the place of each drawing character."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(words.translate(_SIGNS), style, control) for words, style, control in segments
        ]


def describe_charts(charts: Sequence[Lines]) -> str:
    """Return each chart as a heading and a table of its curves."""
    head = ("curve", "points", "from", "to", "first", "least", "greatest", "last")
    parts = []
    for chart in charts:
        rows = [
            (line.name, str(len(line.ys)), *map(text.number, (line.xs[0], line.xs[-1], line.ys[0],
             min(line.ys), max(line.ys), line.ys[-1])))
            for line in chart.lines if line.ys
        ]  # fmt: skip
        title = f"{chart.title or chart.y_label} over {chart.x_label or 'x'}"
        parts.append(f"{title}\n{as_text(head, rows)}")
    return "\n".join(parts)


def read_text(screen: Screen[Any]) -> str:
    """Return what the screen shows, as lines of text."""
    lines = [" " * screen.size.width] * screen.size.height
    for widget in screen.walk_children(Widget):
        if not widget.region:
            continue  # it is not shown
        seen = widget.region.intersection(screen.find_widget(widget).clip)
        crop = Region(*(seen.offset - widget.region.offset), *seen.size)
        for y, strip in enumerate(widget.render_lines(crop) if seen else (), seen.y):
            lines[y] = lines[y][: seen.x] + strip.text + lines[y][seen.right :]
    return "".join(f"{line.rstrip()}\n" for line in lines)
