"""What a plot shows: curves over each other, and how they lie on their axes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from diode_app.themes import SERIES
from diode_app.widgets.ticks import Tick, linear, logarithmic

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A curve. `xs` and `ys` have one length; points that are not finite are left out. The `strong`
    one is what the chart is about: it is thick, and over the others. `colour` is its number in
    SERIES, by default its index in the chart."""

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
    axis, and the number of its colour."""

    line: Line
    points: tuple[Point, ...]
    colour: int


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
            curves.append(DrawnLine(line, points, colour))
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
