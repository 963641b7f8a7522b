"""Train: a form that follows the data, and the curves of trainings over each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.widgets import Input

from diode_app.data.curves import CurveReader, kinds, series_of, thin_points
from diode_app.data.run_results import describe_progress, fraction, seconds_left, training_result
from diode_app.data.training import planned
from diode_app.widgets.command_form import first_value, form_options, read_value
from diode_engine.core.hardware import H200
from diode_engine.core.table import TimingTable
from diode_engine.runs import look
from diode_engine.runs.process import current_process
from diode_engine.store import write_dataset
from tests.app.registered import register_model
from tests.app.trained import drawn, make_training
from tests.app.waiting import press, put, running, text_of
from tests.training.conftest import make_timings

# The form, the data and the command


@pytest.mark.parametrize(
    ("change", "without"),
    [
        ({"family": "trees"}, {"hidden", "epochs", "ranking"}),
        ({"family": "network"}, {"rounds", "depth"}),
        ({"fine_tune": "gemm@1"}, {"family", "search", "rounds"}),
        ({"dataset": "x.json"}, {"query"}),
    ],
)
def test_options_without_a_meaning_do_not_apply(change, without):
    options = form_options("train")
    values = {name: first_value(option) for name, option in options.items()} | change
    assert options["seed"].applies(values)
    assert not any(options[name].applies(values) for name in without)
    assert read_value(options["ranking"], "listwise") is None


def test_what_a_training_would_learn_from(timed):
    found = planned(timed, {})
    assert found.mistakes == {}
    assert found.chosen.problems == 60
    assert found.chosen.timings == timed.stats().timings
    assert found.usual["rounds"] == "1200"
    assert any(reference.startswith("gemm@") for reference in found.models)
    assert planned(timed, {"query": "m<0"}).mistakes["query"].startswith("There are no")
    assert "no field wings" in planned(timed, {"query": "wings:2"}).mistakes["query"]
    assert "no model gone@1" in planned(timed, {"fine_tune": "gone@1"}).mistakes["fine_tune"]
    assert "cannot name" in planned(timed, {"name": "A b"}).mistakes["name"]


def test_too_few_problems_are_told_before_it_starts(store):
    store.import_table(make_timings(5), key="x", spec={})
    assert "5 problems are too few" in planned(store, {}).mistakes["query"]


def test_the_model_of_another_gpu_can_be_tuned(store, tmp_path):
    register_model(tmp_path, "plain")
    store.import_table(_on("NVIDIA H100", "2.10.0"), key="y", spec={})
    assert planned(store, {"fine_tune": "plain@1"}).mistakes == {}


def _on(gpu: str, torch: str) -> TimingTable:
    table = make_timings(30)
    (environment,) = table.environments
    hardware = replace(environment.hardware, name=gpu)
    return replace(table, environments=(replace(environment, hardware=hardware, torch=torch),))


def test_a_file_in_place_of_the_store(timed, tmp_path):
    file = tmp_path / "few.msgpack"
    write_dataset(make_timings(20), file)
    found = planned(timed, {"dataset": [str(file)]})
    assert found.chosen.problems == 20
    file.write_bytes(b"no dataset")
    assert "dataset" in planned(timed, {"dataset": [str(file)]}).mistakes
    assert "dataset" in planned(timed, {"dataset": ["gone.json"]}).mistakes


# Curves


def test_series_are_sorted_by_what_is_on_their_axes():
    names = ["a, fold 1 of 3/efficiency", "a/log_rmse", "a/train_objective", "a/objective",
             "a/efficiency", "search/efficiency"]  # fmt: skip
    assert kinds(names) == [
        "efficiency on problems not fitted to",
        "loss",
        "error of the logarithm of times",
        "efficiency of the search's trials",
        "efficiency on problems not fitted to, on folds to learn how sure it is",
    ]
    assert series_of("a/train_objective").of_fit


def test_a_curve_is_thinned_to_its_end():
    xs = tuple(map(float, range(1001)))
    thin, ys = thin_points((xs, xs))
    assert len(thin) <= 240
    assert thin == ys
    assert thin[-1] == 1000
    assert thin_points(((1.0,), (2.0,))) == ((1.0,), (2.0,))


def test_curves_are_read_as_they_grow(store):
    run = store.start_run("train", {}, process=current_process())
    reader = CurveReader()
    store.add_points(run, "a/loss", [(1, 3.0), (2, 2.0)])
    assert reader.read(store, run) == {"a/loss": ((1.0, 2.0), (3.0, 2.0))}
    store.add_points(run, "a/loss", [(3, 1.0)])
    store.add_points(run, "b/loss", [(1, 9.0)])
    assert reader.read(store, run) == {
        "a/loss": ((1.0, 2.0, 3.0), (3.0, 2.0, 1.0)), "b/loss": ((1.0,), (9.0,))
    }  # fmt: skip


# The screen


async def test_the_data_follow_the_query(make_app, timed):
    async with running(make_app(), (80, 30), "T") as (app, pilot):
        assert "60 problems" in text_of(app)
        assert "About 48 to learn from, 12 held out." in text_of(app)
        box = app.screen.query_one("#field-query Input", Input)
        assert box.suggester is not None
        await put(pilot, box, "m>100000")
        assert "There are no timings of such problems." in text_of(app)


async def test_fields_come_and_go_with_the_family(make_app, timed):
    async with running(make_app(), (80, 40), "T") as (app, pilot):
        form = app.screen.form
        assert form.field("epochs").query_one(Input).placeholder == "40"
        await put(pilot, form.field("family"), "trees")
        assert "epochs" not in form.values
        assert "rounds" in form.values
        await put(pilot, form.field("fine_tune"), "gemm@1")
        assert "family" not in form.values
        rate = form.field("learning_rate").query_one(Input)
        assert rate.placeholder == "0.003"  # a distilled network's
        form.go_to("learning_rate")
        await press(pilot, *"-1")
        assert "a number above 0" in text_of(app)
        assert "hardware" not in form.values  # there is one


async def test_a_gpu_is_chosen_where_there_are_several(make_app, timed):
    timed.import_table(_on("NVIDIA A100", "2.10.0"), key="y", spec={})
    async with running(make_app(), (80, 40), "T") as (app, pilot):
        assert app.screen.form.field("hardware").display
        command = dict(app.screen.headless_commands())["Start"]
        assert "--hardware='NVIDIA" in command or "'--hardware=NVIDIA" in command
        await put(pilot, app.screen.form.field("hardware"), "NVIDIA A100")
        assert "timings of NVIDIA A100" in text_of(app)
        assert "Left out" in text_of(app)
        assert H200.name in text_of(app).partition("Left out")[2]


async def test_the_pinned_training_is_drawn_on_anothers_page(make_app, store):
    first = make_training(store, "trees", 0.9, trees=0.3)
    second = make_training(store, "network", 0.95, one=0.2)
    store.tag(first, "diode/baseline")
    async with running(make_app(), (120, 40), "R", "enter") as (app, _pilot):
        assert f"Run {second}," in text_of(app)
        assert drawn(app) == ["one", f"trees, pinned {first}"]


def test_a_result_of_another_kind_is_none():
    assert training_result(None) is None
    assert training_result({"rows": []}) is None


def test_a_training_that_is_at_work_tells_what_it_is_at(store):
    run = store.start_run("train", {"family": "ensemble"}, process=current_process())
    assert describe_progress(look(store, run)) == ""
    store.update_run(run, progress={"fraction": 0.0, "doing": "makes the features"})
    assert describe_progress(look(store, run)) == "makes the features"
    store.update_run(run, progress={"member": "network-1", "step": 3, "steps": 40,
                                    "efficiency": 0.9512})  # fmt: skip
    seen = look(store, run)
    assert describe_progress(seen) == "network-1: 3 of 40, efficiency 0.951"
    assert fraction(seen) is None  # these are the steps of one fit, and not of the run
    store.update_run(run, progress={
        "member": "network-1", "step": 3, "steps": 40, "efficiency": 0.9512, "rate": 2.5,
        "fraction": 0.31, "seconds_left": 90.0, "stage": 3, "stages": 16,
    })  # fmt: skip
    seen = look(store, run)
    assert (
        describe_progress(seen)
        == "network-1: 3 of 40, efficiency 0.951 · 2.5 steps/s · fit 3 of 16"
    )
    assert fraction(seen) == pytest.approx(0.31)
    assert seconds_left(seen) == 90.0
