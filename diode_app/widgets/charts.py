"""What a plot shows: curves over each other, and how they lie on their axes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from diode_app.themes import SERIES
from diode_app.widgets.ticks import Tick, linear, logarithmic

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A curve. `xs` and `ys` have one length; points that are not finite are left out. The `strong`
    one is what the chart is about. `colour` is its number in SERIES, by default its index in the
    chart; several lines of one colour have different marks."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    strong: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Lines:
    """Curves in one chart. On a logarithmic axis only values above zero are shown. An axis with a
    range has it whatever is drawn; one without fits the curves. `whole_x`: x has only whole
    numbers, as with epochs."""

    lines: Sequence[Line]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    whole_x: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class DrawnLine:
    """A line as it is drawn: its points where the axes have them, in logarithms on a logarithmic
    axis, and the number of its colour and of its mark."""

    line: Line
    points: tuple[Point, ...]
    colour: int
    mark: int


@dataclass(frozen=True)
class Frame:
    """A chart with its layout: its curves (at least one) and the ends of its axes, in logarithms on
    a logarithmic axis."""

    chart: Lines
    curves: tuple[DrawnLine, ...]
    x_ends: tuple[float, float]
    y_ends: tuple[float, float]

    def x_ticks(self, most: int) -> list[Tick]:
        low, high = self.x_ends
        if self.chart.log_x:
            return logarithmic(low, high, most)
        return linear(low, high, most, whole=self.chart.whole_x)

    def y_ticks(self, most: int) -> list[Tick]:
        return (logarithmic if self.chart.log_y else linear)(*self.y_ends, most)

    @property
    def places(self) -> list[float]:
        """The x values that have points, in order."""
        return sorted({x for curve in self.curves for x, _ in curve.points})

    def x_at(self, place: float) -> float:
        """Return the x value there, as the axis shows it."""
        return 10.0**place if self.chart.log_x else place

    def value_at(self, curve: DrawnLine, place: float) -> float | None:
        """Return a curve's value at its point nearest to this x; None to the left and to the right
        of the curve."""
        xs = [x for x, _ in curve.points]
        if not min(xs) <= place <= max(xs):
            return None
        _, y = min(curve.points, key=lambda point: abs(point[0] - place))
        return 10.0**y if self.chart.log_y else y


def lay_out_chart(chart: Lines) -> Frame | None:
    """Return the layout; None where there is nothing to draw."""
    curves: list[DrawnLine] = []
    for number, line in enumerate(chart.lines):
        points = tuple(
            (math.log10(x) if chart.log_x else float(x), math.log10(y) if chart.log_y else float(y))
            for x, y in zip(line.xs, line.ys, strict=True)
            if math.isfinite(x)
            and math.isfinite(y)
            and (x > 0 or not chart.log_x)
            and (y > 0 or not chart.log_y)
        )
        if points:
            colour = (number if line.colour is None else line.colour) % len(SERIES)
            mark = sum(curve.colour == colour for curve in curves)
            curves.append(DrawnLine(line, points, colour, mark))
    if not curves:
        return None
    x_ends = _ends([x for c in curves for x, _ in c.points], chart.x_range, log=chart.log_x)
    y_ends = _ends([y for c in curves for _, y in c.points], chart.y_range, log=chart.log_y)
    return Frame(chart, tuple(curves), x_ends, y_ends)


def _ends(
    found: Sequence[float], wanted: tuple[float, float] | None, *, log: bool
) -> tuple[float, float]:
    if wanted is not None:
        return (math.log10(wanted[0]), math.log10(wanted[1])) if log else wanted
    low, high = min(found), max(found)
    if high > low:
        return low, high
    room = 0.5 if log else abs(low) * 0.05 or 1.0  # one value: it lies in the middle
    return low - room, high + room


def as_csv(charts: Sequence[Lines]) -> str:
    """Return the numbers of the charts, one row for each point: chart, curve, x, y."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("chart", "curve", "x", "y"))
    for chart in charts:
        for line in chart.lines:
            writer.writerows(
                (chart.title, line.name, x, y) for x, y in zip(line.xs, line.ys, strict=True)
            )
    return out.getvalue()


# As SVG

_WIDTH, _HEIGHT = 760, 380  # of a chart
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 40, 20, 50
_ROW = 18  # of the legend
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4")  # told apart without colours as well


def as_svg(charts: Sequence[Lines]) -> str:
    """Return the charts as one picture, one below the other, each with its legend below it."""
    parts: list[str] = []
    top = 0
    for frame in filter(None, map(lay_out_chart, charts)):
        parts.append(f'<g transform="translate(0 {top})">{_svg(frame)}</g>')
        top += _HEIGHT + _ROW * len(frame.curves) + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" '
        f'viewBox="0 0 {_WIDTH} {top}" font-family="sans-serif" font-size="12">\n'
        f'<clipPath id="axes"><rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" '
        f'height="{_HEIGHT - _TOP - _BOTTOM}"/></clipPath>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{"".join(parts)}\n</svg>\n'
    )


def _svg(frame: Frame) -> str:
    chart, right, bottom = frame.chart, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def across(x: float) -> float:
        low, high = frame.x_ends
        return _LEFT + (x - low) / (high - low) * (right - _LEFT)

    def down(y: float) -> float:
        low, high = frame.y_ends
        return bottom - (y - low) / (high - low) * (bottom - _TOP)

    middle = (_LEFT + right) / 2
    parts = [_words(middle, 22, chart.title, 'text-anchor="middle" font-size="15"')]
    for x, says in frame.x_ticks(8):
        at = across(x)
        parts.append(f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="#dddddd"/>')
        parts.append(_words(at, bottom + 16, says, 'text-anchor="middle"'))
    for y, says in frame.y_ticks(6):
        at = down(y)
        parts.append(f'<path d="M{_LEFT} {at:.1f}H{right}" stroke="#dddddd"/>')
        parts.append(_words(_LEFT - 6, at + 4, says, 'text-anchor="end"'))
    parts.append(_words(middle, bottom + 36, chart.x_label, 'text-anchor="middle"'))
    parts.append(_words(_LEFT, _TOP - 8, chart.y_label, 'text-anchor="end"'))
    for number, curve in enumerate(frame.curves):
        dash = _DASHES[curve.mark % len(_DASHES)]
        stroke = (
            f'fill="none" stroke="rgb{SERIES[curve.colour]}" '
            f'stroke-width="{3 if curve.line.strong else 1.5}" stroke-dasharray="{dash}"'
        )
        points = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in curve.points)
        row = _HEIGHT + _ROW * number
        parts.append(f'<polyline points="{points}" clip-path="url(#axes)" {stroke}/>')
        parts.append(f'<path d="M{_LEFT} {row}h30" {stroke}/>')
        parts.append(_words(_LEFT + 38, row + 4, curve.line.name, ""))
    return "\n".join(parts)


def _words(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>' if words else ""
