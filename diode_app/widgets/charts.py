"""What a plot shows: curves over each other, how they lie on their axes, and the axes' ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diode_app.themes import SERIES

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
    """Curves in one chart. On a logarithmic y axis only values above zero are shown. An axis with a
    range has it whatever is drawn; one without fits the curves. `whole_x`: x has only whole
    numbers, as with epochs."""

    lines: Sequence[Line]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    log_y: bool = False
    whole_x: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class DrawnLine:
    """A line as it is drawn: its points where the axes have them, with the logarithm of y on a
    logarithmic axis, and the number of its colour."""

    line: Line
    points: tuple[Point, ...]
    colour: int


@dataclass(frozen=True)
class Frame:
    """A chart with its layout: its curves (at least one) and the ends of its axes, for y in
    logarithms on a logarithmic axis."""

    chart: Lines
    curves: tuple[DrawnLine, ...]
    x_ends: tuple[float, float]
    y_ends: tuple[float, float]

    def x_ticks(self, most: int) -> list[Tick]:
        return linear(*self.x_ends, most, whole=self.chart.whole_x)

    def y_ticks(self, most: int) -> list[Tick]:
        return (logarithmic if self.chart.log_y else linear)(*self.y_ends, most)

    @property
    def places(self) -> list[float]:
        """The x values that have points, in order."""
        return sorted({x for curve in self.curves for x, _ in curve.points})

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
            (float(x), math.log10(y) if chart.log_y else float(y))
            for x, y in zip(line.xs, line.ys, strict=True)
            if math.isfinite(x) and math.isfinite(y) and (y > 0 or not chart.log_y)
        )
        if points:
            colour = (number if line.colour is None else line.colour) % len(SERIES)
            curves.append(DrawnLine(line, points, colour))
    if not curves:
        return None
    x_ends = _ends([x for c in curves for x, _ in c.points], chart.x_range)
    y_ends = _ends([y for c in curves for _, y in c.points], chart.y_range, log=chart.log_y)
    return Frame(chart, tuple(curves), x_ends, y_ends)


def _ends(
    found: Sequence[float], wanted: tuple[float, float] | None, *, log: bool = False
) -> tuple[float, float]:
    if wanted is not None:
        return (math.log10(wanted[0]), math.log10(wanted[1])) if log else wanted
    low, high = min(found), max(found)
    if high > low:
        return low, high
    room = 0.5 if log else abs(low) * 0.05 or 1.0  # one value: it lies in the middle
    return low - room, high + room


def chart_records(charts: Sequence[Lines]) -> list[dict[str, Any]]:
    """Return a record for each point of the charts."""
    return [
        {"chart": chart.title, "curve": line.name, "x": x, "y": y}
        for chart in charts
        for line in chart.lines
        for x, y in zip(line.xs, line.ys, strict=True)
    ]


# Round numbers along an axis


Tick = tuple[float, str]  # where it is, and what it says

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def linear(low: float, high: float, most: int, *, whole: bool = False) -> list[Tick]:
    """Return round numbers from `low` to `high`, about `most` at most; `whole` ones where there is
    nothing between, as with epochs."""
    if not high > low:
        return [(low, text_of(low))]
    rough = (high - low) / max(1, most)
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next((s * scale for s in _STEPS if s * scale >= rough * (1 - 1e-9)), 10 * scale)
    if whole:
        step = max(1.0, float(math.ceil(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(place * step, text_of(place * step)) for place in range(first, last + 1)]


def logarithmic(low: float, high: float, most: int) -> list[Tick]:
    """As `linear`, for an axis of logarithms to base 10; `low` and `high` are logarithms too. Ticks
    are at powers of ten, and at 2 and 5 times these where there is room, as logarithms."""
    first, last = math.floor(low - 1e-9), math.ceil(high + 1e-9)
    for factors in ((1, 2, 5), (1,)):
        found = [
            (math.log10(factor) + power, text_of(factor * 10.0**power))
            for power in range(first, last + 1)
            for factor in factors
            if low - 1e-9 <= math.log10(factor) + power <= high + 1e-9
        ]
        if 2 <= len(found) <= most:
            return found
    if len(found) > most:  # many powers of ten: every second, third, ...
        return found[:: math.ceil(len(found) / max(1, most))]
    shown = linear(10.0**low, 10.0**high, most)  # less than from one of them to the next
    return [(math.log10(value), says) for value, says in shown if value > 0]


def text_of(value: float) -> str:
    """Return a number as an axis shows it: 0.5, 20, 1,500, 3e+06."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-4):
        return f"{value:.3g}"
    return f"{round(value, 10):,.10g}"
