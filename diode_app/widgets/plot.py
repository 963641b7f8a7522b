"""Curves in a terminal; textual-plotext is behind this widget alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult, RenderResult
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static
from textual_plotext import PlotextPlot

from diode_app.actions import Action, Actions
from diode_app.data.tables import as_csv
from diode_app.keys import ASKING
from diode_app.themes import SERIES
from diode_app.widgets.charts import DrawnLine, Frame, Line, Lines, chart_records, lay_out_chart
from diode_app.widgets.files import save_as
from diode_app.widgets.plain import describe_charts
from diode_app.widgets.styling import set_text

__all__ = ["Line", "Lines", "Plot"]

# How curves are drawn: plotext's name, and the legend's sign.
_THIN, _THICK = ("braille", "⣀⣀"), ("sd", "▄▄")
_BESIDE = 90  # columns from which on the legend is beside the curves and not below them
_PANEL = 44  # least columns of a chart that has others beside it
_ROWS = 9  # least rows of a chart that has others below it
_GREY = (128, 128, 128)


class PlotCanvas(PlotextPlot):
    """The curves and their axes, without a legend. `at` is the crosshair's place on the x axis."""

    @dataclass
    class Pointed(Message):
        """The mouse points at this place on the x axis; None: at none."""

        place: float | None

    frame: Frame | None = None
    at: float | None = None
    _across: tuple[int, int] = (0, 0)  # the columns of the axes' frame

    def render(self) -> RenderResult:
        frame = self.frame
        self.plt.clear_data()
        self.plt.clear_figure()
        if frame is not None:
            _fill(self.plt, frame, self.at, self.size.width // 14, self.size.height // 3)
        drawn = super().render()
        assert isinstance(drawn, Text)
        top = next((line for line in drawn.plain.splitlines() if "┌" in line), "")
        self._across = top.find("┌"), top.find("┐")
        return drawn

    def on_mouse_move(self, event: events.MouseMove) -> None:
        left, right = self._across
        if self.frame is None or not left < event.x < right:
            self.post_message(self.Pointed(None))
            return
        low, high = self.frame.x_ends
        width = max(1, right - left - 2)
        self.post_message(self.Pointed(low + (event.x - left - 1) / width * (high - low)))

    def on_leave(self) -> None:
        self.post_message(self.Pointed(None))


class PlotPanel(Vertical):
    """One chart and its legend."""

    def compose(self) -> ComposeResult:
        yield PlotCanvas()
        yield Static(classes="plot--legend")

    @property
    def canvas(self) -> PlotCanvas:
        return self.query_one(PlotCanvas)

    def show(self, frame: Frame) -> None:
        canvas = self.canvas
        canvas.frame = frame
        low, high = frame.x_ends
        if canvas.at is not None and not low <= canvas.at <= high:
            canvas.at = None
        canvas.refresh()
        self._tell()

    def on_plot_canvas_pointed(self, event: PlotCanvas.Pointed) -> None:
        event.stop()
        self.point(event.place)

    def point(self, place: float | None) -> None:
        """Put the crosshair at this place on the x axis."""
        canvas = self.canvas
        if canvas.at != place:
            canvas.at = place
            canvas.refresh()
            self._tell()

    def step(self, forwards: bool) -> None:
        """Move the crosshair to the next point of any curve."""
        frame, at = self.canvas.frame, self.canvas.at
        if frame is not None:
            places = frame.places
            if at is None:
                self.point(places[0] if forwards else places[-1])
            elif forwards:
                self.point(next((place for place in places if place > at), at))
            else:
                self.point(next((place for place in reversed(places) if place < at), at))

    def on_resize(self) -> None:
        self.set_class(self.size.width >= _BESIDE, "-beside")
        self._tell()

    def _tell(self) -> None:
        if not (self.children and self.size):
            return  # the page is being left, or this panel is not laid out yet
        frame, at = self.canvas.frame, self.canvas.at
        if frame is None:
            return
        beside = self.has_class("-beside")
        items = [_entry(frame, curve, at) for curve in frame.curves]
        if at is not None:
            label = frame.chart.x_label or "at"
            items.insert(0, Content(f"{label} {_number(at, frame.chart.whole_x)}"))
        columns = 1
        if not beside:
            widest = max(item.cell_length for item in items) + 2
            columns = max(1, (self.size.width - 2) // widest)
            items = [item.pad_right(widest - item.cell_length) for item in items]
        rows = [
            Content("").join(items[first : first + columns])
            for first in range(0, len(items), columns)
        ]
        set_text(self.query_one(".plot--legend", Static), Content("\n").join(rows))


class Plot(Actions, Vertical):
    """Shows charts beside each other, each with its own axes, or a sentence where there is nothing
    to draw. The arrow keys and the mouse move a crosshair; the legend, outside of the axes, shows
    the values of all curves there."""

    HELP_TITLE = "On a plot"
    ACTIONS = (
        Action("plot.forward", "right", "Values", "The values of all curves at the next point.",
               does="step(True)"),
        Action("plot.backward", "left", "Values back", "At the point before.", footer=False,
               does="step(False)"),
        Action("plot.export", "e", "Export", "Numbers as CSV, or the screen as SVG.", writes=True),
    )  # fmt: skip
    can_focus = True
    DEFAULT_CSS = """
    Plot {
        height: 1fr; min-height: 6;
        .plot--nothing { display: none; padding: 1 2; color: $text-muted; }
        .plot--panels { height: 1fr; grid-size: 1; }
        &.-nothing .plot--panels { display: none; }
        &.-nothing .plot--nothing { display: block; }
        &:focus { background: $boost; }
        PlotPanel { height: 1fr; }
        PlotPanel PlotextPlot { height: 1fr; width: 1fr; }
        PlotPanel .plot--legend { height: auto; max-height: 50%; padding: 0 1; }
        PlotPanel.-beside { layout: horizontal; }
        PlotPanel.-beside .plot--legend { width: auto; max-width: 45%; max-height: 100%; }
    }
    """

    def __init__(self, nothing: str = "Nothing to draw yet.", *, id: str | None = None) -> None:
        super().__init__(id=id, classes="-nothing")
        self._nothing = nothing
        self.charts: tuple[Lines, ...] = ()  # what is shown

    def compose(self) -> ComposeResult:
        yield Grid(classes="plot--panels")
        yield Static(self._nothing, classes="plot--nothing", markup=False)

    async def on_mount(self) -> None:
        await self._lay_out()

    def show(self, *charts: Lines) -> None:
        if charts == self.charts:
            return
        self.charts = charts
        if self.is_mounted:
            self.call_next(self._lay_out)

    def say_nothing(self, sentence: str) -> None:
        """The sentence to show where there is nothing to draw."""
        set_text(self.query_one(".plot--nothing", Static), sentence)

    async def _lay_out(self) -> None:
        frames = [frame for frame in map(lay_out_chart, self.charts) if frame is not None]
        if frames and getattr(self.app, "is_plain", False):
            self.say_nothing(describe_charts(self.charts))
            return
        self.set_class(not frames, "-nothing")
        grid = self.query_one(".plot--panels", Grid)
        panels = list(grid.query(PlotPanel))
        if len(panels) > len(frames):
            await grid.remove_children(panels[len(frames) :])
            panels = panels[: len(frames)]
        elif len(frames) > len(panels):
            new = [PlotPanel() for _ in range(len(frames) - len(panels))]
            await grid.mount_all(new)
            panels += new
        self._arrange()
        for panel, frame in zip(panels, frames, strict=True):
            if panel.children:  # else the page was left meanwhile
                panel.show(frame)

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Show the first charts, as many as there is room for."""
        grid = self.query_one(".plot--panels", Grid)
        panels = list(grid.query(PlotPanel))
        if not panels:
            return
        columns = max(1, min(len(panels), self.size.width // _PANEL))
        rows = max(1, min(-(-len(panels) // columns), self.size.height // _ROWS))
        shown = min(len(panels), columns * rows)
        for place, panel in enumerate(panels):
            panel.display = place < shown
        grid.styles.grid_size_columns = -(-shown // rows)
        grid.styles.grid_size_rows = rows

    # The crosshair

    def action_step(self, forwards: bool) -> None:
        for panel in self.query(PlotPanel):
            panel.step(forwards)

    # As a file

    @work(group=ASKING, exit_on_error=False)
    async def action_export(self) -> None:
        charts = self.charts
        title = charts[0].title if charts else ""
        name = "-".join("".join(c if c.isalnum() else " " for c in title).split()) or "plot"

        async def make_text(target: Path) -> str:
            if target.suffix == ".csv":
                return as_csv(chart_records(charts))
            return self.app.export_screenshot(title=title)

        question = "Write this plot to (.csv, or .svg as it is on the screen)"
        target = await save_as(self, question, f"{name}.csv", (".csv", ".svg"), make_text)
        if target is not None:
            self.notify(f"It is in {target}.", markup=False)


def _entry(frame: Frame, curve: DrawnLine, at: float | None) -> Content:
    _, sign = _marker(curve)
    red, green, blue = SERIES[curve.colour]
    entry = Content.assemble(
        (sign, f"rgb({red},{green},{blue})"),
        (f" {curve.line.name}", "bold" if curve.line.strong else ""),
    )
    if at is None:
        return entry
    value = frame.value_at(curve, at)
    return Content.assemble(entry, (f" {'–' if value is None else _number(value)}", "bold"))


def _number(value: float, whole: bool = False) -> str:
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def _marker(curve: DrawnLine) -> tuple[str, str]:
    return _THICK if curve.line.strong else _THIN


def _fill(plt: Any, frame: Frame, at: float | None, columns: int, rows: int) -> None:
    """Give the chart to plotext. What the chart is about is drawn last, over the others."""
    for curve in sorted(frame.curves, key=lambda curve: curve.line.strong):
        plt.plot(
            [x for x, _ in curve.points],
            [y for _, y in curve.points],
            color=SERIES[curve.colour],
            marker=_marker(curve)[0],
        )
    if at is not None:
        plt.vline(at, _GREY)
    chart = frame.chart
    plt.title(chart.title)
    plt.xlabel(chart.x_label)
    plt.ylabel(chart.y_label)
    plt.xlim(*frame.x_ends)
    plt.ylim(*frame.y_ends)
    plt.xticks(*_apart(frame.x_ticks(max(2, columns))))
    plt.yticks(*_apart(frame.y_ticks(max(2, rows))))


def _apart(ticks: Sequence[tuple[float, str]]) -> tuple[list[float], list[str]]:
    return [place for place, _ in ticks], [says for _, says in ticks]
