"""Runs as a table of experiments: columns, marks, the pinned one, the preview, the comparison."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from diode_app.data.comparison import compare_runs, name_metric
from diode_app.data.curves import CurveReader
from diode_app.data.run_results import RunReader
from diode_app.data.runs import runs_page
from diode_app.data.tables import Column, PageQuery, fit_columns
from diode_app.screens.compare import CompareRunsScreen
from diode_app.screens.runs import RunsScreen
from diode_app.settings import Settings
from diode_app.themes import SERIES
from diode_app.widgets.plot import Plot
from diode_app.widgets.table import PagedTable
from diode_engine.runs.process import current_process
from diode_engine.store import RunState, Store
from tests.app.judged import judge
from tests.app.trained import drawn, make_training
from tests.app.waiting import looked, press, running, settled, text_of, toasts


def cell(app, run: int, column: str):
    """The text and the style of a cell that is drawn."""
    table = app.screen.query_one(PagedTable)
    return table.grid.cells_of([row.key for row in table.page.rows].index(str(run)))[column]


async def test_a_training_is_a_run_with_what_came_of_it(store):
    first = make_training(store, "trees", 0.9, {"network.epochs": 30, "seed": 0, "query": "op:mm"})
    second = make_training(store, "network", 0.95, {"query": "op:mm"})
    make_training(store, "network", 0.5, {"query": "op:bmm"})
    store.tag(first, "diode/baseline")
    reader = RunReader()
    page = runs_page(store, PageQuery(sort="efficiency", descending=True), {}, reader)
    assert [row.key for row in page.rows][:2] == [str(second), str(first)]
    cells = page.rows[1].cells
    assert cells["family"] == "trees"
    assert cells["efficiency"] == "0.900"
    assert cells["model"] == "trees@1"
    assert cells["data"] == "op:mm"
    assert cells["changed"] == "network.epochs 30"
    assert page.rows[0].cells["against"] == "+0.050"
    assert page.rows[2].cells["against"] == ""  # it was judged on other problems
    page = runs_page(store, PageQuery(sort="against"), {}, reader)
    assert [row.cells["against"] for row in page.rows] == ["+0.000", "+0.050", ""]
    store.tag(second, "best")
    page = runs_page(store, PageQuery(sort="tags"), {}, reader)
    assert [bool(row.cells["tags"]) for row in page.rows] == [True, True, False]
    store.set_note(first, "the first")  # what is known of a result is read once, a note each time
    page = runs_page(store, PageQuery(), {}, reader)
    assert page.rows[2].cells["note"] == "the first"


async def test_the_preview_is_beside_the_list_where_it_is_wide(make_app, store):
    make_training(store, "trees", 0.9, trees=0.3)
    run = make_training(store, "network", 0.95, one=0.2, two=0.1)
    async with running(make_app(), (160, 40), "R") as (app, pilot):
        assert f"Run {run}, train" in text_of(app)
        assert "model network@1" in text_of(app)
        assert drawn(app) == [f"{run} one", f"{run} two"]
        await press(pilot, "down")
        assert f"Run {run - 1}, train" in text_of(app)
        assert drawn(app) == [f"{run - 1} trees"]
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert f"Run {run - 1}, train" not in text_of(app)


async def test_marked_runs_have_colours_and_are_compared(make_app, store):
    runs = [
        make_training(store, "trees", value, {"trees.depth": depth, "seed": 1}, trees=0.3)
        for value, depth in ((0.91, 6), (0.97, 8), (0.93, 6))
    ]
    store.tag(runs[1], "baseline")  # a person's own tag
    async with running(make_app(), (160, 40), "R") as (app, pilot):
        await press(pilot, "v")
        assert isinstance(app.screen, RunsScreen)
        assert "Mark the runs to compare first" in toasts(app)[-1]
        await press(pilot, "ctrl+end", "p")  # the first training is pinned
        assert store.run(runs[0]).tags == ("diode/baseline",)
        assert store.run(runs[1]).tags == ("baseline",)
        assert cell(app, runs[0], "mark")[0] == "★"
        await press(pilot, "up", "space")
        red, green, blue = SERIES[1]
        assert cell(app, runs[1], "mark")[0] == "●"
        assert f"rgb({red},{green},{blue})" in cell(app, runs[1], "mark")[1]
        await press(pilot, "up")
        colours = [line.colour for line in app.screen.query_one(Plot).charts[0].lines]
        assert drawn(app) == [f"{runs[0]} trees (pinned)", f"{runs[1]} trees", f"{runs[2]} trees"]
        assert colours == [0, 1, len(SERIES) - 1]
        await press(pilot, "v")
        assert isinstance(app.screen, CompareRunsScreen)
        rows = {row.key: row.cells for row in app.screen.query_one(PagedTable).page.rows}
        assert rows["setting trees depth"][str(runs[1])] == "8 (+2)"
        assert rows["of best"][str(runs[1])] == "0.97 (+0.06)"
        assert rows["of best"][str(runs[0])] == "0.91"
        assert "setting seed" not in rows  # it is the same of all
        assert "worst tenth, below" not in rows
        assert len(drawn(app)) == 3
        await press(pilot, "d")
        rows = {row.key for row in app.screen.query_one(PagedTable).page.rows}
        assert {"setting seed", "worst tenth, below", "judged on"} <= rows
        await press(pilot, "v", "l")
        chart = app.screen.query_one(Plot).charts[0]
        assert chart.title == "loss"
        assert chart.log_y
        await press(pilot, "escape")
        assert isinstance(app.screen, RunsScreen)
        await press(pilot, "ctrl+end", "p")
        assert store.run(runs[0]).tags == ()
        assert f"Run {runs[0]} is no longer pinned." in toasts(app)


async def test_a_validation_has_its_efficiency_among_the_runs(make_app, timed, model):
    training = make_training(timed, "trees", 0.9, {"query": "op:mm"})
    run, report = judge(timed, model)
    async with running(make_app(), (160, 40), "R", "space", "down") as (app, pilot):
        assert cell(app, run, "efficiency")[0] == f"{report.efficiency:.3f}"
        await press(pilot, "v")
        rows = {row.key: row.cells for row in app.screen.query_one(PagedTable).page.rows}
        # They were judged on different problems, so that there is no difference in brackets.
        assert rows["of best"] == {
            "fact": "of best", str(run): f"{report.efficiency:.6g}", str(training): "0.9",
        }  # fmt: skip
        assert "They were judged on different problems" in text_of(app)


def test_a_training_that_is_not_judged_yet_is_not_compared(store):
    done = make_training(store, "trees", 0.9)
    live = store.start_run("train", {"family": "trees"}, process=current_process())
    store.update_run(live, progress={"member": "trees-0", "efficiency": 0.95})
    found = compare_runs(store, (done, live), CurveReader()).comparison
    (row,) = [row for row in found.rows(all_facts=True) if row.key == "of best"]
    assert (row.cells[str(done)], row.cells[str(live)]) == ("0.9", "(0.950)")


def test_metrics_are_words():
    names = ("efficiency_top 3", "efficiency_of_others ATen", "efficiency_p10", "log_rmse")
    assert [name_metric(name) for name in names] == [
        "best of the first three", "ATen", "worst tenth, below", "error of the times' logarithm",
    ]  # fmt: skip


async def test_members_are_looked_at_one_by_one(make_app, store):
    for value in (0.9, 0.95):
        run = make_training(store, "network", value, one=0.3, two=0.2)
    async with running(make_app(), (120, 40), "R", "space", "down", "v", "m") as (app, pilot):
        assert drawn(app) == [f"{run} one", f"{run - 1} one"]
        await press(pilot, "m", "m")
        assert len(drawn(app)) == 4


# Columns narrow away


async def test_columns_that_have_no_room_are_left_out_and_come_back(make_app, store):
    make_training(store, "trees", 0.9, trees=0.3)
    async with running(make_app(), (80, 24), "R") as (app, pilot):
        grid = app.screen.table.grid
        assert grid.virtual_size.width <= grid.size.width
        narrow = {column.key for column in grid.columns}
        assert {"run", "state", "efficiency", "kind"} <= narrow
        assert "more columns: → ←" in text_of(app)
        await pilot.resize_terminal(119, 40)
        await settled(pilot)
        assert narrow < {column.key for column in grid.columns}
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert {column.key for column in grid.columns} == narrow


async def test_the_columns_of_the_highest_rank_go_first():
    columns = [Column("a", "a"), Column("b", "b", rank=1), Column("c", "c", rank=2),
               Column("d", "d", rank=2)]  # fmt: skip
    keys = lambda room: [c.key for c in fit_columns(columns, [10] * 4, room)]  # noqa: E731
    assert [keys(room) for room in (40, 39, 29, 19, 5)] == [
        ["a", "b", "c", "d"], ["a", "b", "c"], ["a", "b"], ["a"], ["a"],
    ]  # fmt: skip


async def test_runs_of_several_machines_say_where_they_work_and_who_started_them(
    make_app, store, path, monkeypatch
):
    for host, user in (("gpu-a.example", "ann"), ("gpu-b.example", "bob")):
        monkeypatch.setenv("LOGNAME", user)
        process = replace(current_process(), host=host, machine=host)
        store.finish_run(store.start_run("train", {}, process=process), RunState.DONE)
    app = make_app()
    app.session.settings = Settings(run_columns=("run", "kind", "host", "user"))
    async with running(app, (80, 24), "R") as (_, pilot):
        assert "2 train gpu-b.example bob 1 train gpu-a.example ann" in text_of(app)
        await press(pilot, "slash", *"host:gpu-a", "enter")
        assert "gpu-b.example" not in text_of(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_list_offers_what_can_be_done_with_the_run_at_hand(
    make_app, store, size, tmp_path
):
    """In the footer, by its key, in the palette and among the commands."""

    def offered() -> set[str]:
        bindings = app.screen.active_bindings.values()
        names = {active.binding.action for active in bindings if active.enabled}
        here = {"cancel": "Cancel", "resume": "Run again", "pin": "Pin", "tag": "Tags",
                "note": "Note"}  # fmt: skip
        labels = {label for label, _ in app.screen.headless_commands()}
        for name, label in here.items():
            assert (name in names) is (label in labels), name
        return names & set(here)

    command = ("diode-engine", "train", f"--store={store.location}")
    started_by = {"process": current_process(), "command": command, "directory": "."}
    async with running(make_app(), size, "R") as (app, pilot):
        assert offered() == set()  # there is no run
        done = store.start_run("train", {}, **started_by)
        store.finish_run(done, RunState.DONE)
        by_hand = store.start_run("collect", {}, process=current_process())
        store.finish_run(by_hand, RunState.FAILED, "It failed.")
        failed = store.start_run("validate", {}, **started_by)
        store.finish_run(failed, RunState.FAILED, "It failed.")
        live = store.start_run("train", {}, **started_by)
        await looked(pilot)
        always = {"tag", "note"}
        await press(pilot, "g")
        assert app.screen.run == live
        assert offered() == {"cancel", "pin"} | always
        await press(pilot, "down")
        assert app.screen.run == failed
        assert offered() == {"resume"} | always
        again = store.queue_run("validate", {}, command=command, directory=".", resumes=failed,
                                logs=tmp_path)  # fmt: skip
        store.finish_run(again.id, RunState.DONE)
        await looked(pilot)
        assert app.screen.run == failed
        assert offered() == always
        await press(pilot, "enter")
        assert "resume" not in {a.binding.action for a in app.screen.active_bindings.values()}
        await press(pilot, "escape")
        await press(pilot, "down")
        assert app.screen.run == by_hand
        assert offered() == always  # it was not started as a command
        await press(pilot, "c", "r", "p")
        assert isinstance(app.screen, RunsScreen)
        await press(pilot, "down")
        assert app.screen.run == done
        assert offered() == {"resume", "pin"} | always
        await press(pilot, "g", "down")
        store.finish_run(live, RunState.DONE)
        await looked(pilot)
        assert offered() == {"resume", "pin"} | always  # without a key in between


# Why a run won: the importance of settings, and the parallel view of the marked runs


SETTINGS = [(depth, rate) for rate in (0.1, 0.01, 0.3) for depth in (6, 8)]


def make_trainings(store: Store) -> list[int]:
    """Trainings whose efficiency follows from their rate."""
    return [
        make_training(store, "trees", 0.9 - rate / 10 + depth / 1e5,
                      {"trees": {"depth": depth, "rate": rate}, "seed": 1}, trees=0.3)
        for depth, rate in SETTINGS
    ]  # fmt: skip


async def why(pilot) -> PagedTable:
    """Marks the last three trainings and asks why the best one won."""
    await press(pilot, "space", "down", "space", "down", "space", "v", "w")
    return pilot.app.screen.query_one(PagedTable)


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


async def test_where_there_is_no_reason_the_page_says_why(make_app, store):
    for _ in range(3):
        store.finish_run(store.start_run("collect", {}), RunState.DONE)
    async with running(make_app(), (160, 40), "R") as (app, pilot):
        await why(pilot)
        assert "None of these runs is a training that was judged" in text_of(app)
