"""Curves and bars in a terminal; textual-plotext is behind this widget alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from textual.app import ComposeResult, RenderResult
from textual.containers import Vertical
from textual.widgets import Static
from textual_plotext import PlotextPlot

from diode_app.themes import SERIES

# Told apart without colours as well.
_MARKS = 5  # along an axis of a given range, beside its start
MARKERS = ("braille", "dot", "x", "*", "+", "o")
_STRONG = "sd"


@dataclass(frozen=True)
class Line:
    """A curve: `xs` and `ys` of one length; what is not finite is left out. The `strong` one is
    what the chart is about."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    strong: bool = False


@dataclass(frozen=True)
class Lines:
    """Curves over each other. On a logarithmic axis only what is above zero is shown. An axis
    with a range is that long whatever is drawn, and its marks are even; one without is as long
    as the curves."""

    lines: Sequence[Line]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bars:
    """One bar for each label, side by side, or one under the other where `flat`."""

    labels: Sequence[str]
    values: Sequence[float]
    title: str = ""
    y_label: str = ""
    flat: bool = False


Chart = Lines | Bars


class _Canvas(PlotextPlot):
    """plotext puts logarithms in the place of what it was given whenever it draws: what is drawn
    again, since its size or the colours have changed, is given anew."""

    chart: Chart | None = None

    def render(self) -> RenderResult:
        if self.chart is not None:
            _fill(self.plt, self.chart)
        return super().render()


class Plot(Vertical):
    """Shows a chart, or a sentence where there is nothing to draw."""

    DEFAULT_CSS = """
    Plot {
        height: 1fr; min-height: 6;
        PlotextPlot { height: 1fr; }
        Static { display: none; padding: 1 2; color: $text-muted; }
        &.-nothing PlotextPlot { display: none; }
        &.-nothing Static { display: block; }
    }
    """

    def __init__(self, nothing: str = "Nothing to draw yet.", *, id: str | None = None) -> None:
        super().__init__(id=id, classes="-nothing")
        self._nothing = nothing
        self._chart: Chart | None = None

    def compose(self) -> ComposeResult:
        yield _Canvas()
        yield Static(self._nothing, markup=False)

    def on_mount(self) -> None:
        if self._chart is not None:
            self.show(self._chart)

    def show(self, chart: Chart) -> None:
        self._chart = chart
        if not self.is_mounted:
            return
        canvas = self.query_one(_Canvas)
        canvas.chart = chart
        self.set_class(not _fill(canvas.plt, chart), "-nothing")
        canvas.refresh()


def _fill(plt: Any, chart: Chart) -> bool:
    """Gives the chart to plotext; whether there is something in it to draw."""
    plt.clear_data()
    plt.clear_figure()
    return _lines(plt, chart) if isinstance(chart, Lines) else _bars(plt, chart)


def _lines(plt: Any, chart: Lines) -> bool:
    drawn = False
    for number, line in enumerate(chart.lines):
        points = [
            (x, y)
            for x, y in zip(line.xs, line.ys, strict=True)
            if math.isfinite(x)
            and math.isfinite(y)
            and (x > 0 or not chart.log_x)
            and (y > 0 or not chart.log_y)
        ]
        if not points:
            continue
        drawn = True
        plt.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=line.name,
            color=SERIES[number % len(SERIES)],
            marker=_STRONG if line.strong else MARKERS[number % len(MARKERS)],
        )
    if drawn:
        plt.title(chart.title)
        plt.xlabel(chart.x_label)
        plt.ylabel(chart.y_label)
        plt.xscale("log" if chart.log_x else "linear")
        plt.yscale("log" if chart.log_y else "linear")
        for ends, limit, ticks in (
            (chart.x_range, plt.xlim, plt.xticks),
            (chart.y_range, plt.ylim, plt.yticks),
        ):
            if ends is not None:
                limit(*ends)
                marks = [ends[0] + (ends[1] - ends[0]) * i / _MARKS for i in range(_MARKS + 1)]
                ticks(marks, [f"{mark:.3g}" for mark in marks])
    return drawn


def _bars(plt: Any, chart: Bars) -> bool:
    if not chart.values:
        return False
    plt.bar(
        list(chart.labels),
        list(chart.values),
        orientation="horizontal" if chart.flat else "vertical",
        color=SERIES[0],
        width=0.6,
    )
    plt.title(chart.title)
    plt.ylabel(chart.y_label)
    return True
