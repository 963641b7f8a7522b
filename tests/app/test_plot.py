"""Curves: their axes, their legend, the crosshair, and files of them."""

from __future__ import annotations

import asyncio
import csv
import io
import math
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest
from textual.app import App, ComposeResult
from textual.containers import Grid
from textual.content import Content
from textual.widgets import Static

from diode_app.data.curves import kinds, samples
from diode_app.widgets.charts import Line, Lines, lay_out_chart, linear, logarithmic
from diode_app.widgets.curve_charts import RunCurves, collection_charts, training_charts
from diode_app.widgets.plot import Plot, PlotCanvas, PlotPanel
from tests.app.waiting import enter, lines_of, press, running, settled, text_of

FALLING = Lines([Line("loss", (1, 2, 3, 4), (0.5, 0.05, 0.02, 0.001))], log_y=True)
TOP = Lines(
    [
        Line("gemm@6", range(31), [97 + x / 10 for x in range(31)]),
        Line("max-autotune DEFAULT", range(31), [90 + x / 10 for x in range(31)]),
    ],
    title="within x %", x_label="epoch", whole_x=True, x_range=(0, 30), y_range=(0, 100),
)  # fmt: skip


class _Shown(App[None]):
    keys = SimpleNamespace(held=None)  # the dashboard's say whether it draws

    def compose(self) -> ComposeResult:
        yield Plot()


async def drawn(pilot, *charts: Lines) -> Plot:
    plot = pilot.app.query_one(Plot)
    plot.show(*charts)
    await settled(pilot)
    return plot


async def test_a_logarithmic_curve_is_the_same_after_another_size():
    async with _Shown().run_test(size=(60, 20)) as pilot:
        await drawn(pilot, FALLING)
        before = text_of(pilot.app)
        assert "0.01" in before
        await pilot.resize_terminal(80, 30)
        await pilot.resize_terminal(60, 20)
        await settled(pilot)
        assert text_of(pilot.app) == before


async def test_what_a_logarithm_cannot_show_is_left_out():
    async with _Shown().run_test(size=(60, 20)) as pilot:
        await drawn(pilot, Lines([Line("loss", (1, 2), (0.0, float("nan")))], log_y=True))
        assert "Nothing to draw yet." in text_of(pilot.app)


@pytest.mark.parametrize("size", [(60, 20), (140, 30)], ids=["narrow", "wide"])
async def test_the_legend_is_outside_of_the_axes(size):
    async with _Shown().run_test(size=size) as pilot:
        await drawn(pilot, TOP)
        lines = lines_of(pilot.app)
        top = next(i for i, line in enumerate(lines) if "┌" in line)
        bottom = next(i for i, line in enumerate(lines) if "└" in line)
        left, right = lines[top].index("┌"), lines[top].index("┐")
        inside = " ".join(line[left : right + 1] for line in lines[top : bottom + 1])
        assert "DEFAULT" not in inside
        assert "gemm@6" not in inside
        assert "max-autotune DEFAULT" in text_of(pilot.app)


async def test_a_legend_takes_no_more_rows_than_its_text(monkeypatch):
    """Textual keeps the height of the first of two texts where it lays out between them."""
    update = Static.update

    def update_and_lay_out(static: Static, said: Content, *, layout: bool = True) -> None:
        update(static, said, layout=layout)
        static.screen._refresh_layout()

    async with _Shown().run_test(size=(60, 20)) as pilot:
        with monkeypatch.context() as patched:
            patched.setattr(Static, "update", update_and_lay_out)
            plot = await drawn(pilot, Lines([Line("a", (1, 2), (1, 2)), Line("b", (1, 2), (2, 1))]))
        assert plot.query_one(".plot--legend").size.height == 1


async def test_what_a_chart_is_about_is_thick_and_over_the_others():
    """A curve that lies on the strong one, and comes after it, hides nothing of it."""
    places = tuple(range(30))
    strong, same, other = (
        Line("gemm@6", places, places, strong=True), Line("DEFAULT", places, places),
        Line("ATen", places, places[::-1], colour=1),
    )  # fmt: skip
    shown = []
    async with _Shown().run_test(size=(80, 24)) as pilot:
        for lines in ([strong, other], [strong, same, other]):
            await drawn(pilot, Lines(lines))
            (canvas,) = pilot.app.query(PlotCanvas)
            shown.append([sign in "▀▄▌▐▚▞▙▟▛▜█" for sign in str(canvas.render())])
    assert shown[0] == shown[1]
    assert sum(shown[0]) > 60


async def test_the_crosshair_has_the_values_of_all_curves():
    async with _Shown().run_test(size=(100, 24)) as pilot:
        plot = await drawn(pilot, TOP)
        plot.focus()
        await press(pilot, "right", "right", "right", "left")
        assert "epoch 1 " in text_of(pilot.app)
        assert "gemm@6 97.1" in text_of(pilot.app)
        assert "max-autotune DEFAULT 90.1" in text_of(pilot.app)
        # The mouse: at the right end of the axes, then outside of them.
        lines = lines_of(pilot.app)
        top = next(i for i, line in enumerate(lines) if "┌" in line)
        await pilot.hover("PlotCanvas", offset=(lines[top].index("┐") - 1, 5))
        await settled(pilot)
        assert "gemm@6 100 " in text_of(pilot.app)
        await pilot.hover("PlotCanvas", offset=(0, 5))
        await settled(pilot)
        assert "gemm@6 100" not in text_of(pilot.app)


async def test_charts_have_axes_of_their_own_and_as_many_as_there_is_room_for():
    charts = [Lines([Line("one", (0, 1), (0, i))], title=f"chart {i}") for i in range(1, 7)]
    async with _Shown().run_test(size=(100, 40)) as pilot:
        await drawn(pilot, *charts)
        assert all(f"chart {i}" in text_of(pilot.app) for i in range(1, 7))
        await pilot.resize_terminal(40, 20)
        await settled(pilot)
        assert "chart 1" in text_of(pilot.app)
        assert "chart 2" in text_of(pilot.app)
        assert "chart 3" not in text_of(pilot.app)
        await drawn(pilot, charts[5])
        assert "chart 6" in text_of(pilot.app)
        assert "chart 1" not in text_of(pilot.app)


async def test_a_plot_is_saved_as_a_picture_and_as_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with _Shown().run_test(size=(100, 30)) as pilot:
        plot = await drawn(pilot, TOP)
        for name in ("curves.svg", "curves.csv"):
            plot.focus()
            await press(pilot, "e")
            await enter(pilot, str(tmp_path / name))
    root = ET.fromstring((tmp_path / "curves.svg").read_text())
    words = " ".join(element.text or "" for element in root.iter()).replace("\xa0", " ")
    assert "max-autotune DEFAULT" in words
    rows = list(csv.DictReader(io.StringIO((tmp_path / "curves.csv").read_text())))
    assert len(rows) == 62
    assert rows[0] == {"chart": "within x %", "curve": "gemm@6", "x": "0", "y": "97.0"}


# Axes


@pytest.mark.parametrize(
    ("low", "high", "most", "whole", "says"),
    [
        (0, 100, 6, False, ["0", "20", "40", "60", "80", "100"]),
        (1, 30, 4, True, ["10", "20", "30"]),
        (1, 3, 8, True, ["1", "2", "3"]),
        (0.9113, 0.9734, 4, False, ["0.92", "0.94", "0.96"]),
        (0, 2_427_952, 3, False, ["0", "1e+06", "2e+06"]),
        (5, 5, 4, True, ["5"]),
    ],
)
def test_ticks_are_round(low, high, most, whole, says):
    ticks = linear(low, high, most, whole=whole)
    assert [text for _, text in ticks] == says
    assert all(low <= place <= high for place, _ in ticks)


@pytest.mark.parametrize(
    ("low", "high", "most", "says"),
    [
        (0.001, 1000, 7, ["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]),
        (0.001, 1000, 4, ["0.001", "0.1", "10", "1,000"]),
        (1, 30, 6, ["1", "2", "5", "10", "20"]),
        (0.21, 0.44, 4, ["0.3", "0.4"]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round(low, high, most, says):
    assert [text for _, text in logarithmic(math.log10(low), math.log10(high), most)] == says


# Of runs

CURVES = {
    "trees-0/objective": ((1.0, 300.0), (0.5, 0.1)),
    "trees-0/train_objective": ((1.0, 300.0), (0.4, 0.05)),
    "network-1/objective": ((1.0, 40.0), (0.6, 0.2)),
    "network-1/efficiency": ((1.0, 40.0), (0.6, 0.9)),
}


def test_epochs_and_rounds_are_apart_and_a_run_has_one_colour():
    charts = training_charts(
        [RunCurves(CURVES, before="3 ", colour=4), RunCurves(CURVES, before="7 ", colour=1)], "loss"
    )
    assert [(c.x_label, c.whole_x) for c in charts] == [("epoch", True), ("round", True)]
    assert [[line.name for line in c.lines] for c in charts] == [
        ["3 network-1", "7 network-1"],
        ["3 trees-0", "7 trees-0"],
    ]
    frame = lay_out_chart(charts[1])
    assert [c.colour for c in frame.curves] == [4, 1]
    alone = training_charts([RunCurves(CURVES)], "loss")[1]
    assert [line.name for line in alone.lines] == ["trees-0", "trees-0 (fitted to)"]
    assert training_charts([RunCurves(CURVES)], "loss", member="trees-0")[0].x_label == "round"


# As an NVIDIA H200 told them in a collection: seconds, MHz, °C, W, %, GB, timings/s, throttled.
RECORDED = [
    [0.2, 1980, 35, 121, 0, 0.54, None, 0],
    [602.3, 1980, 41, 345, 97, 2.42, 14.1, 0],
    [1204.1, 1215, 84, 298, 99, 2.42, 9.3, 1],
]


def test_what_a_gpu_did_is_drawn_by_kind_over_the_time_of_the_run():
    idle = {"timings": 0, "samples": [[0.0, 1000, 30, 90]]}
    curves = samples({"gpus": {"0": {"timings": 23, "samples": RECORDED}, "1": idle}})
    charts = collection_charts(curves, "power, W")
    assert [chart.title for chart in charts] == [
        "power, W", "temperature, °C", "memory, GB", "held back (1: yes)", "timings a second",
        "utilisation, %", "clock, MHz",
    ]  # fmt: skip
    assert charts[0].x_label == "minutes"
    assert [line.name for line in charts[0].lines] == ["GPU 0", "GPU 1"]
    assert charts[0].lines[0].ys == (121, 345, 298)
    assert charts[4].lines[0].xs == pytest.approx([602.3 / 60, 1204.1 / 60])
    assert kinds(curves)[0] == "timings a second"


async def test_a_page_can_be_left_while_its_plot_is_laid_out(make_app, store, monkeypatch):
    """Then none of its widgets is mounted any more."""
    async with running(make_app(), (160, 50), "R") as (app, pilot):
        monkeypatch.setattr(Grid, "mount_all", lambda *_: asyncio.sleep(0))
        app.screen.query_one(Plot).show(Lines([Line("a", [1, 2], [1, 2])]))
        await settled(pilot)
        assert app.is_running


async def test_a_plot_may_be_left_while_its_size_changes():
    """The legend is written for the new size, where it is still there."""
    async with _Shown().run_test(size=(60, 20)) as pilot:
        plot = await drawn(pilot, TOP)
        panel = plot.query_one(PlotPanel)
        panel.on_resize()
        await panel.remove_children()
        panel.on_resize()
        await settled(pilot)
        assert pilot.app.is_running
