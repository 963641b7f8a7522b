"""The plain mode: text without drawing characters, one part below the other."""

from __future__ import annotations

import pytest

from diode_app.screens.places import PLACES
from diode_app.widgets.charts import Line, Lines
from diode_app.widgets.plain import describe_charts
from tests.app.trained import make_training
from tests.app.waiting import lines_of, press, running, text_of


@pytest.fixture(autouse=True)
def training(filled):
    return make_training(filled, "trees", 0.9, trees=0.3)


def drawing(app) -> set[str]:
    """The drawing characters on the screen."""
    shown = "".join(lines_of(app))
    return {c for c in shown if "\u2500" <= c < "\u2600" or "\u2800" <= c < "\u2900"}


async def test_no_page_draws(make_app):
    async with running(make_app(plain=True), (120, 40)) as (app, pilot):
        for place in PLACES:
            await press(pilot, place.key)
            assert drawing(app) == set(), place.mode
            await press(pilot, "escape")  # from a field
        await press(pilot, "D", "enter")
        assert drawing(app) == set()
        await press(pilot, "question_mark")
        assert drawing(app) == set()


async def test_curves_are_a_table_and_keys_are_the_same(make_app):
    async with running(make_app(plain=True), (160, 50), "R") as (app, pilot):
        assert app.screen.has_class("-narrow")  # parts are below each other
        assert not app.screen.has_class("-wide")
        await press(pilot, "enter", "1")
        shown = text_of(app)
        assert "over round curve points from to first least greatest last" in shown
        assert "trees 11 1 11" in shown


def test_a_chart_without_a_title_is_named_by_its_values():
    curves = (Line("one", [1, 2, 3], [0.5, 0.25, 1.0]), Line("none", [], []))
    head, _, row, *_ = describe_charts([Lines(curves, x_label="rank", y_label="µs")]).splitlines()
    assert head == "µs over rank"
    assert row.split() == ["one", "3", "1", "3", "0.5", "0.25", "1", "1"]
