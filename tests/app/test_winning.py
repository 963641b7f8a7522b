"""Why a run won: the importance of settings, and the parallel view of the marked runs."""

from __future__ import annotations

import sys

import pytest

from diode_app.widgets.plot import Plot
from diode_app.widgets.table import MemoryTable
from diode_engine.store import RunState, Store
from tests.app.trained import drawn, make_training
from tests.app.waiting import press, press_each, running, text_of

SETTINGS = [(depth, rate) for rate in (0.1, 0.01, 0.3) for depth in (6, 8)]


def make_trainings(store: Store) -> list[int]:
    """Trainings whose efficiency follows from their rate."""
    return [
        make_training(store, "trees", 0.9 - rate / 10 + depth / 1e5,
                      {"trees": {"depth": depth, "rate": rate}, "seed": 1}, trees=0.3)
        for depth, rate in SETTINGS
    ]  # fmt: skip


async def why(pilot) -> MemoryTable:
    """Marks the last three trainings and asks why the best one won."""
    await press_each(pilot, "space", "down", "space", "down", "space", "v", "w")
    return pilot.app.screen.query_one(MemoryTable)


async def test_settings_are_listed_by_importance_with_the_marked_runs_values(make_app, store):
    pytest.importorskip("optuna", reason="needs Optuna (the extra train)")
    runs = make_trainings(store)
    async with running(make_app(), (160, 40), "R") as (app, pilot):
        table = await why(pilot)
        best = str(runs[3])  # of the last three; its rate is 0.01
        assert f"Why run {best} is the best; what mattered in 6 trainings" in text_of(app)
        rows = [row.key for row in table.page.rows]
        assert rows[:2] == ["of best", "trees rate"]
        assert "seed" not in rows
        rate = table.page.rows[1]
        assert rate.record["importance"] > 0.5
        assert (rate.cells[best], rate.record[str(runs[5])]) == ("0.01", 0.3)
        (chart,) = app.screen.query_one(Plot).charts
        assert chart.title == "1 trees rate · 2 trees depth · 3 of best"
        assert [line.name for line in chart.lines] == [f"run {best}", f"run {runs[5]}",
                                                       f"run {runs[4]}"]  # fmt: skip
        assert list(chart.lines[0].ys) == [0.0, 1.0, 1.0]
        assert chart.lines[0].strong
        await press(pilot, "w")
        assert "what differs" in text_of(app)
        assert len(drawn(app)) == 3


async def test_without_optuna_the_page_says_so_and_draws_the_runs(make_app, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    make_trainings(store)
    async with running(make_app(), (160, 40), "R") as (app, pilot):
        table = await why(pilot)
        assert "pip install 'diode-engine[train]'" in text_of(app)
        assert [r.key for r in table.page.rows] == ["of best", "trees depth", "trees rate"]
        assert len(drawn(app)) == 3


async def test_a_few_trainings_are_said_to_be_too_few(make_app, store):
    for value in (0.91, 0.97, 0.93):
        make_training(store, "trees", value, {"depth": 6}, trees=0.3)
    async with running(make_app(), (160, 40), "R") as (app, pilot):
        await why(pilot)
        assert "takes 5 trainings" in text_of(app)
        assert "there are 3" in text_of(app)


async def test_runs_that_are_no_trainings_have_no_reason(make_app, store):
    for _ in range(3):
        store.finish_run(store.start_run("collect", {}), RunState.DONE)
    async with running(make_app(), (160, 40), "R") as (app, pilot):
        await why(pilot)
        assert "None of these runs is a training that was judged" in text_of(app)
