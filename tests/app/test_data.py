"""Data: the list of problems, a problem's page; by keys over real stores."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from textual.widgets import Input

from diode_app.data.candidate import candidate_in
from diode_app.data.predictors import predict
from diode_app.data.problem import ATEN, BEST, DEFAULT, ROOFLINE, problem_view
from diode_app.data.problems import problems_page
from diode_app.screens.data import DataScreen
from diode_app.screens.problem import ProblemScreen
from diode_app.widgets.page_grid import PageGrid
from diode_engine.choosing.chooser import Chooser
from diode_engine.core.hardware import H200
from diode_engine.models.predictor import Predictor
from diode_engine.problems.spaces import default_space
from diode_engine.store import Store
from tests.app.registered import register_model
from tests.app.waiting import enter, looked, press, running, settled, text_of, toasts
from tests.runs.conftest import wait_for_end
from tests.training.conftest import ENVIRONMENT, make_timings

pytestmark = pytest.mark.usefixtures("nothing_shipped")
TIMINGS = make_timings(40)


@pytest.fixture
def filled(store):
    store.import_table(TIMINGS, key="x", spec={})
    return store


def _times(problem: int) -> dict[str, float]:
    """By candidate, NaN where it failed."""
    rows = np.flatnonzero(TIMINGS.problem == problem)
    return {TIMINGS.candidates[TIMINGS.candidate[r]].key: float(TIMINGS.min_us[r]) for r in rows}


# One problem


def _some_failed() -> int:
    """A problem of which some candidates failed, and some did not."""
    return next(p for p in range(40) if 0 < np.isnan(list(_times(p).values())).sum() < 5)


def test_a_problem_s_candidates_with_what_each_chooser_would_take(filled, tmp_path):
    model = register_model(tmp_path, "plain")
    asked = _some_failed()
    problem, times = TIMINGS.problems[asked], _times(asked)
    view = problem_view(filled, problem.key)
    timed = {key: us for key, us in times.items() if not np.isnan(us)}
    assert [row.record["time_us"] for row in view.rows] == sorted(timed.values())
    assert {row.key for row in view.failures} == set(times) - set(timed)
    assert all(row.cells["why"] == "timeout" for row in view.failures)

    choices = {choice.chooser: choice.taken for choice in view.choices}
    best = min(timed.values())
    assert choices[BEST].record["time_us"] == best
    assert candidate_in(choices[ATEN]).is_extern
    aten = choices[ATEN].record
    assert aten["efficiency"] == pytest.approx(best / aten["time_us"])
    offered = [row for row in view.rows if row.record["space"] in ("DEFAULT", "library")]
    assert choices[DEFAULT].record["time_us"] == min(row.record["time_us"] for row in offered)
    spaces = {row.key: row.record["space"] for row in (*view.rows, *view.failures)}
    default = {c.key for c in default_space(problem, "2.13.0")}
    assert {key for key, space in spaces.items() if space == "DEFAULT"} == {
        c.key for c in TIMINGS.candidates if c.key in default and not c.is_extern
    }

    predictor = Predictor.load(model.folder)
    predicted = predictor.predict_us(problem, TIMINGS.candidates)
    first = TIMINGS.candidates[int(np.nanargmin(predicted))]
    assert candidate_in(choices[ROOFLINE]) == first
    prediction = Chooser(predictor, predictor.hardware).predict(problem, TIMINGS.candidates)
    choice = Chooser(predictor, predictor.hardware).choose_by_default(prediction)
    assert choice is not None
    compiled = choice.candidates[0]
    assert candidate_in(choices["plain@1"]) == compiled
    by_key = {c.key: us for c, us in zip(TIMINGS.candidates, prediction.predicted_us, strict=True)}
    for row in view.rows:
        us = row.record["plain@1 us"]
        if us is None:
            assert np.isnan(by_key[row.key])
        else:
            assert us == pytest.approx(by_key[row.key])
            assert row.record["plain@1 error"] == pytest.approx(us / row.record["time_us"] - 1)
    taken = {sign: row.key for row in (*view.rows, *view.failures)
             for sign in row.record["taken by"].split()}  # fmt: skip
    assert (taken["1"], taken["R"]) == (compiled.key, first.key)
    assert taken["★"] == view.rows[0].key


def test_all_models_that_are_chosen_are_shown(filled, tmp_path):
    names = [register_model(tmp_path, f"m{i}", stage=i / 10).reference for i in range(5)]
    key = TIMINGS.problems[0].key
    assert len(problem_view(filled, key).models) == 3
    chosen = problem_view(filled, key, references=names)
    assert {model.reference for model in chosen.models} == set(names)
    assert set(chosen.predicted_us) == set(names)


def test_max_autotune_takes_the_best_of_its_own_space(store):
    problem = TIMINGS.problems[0]
    offered = {c.key for c in default_space(problem, "2.13.0")}
    other = next(i for i, c in enumerate(TIMINGS.candidates) if c.key not in offered)
    faster = (TIMINGS.problem == 0) & (TIMINGS.candidate == other)
    us = np.where(faster, 1e-3, TIMINGS.min_us)
    failure = np.where(faster, 0, TIMINGS.failure).astype(np.uint8)
    store.import_table(replace(TIMINGS, min_us=us, failure=failure), key="x", spec={})
    choices = {c.chooser: c.taken for c in problem_view(store, problem.key).choices}
    assert candidate_in(choices[BEST]) == TIMINGS.candidates[other]
    assert choices[DEFAULT].key in offered
    assert choices[DEFAULT].record["efficiency"] < 0.1


def test_what_has_not_changed_is_not_predicted_again(filled):
    key = TIMINGS.problems[0].key
    view = problem_view(filled, key)
    assert problem_view(filled, key, before=view) is view
    run = filled.start_run("collect", {})
    filled.add(run, TIMINGS.take(TIMINGS.problem == 0))
    assert problem_view(filled, key, before=view).row.timings == 2 * view.row.timings


def test_without_a_model(filled):
    view = problem_view(filled, TIMINGS.problems[0].key)
    assert view.notes == ("There is no registered model for NVIDIA H200.",)
    assert {choice.chooser for choice in view.choices} == {BEST, ATEN, DEFAULT, ROOFLINE}


# The screens


async def _filter(pilot, words) -> None:
    await press(pilot, "slash", *words, "enter")


def _offered(app) -> set[str]:
    """The actions that a key does now."""
    active = app.screen.active_bindings.values()
    return {each.binding.action for each in active if each.enabled}


@pytest.mark.parametrize("made", [False, True], ids=["no store", "an empty store"])
async def test_what_needs_timings_is_offered_where_there_are_some(make_app, path, made):
    if made:
        Store.open(path).close()
    needs = {"choose", "export_dataset"}
    async with running(make_app(), (120, 40), "D") as (app, pilot):
        assert ("There are no timings yet" in text_of(app)) is made
        assert "Import timings (i)" in text_of(app)
        assert _offered(app) & needs == set()
        assert "app.import_timings" in _offered(app)
        commands = {label for label, _ in app.screen.headless_commands()}
        assert commands == {"List", "Map", "Import"}
        await press(pilot, "w", "x")
        assert isinstance(app.screen, DataScreen)
        await press(pilot, "T")
        assert ("start" in _offered(app)) is made  # nothing is started where no store can be read
        await press(pilot, "H")
        assert "stats" not in _offered(app)
        with Store.open(path) as store:
            store.import_table(TIMINGS, key="x", spec={})
        await looked(pilot)
        assert "stats" in _offered(app)
        await press(pilot, "D")
        assert "40 problems" in text_of(app)
        assert app.screen.table.grid.has_focus
        assert needs <= _offered(app)
        path.unlink()
        await looked(pilot)
        assert _offered(app) & needs == set()


async def test_a_filter_its_completion_and_its_mistake(make_app, filled):
    async with running(make_app(), (120, 30), "D") as (app, pilot):
        screen = app.screen
        await press(pilot, "slash", *"gpu:")
        assert 'gpu:"NVIDIA H200"' in text_of(app)  # what the store has
        await pilot.press("escape")
        await _filter(pilot, "m<=64")
        assert screen.table.page.total == sum(p.M <= 64 for p in TIMINGS.problems)
        assert "filter: m<=64" in text_of(app)
        await _filter(pilot, " wings:2")
        assert "There is no field wings" in text_of(app)
        await press(pilot, "escape")
        assert screen.table.page.total == 40
        assert "wings" not in screen.query_one(Input).value


async def test_sorted_by_the_store(make_app, filled):
    async with running(make_app(), (160, 50), "D") as (app, pilot):
        screen = app.screen
        await pilot.press("s", "down", "down", "enter")  # after the problem and its op
        await settled(pilot)
        await press(pilot, "o")
        shown = [int(row.cells["m"]) for row in screen.table.page.rows]
        assert shown == sorted((p.M for p in TIMINGS.problems), reverse=True)
        assert "M ▼" in text_of(app)


async def test_a_problem_s_page_and_back(make_app, filled, tmp_path):
    register_model(tmp_path, "plain")
    register_model(tmp_path, "stages", stage=0.1)
    asked = _some_failed()
    async with running(make_app(), (160, 50), "D") as (app, pilot):
        await press(pilot, *["down"] * asked, "enter")
        page = app.screen
        assert isinstance(page, ProblemScreen)
        shown = text_of(app)
        assert str(TIMINGS.problems[asked]) in shown
        for name in ("best measured", "ATen", "max-autotune DEFAULT", "plain@1", "stages@1"):
            assert name in shown
        failed = int(np.isnan(list(_times(asked).values())).sum())
        assert f"8 candidates, {failed} failed" in shown
        await press(pilot, "2")
        assert "timeout" in text_of(app)
        await pilot.press("1", "m", "space", "tab", "enter")  # without the first model
        await settled(pilot)
        assert len(page._view.models) == 1
        await press(pilot, "escape")
        assert isinstance(app.screen, DataScreen)
        assert isinstance(app.focused, PageGrid)


async def test_what_was_measured_is_shown_before_the_models_answer(
    make_app, filled, tmp_path, monkeypatch
):
    register_model(tmp_path, "plain")
    is_seen = threading.Event()

    def predict_late(*given):
        is_seen.wait(10)
        return predict(*given)

    monkeypatch.setattr("diode_app.data.predictors.predict", predict_late)
    async with running(make_app(), (80, 24), "D") as (app, pilot):
        await pilot.press("enter")
        while "Asking the models" not in text_of(app):
            await pilot.pause(0.01)
        await pilot.pause(0.01)
        assert "best measured" in text_of(app)
        assert app.screen.query_one("#problem-candidates").page.rows
        assert "plain@1" not in text_of(app)
        is_seen.set()
        await settled(pilot)
        assert "plain@1" in text_of(app)
        assert "Asking the models" not in text_of(app)


@pytest.mark.parametrize("what", ["a list", "a page"])
async def test_it_is_shown_while_the_store_changes_faster_than_it_is_read(
    make_app, filled, monkeypatch, what
):
    shown = []  # when each reading begins: whether there is something on the screen

    def slow(read, is_shown):
        def reading(*given):
            screen = app.screen
            shown.append(is_shown(screen))
            if len(shown) < 5:
                app.call_from_thread(screen.reload)
            return read(*given)

        return reading

    app = make_app()
    if what == "a list":
        read = slow(problems_page, lambda screen: bool(screen.table.page.rows))
        monkeypatch.setattr("diode_app.screens.data.problems_page", read)
    else:
        read = slow(problem_view, lambda screen: screen._view is not None)
        monkeypatch.setattr("diode_app.screens.problem.problem_view", read)
    async with running(app, (80, 24), "D", "enter"):
        assert shown[:5] == [False, True, True, True, True]


async def test_a_plot_takes_the_table_s_place_where_there_is_little_room(make_app, filled):
    async with running(make_app(), (80, 24), "D", "enter") as (app, pilot):
        assert "rank by measured time" not in text_of(app)
        await press(pilot, "p")
        assert "rank by measured time" in text_of(app)
        await press(pilot, "p", "down")
        assert "rank by measured time" not in text_of(app)
        assert isinstance(app.focused, PageGrid)


async def test_the_same_problem_on_another_gpu(make_app, filled):
    h100 = replace(ENVIRONMENT, hardware=replace(H200, name="NVIDIA H100", memory_gb_s=3350))
    filled.import_table(make_timings(2, environment=h100), key="y", spec={})
    async with running(make_app(), (120, 30), "D") as (app, pilot):
        await _filter(pilot, "id:1")
        await press(pilot, "enter")
        assert "(1 of 2: v)" in text_of(app)
        await press(pilot, "v")
        assert "NVIDIA H100" in text_of(app)
        assert "(2 of 2: v)" in text_of(app)


async def test_a_problem_that_is_not_there_is_told(make_app, filled):
    async with running(make_app(), (80, 24)) as (app, pilot):
        app.push_screen(ProblemScreen(app.session, "0" * 32))
        await settled(pilot)
        assert any("has no timings of a problem" in toast for toast in toasts(app))
        await press(pilot, "p", "t", "f", "m", "v", "w", "escape")
        assert not isinstance(app.screen, ProblemScreen)


async def test_columns_are_chosen_and_kept(make_app, filled, tmp_path):
    (tmp_path / "dashboard.toml").write_text('problem_columns = ["m", "best"]\n')
    async with running(make_app(), (80, 24), "D") as (app, pilot):
        screen = app.screen
        assert [c.label for c in screen.table.grid.columns] == ["M", "best µs"]
        await pilot.press("h", "space", "tab", "enter")  # the first of all as well
        await settled(pilot)
        assert app.session.settings.problem_columns == ("problem", "m", "best")
    assert make_app().session.settings.problem_columns == ("problem", "m", "best")


async def test_timings_go_to_a_file_and_come_from_one(make_app, filled, tmp_path):
    file = tmp_path / "out.packed.zst"
    async with running(make_app(), (80, 24), "D", "x") as (app, pilot):
        await enter(pilot, str(file.with_suffix(".txt")))
        assert "must end in .json, " in text_of(app)
        await enter(pilot, str(file))
        assert any(f"timings are in {file}" in toast for toast in toasts(app))
        await press(pilot, "i")
        await enter(pilot, str(file))
        wait_for_end(filled.run(app.screen.run).process)
        assert "timings were there before, by run 1" in filled.run(app.screen.run).message
