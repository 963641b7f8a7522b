"""Collect: a form that follows what it is told, a plan, and a run that starts from them."""

import json
import threading
from pathlib import Path

import pytest
from textual.widgets import Input

from diode_app.data.collection import planned
from diode_app.data.hardware import LocalHardware
from diode_app.screens.run import RunScreen
from diode_app.widgets.command_form import (
    choices_of,
    find_mistake,
    first_value,
    form_options,
    read_value,
)
from diode_app.widgets.modals import Confirm, Notice
from diode_engine.cli import main
from diode_engine.core.hardware import H200
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.problems import sources
from diode_engine.problems.sources import write_shapeset
from diode_engine.runs import command_line
from diode_engine.store import RunState
from tests.app.waiting import looked, press, put, running, say_yes, settled, text_of, toasts
from tests.runs.conftest import wait_for_end

# The form and the command


def test_a_field_stands_for_what_its_option_declares(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = form_options("collect")
    assert first_value(options["problems"]) == "300"
    assert choices_of(options["ops"]) == sources.OPS
    assert choices_of(options["direct"]) == ("yes",)
    assert read_value(options["search_space"], "EXHAUSTIVE") is None
    assert read_value(options["budget"], "all") is None
    assert read_value(options["direct"], "yes") is True
    assert read_value(options["file"], "'my shapes.json' ~/x") == [
        str(tmp_path / "my shapes.json"), str(Path("~/x").expanduser()),
    ]  # fmt: skip
    assert find_mistake(options["seed"], "") is None
    for name, value, says in (
        ("ops", "", "at least one"), ("budget", "0", "a whole number from 1."),
        ("seed", "none", "a whole number from 0 to 2,147,483,647."),
        ("file", "gone.json", "does not exist"), ("source", "'a", "quotes"),
    ):  # fmt: skip
        assert says in find_mistake(options[name], value)


# The plan


def test_a_plan_is_that_of_the_command(store, path, tmp_path, capsys):
    shapes = tmp_path / "my shapes.json"
    write_shapeset([Problem.make("mm", 64, 64, 64, "float16")], shapes, "test")
    spec = {
        "source": ["skinny", "grid:m=1/16"], "file": [str(shapes)], "problems": "20",
        "ops": "mm,addmm", "dtypes": "fp16", "budget": "40", "whole": "3", "direct": True,
        "compiles": "5", "seed": "2",
    }  # fmt: skip
    found = planned(store, spec, 1)
    assert (found.gpus, found.mistakes) == (1, {})
    assert main(["-q", *command_line("collect", spec, path)[1:], "--plan"]) == 0
    assert json.loads(capsys.readouterr().out) == found.summary


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({"source": ["dreams"]}, "source", "no source 'dreams'"),
        ({"source": ["attention"], "ops": "addmm"}, "source", "no such problems"),
        ({"file": ["BROKEN.json"]}, "file", "not valid JSON"),
        ({"file": ["gone.json"]}, "file", "does not exist"),
    ],
)
def test_what_cannot_be_planned_is_told_at_its_field(
    store, tmp_path, monkeypatch, spec, field, says
):
    monkeypatch.chdir(tmp_path)
    Path("BROKEN.json").write_text("{")
    found = planned(store, spec, 1)
    assert found.summary is None
    assert says in found.mistakes[field]


def test_the_rate_is_that_of_an_earlier_collection(store):
    slow = planned(store, {"problems": "3"}, 1).summary
    run = store.start_run("collect", {"gpus": [0]})
    store.update_run(run, progress={"timings": 10**9, "seconds": 1000.0})
    store.finish_run(run, RunState.DONE)
    fast = planned(store, {"problems": "3"}, 1).summary
    assert fast["known_from"] == "the last collection in the store"
    assert fast["seconds"] < slow["seconds"]


# The screen


async def test_the_plan_follows_the_fields(make_app, store):
    async with running(make_app(), (80, 30), "C") as (app, pilot):
        assert "300 problems" in text_of(app)
        assert "on 2 GPUs" in text_of(app)
        await put(pilot, app.screen.query_one("#field-problems Input", Input), "25")
        assert "25 problems" in text_of(app)
        await put(pilot, app.screen.query_one("#field-gpu Input", Input), "1")
        assert "on 1 GPU" in text_of(app)
        await put(pilot, app.screen.query_one("#field-gpu Input", Input), "7")
        assert "There is no GPU 7 here" in text_of(app)
        assert "No plan yet" in text_of(app)
        assert "--problems=25 --gpu=7" in dict(app.screen.headless_commands())["Start"]
        await press(pilot, "d")
        assert "300 problems" in text_of(app)


async def test_by_keys_alone(make_app, store):
    async with running(make_app(), (80, 30), "C") as (app, pilot):
        await pilot.press("down", *["backspace"] * 3, *"30000", "enter", *"zoo", "down")
        await pilot.press("right", "space")  # the operators without addmm
        await pilot.press("up", "down", "down", "down", "down", "down", "right")  # DEFAULT
        await settled(pilot)
        values = app.screen.form.values
        assert values["source"] == "zoo"
        assert values["problems"] == "30000"
        assert values["ops"].split(",") == [op for op in OPERATORS if op != "addmm"]
        assert values["search_space"] == "DEFAULT"
        assert "At most 20,000 here" in text_of(app)
        await press(pilot, "escape", "d")
        assert app.screen.form.spec == {}


async def test_a_limit_on_compiles_is_asked_for_where_it_can_be(make_app, store):
    async with running(make_app(), (80, 30), "C") as (app, pilot):
        assert "compiles" not in app.screen.form.values
        app.screen.form.field("direct").value = "yes"
        await put(pilot, app.screen.form.field("budget"), "100")
        await put(pilot, app.screen.form.field("compiles"), "4")
        assert app.screen.form.values["compiles"] == "4"
        await put(pilot, app.screen.form.field("budget"), "")
        assert "compiles" not in app.screen.form.values
        assert "--compiles" not in dict(app.screen.headless_commands())["Start"]


async def test_sources_are_described_and_completed(make_app, store):
    async with running(make_app(), (100, 30), "C") as (app, pilot):
        await press(pilot, "p")
        assert isinstance(app.screen, Notice)
        assert "Linear layers of the named transformers" in text_of(app)
        await press(pilot, "escape")
        entry = app.screen.form.field("source").query_one(Input)
        entry.focus()
        await press(pilot, *"zoo ski", "right")
        assert entry.value == "zoo skinny"


async def test_it_starts_a_run_and_shows_it(make_app, store, job):
    async with running(make_app(), (120, 40), "C") as (app, pilot):
        app.screen.form.field("problems").value = "7"
        await put(pilot, app.screen.form.field("source"), "zoo skinny")
        await pilot.press("ctrl+g")
        await say_yes(pilot)
        run = int(job.hear().split()[1])
        await looked(pilot)
        assert isinstance(app.screen, RunScreen)
        assert "$ diode-engine collect --problems=7 --source=zoo --source=skinny" in text_of(app)
        assert toasts(app) == [f"Run {run} has started; it continues when you leave."]
        await press(pilot, "escape")
        assert app.screen.form.field("problems").value == "7"
    job.tell("end")
    wait_for_end(store.run(run).process)
    assert store.run(run).state is RunState.DONE


async def test_a_plan_that_comes_after_a_mistake_is_not_shown(make_app, store, monkeypatch):
    mistaken = threading.Event()

    def plan_late(*asked):
        mistaken.wait(10)
        return planned(*asked)

    async with running(make_app(), (80, 30), "C") as (app, pilot):
        monkeypatch.setattr("diode_app.screens.collect.planned", plan_late)
        for value in ("25", "abc"):
            app.screen.form.field("problems").value = value
            await pilot.pause()
        mistaken.set()
        await settled(pilot)
        assert "No plan yet" in text_of(app)


async def test_without_a_gpu_it_says_so_and_offers_an_import(make_app, store, here):
    here.append(LocalHardware(H200, 0, {}))
    async with running(make_app(), (80, 24), "C") as (app, pilot):
        assert "No GPU here" in text_of(app)
        assert "1 GPU like an H200" in text_of(app)
        await press(pilot, "ctrl+g")
        assert isinstance(app.screen, Confirm)
        await press(pilot, "n")
        assert store.runs() == []
