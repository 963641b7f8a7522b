"""Collect: a form that follows what it is told, a plan, and a run that starts from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.widgets import Input

from diode_app.data.collection import USUAL, planned, source_kinds, spec_of
from diode_app.data.hardware import Here
from diode_app.screens.run import RunScreen
from diode_app.screens.source_picker import SourcePicker
from diode_app.widgets.modals import Confirm, ErrorDialog
from diode_engine.cli import main
from diode_engine.core.hardware import H200
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.problems import sources
from diode_engine.problems.sources import write_shapeset
from diode_engine.runs import command_line
from diode_engine.store import RunState
from tests.app.waiting import looked, say_yes, settled, started, text_of
from tests.runs.conftest import Job, job, wait_for_end  # noqa: F401  # fixtures


async def open_form(pilot) -> None:
    await started(pilot)
    await pilot.press("C")
    await settled(pilot)


# The plan and the command


def test_the_fields_offer_what_the_engine_knows():
    assert set(USUAL["ops"].split(",")) == set(sources.OPS)
    assert set(USUAL["dtypes"].split(",")) == set(sources.TYPES)
    assert set(USUAL["layouts"].split(",")) == set(sources.LAYOUTS)
    assert [kind.name for kind in source_kinds()] == list(sources.SOURCES)


def test_a_plan_is_that_of_the_command(store, path, tmp_path, capsys):
    shapes = tmp_path / "my shapes.json"
    write_shapeset([Problem.make("mm", 64, 64, 64, "float16")], shapes, "test")
    values = {
        **USUAL, "source": "skinny grid:m=1/16", "file": f"'{shapes}'", "problems": "20",
        "ops": "mm,addmm", "dtypes": "fp16", "budget": "40", "whole": "3", "direct": "yes",
        "compiles": "5", "seed": "2",
    }  # fmt: skip
    found = planned(store, values, 1)
    assert found.mistakes == {}
    command = command_line("collect", spec_of(values), path)
    assert main(["-q", *command[1:], "--plan"]) == 0
    told = json.loads(capsys.readouterr().out)
    plan = found.plan
    assert plan.gpus == 1
    assert (plan.problems, plan.candidates, plan.compiles) == (
        told["problems"], told["candidates"], told["compiles"]
    )  # fmt: skip
    assert plan.seconds == pytest.approx(told["seconds"])
    assert {share.name: share.problems for share in plan.by_op} == {
        name: counts["problems"] for name, counts in told["by_op"].items()
    }


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"source": "dreams"}, "source", "no source 'dreams'"),
        ({"source": "attention", "ops": "addmm"}, "source", "no such problems"),
        ({"file": "BROKEN.json"}, "file", "not valid JSON"),
        ({"file": "gone.json"}, "file", "No such file"),
    ],
)
def test_what_cannot_be_planned_is_told_at_its_field(
    store, tmp_path, monkeypatch, change, field, says
):
    monkeypatch.chdir(tmp_path)
    Path("BROKEN.json").write_text("{")
    found = planned(store, {**USUAL, **change}, 1)
    assert found.plan is None
    assert says in found.mistakes[field]


def test_the_rate_is_that_of_an_earlier_collection(store):
    slow = planned(store, {**USUAL, "problems": "3"}, 1).plan
    run = store.start_run("collect", {"gpus": [0]})
    store.update_run(run, progress={"timings": 10**9, "seconds": 1000.0})
    store.finish_run(run, RunState.DONE)
    fast = planned(store, {**USUAL, "problems": "3"}, 1).plan
    assert fast.known_from == "the last collection in the store"
    assert fast.seconds < slow.seconds


# The screen


@pytest.mark.asyncio
async def test_the_plan_follows_the_fields(make_app, store):
    app = make_app()
    async with app.run_test(size=(80, 30)) as pilot:
        await open_form(pilot)
        assert "300 problems" in text_of(app)
        assert "on 2 GPUs" in text_of(app)
        app.screen.query_one("#field-problems Input", Input).value = "25"
        await settled(pilot)
        assert "25 problems" in text_of(app)
        app.screen.query_one("#field-gpu Input", Input).value = "1"
        await settled(pilot)
        assert "on 1 GPU" in text_of(app)
        app.screen.query_one("#field-gpu Input", Input).value = "7"
        await settled(pilot)
        assert "There is no GPU 7 here" in text_of(app)
        assert "No plan yet" in text_of(app)
        assert "--problems=25 --gpu=7" in app.screen.headless_command("collect.start")
        await pilot.press("d")
        await settled(pilot)
        assert "300 problems" in text_of(app)


@pytest.mark.asyncio
async def test_by_keys_alone(make_app, store):
    app = make_app()
    async with app.run_test(size=(80, 30)) as pilot:
        await open_form(pilot)
        await pilot.press("down", *"zoo", "enter", "enter", *"30000", "down")
        await pilot.press("right", "space")  # the operators without addmm
        await pilot.press("up", "down", "down", "down", "down", "right")  # the DEFAULT space
        await settled(pilot)
        values = app.screen.form.values
        assert values["source"] == "zoo"
        assert values["problems"] == "30000"
        assert values["ops"].split(",") == [op for op in OPERATORS if op != "addmm"]
        assert values["search_space"] == "DEFAULT"
        assert "from 1 to 20,000" in text_of(app)
        await pilot.press("escape", "d")
        await settled(pilot)
        assert app.screen.form.values == {k: USUAL[k] for k in app.screen.form.values}


@pytest.mark.asyncio
async def test_a_limit_on_compiles_is_asked_for_where_it_can_be(make_app, store):
    app = make_app()
    async with app.run_test(size=(80, 30)) as pilot:
        await open_form(pilot)
        assert "compiles" not in app.screen.form.values
        app.screen.form.field("direct").value = "yes"
        app.screen.form.field("budget").value = "100"
        await settled(pilot)
        app.screen.form.field("compiles").value = "4"
        await settled(pilot)
        assert app.screen.form.values["compiles"] == "4"
        app.screen.form.field("budget").value = ""
        await settled(pilot)
        assert "compiles" not in app.screen.form.values
        assert "--compiles" not in app.screen.headless_command("collect.start")


@pytest.mark.asyncio
async def test_sources_are_picked_with_parameters(make_app, store):
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await open_form(pilot)
        app.screen.form.field("source").value = "zoo skinny:largest=64"
        await settled(pilot)
        await pilot.press("p")
        await settled(pilot)
        assert isinstance(app.screen, SourcePicker)
        assert "Linear layers of the named transformers" in text_of(app)
        await pilot.press("tab", *"models=gpt2")  # who writes a parameter means the source
        await pilot.press("tab", "space")  # without zoo
        await pilot.press("enter")
        await settled(pilot)
        assert app.screen.form.field("source").value == (
            "transformers:models=gpt2 skinny:largest=64"
        )
        await pilot.press("p")
        await settled(pilot)
        await pilot.press("space", "escape")
        await settled(pilot)
        assert app.screen.form.field("source").value == (
            "transformers:models=gpt2 skinny:largest=64"
        )


@pytest.mark.asyncio
async def test_it_starts_a_run_and_shows_it(make_app, store, job: Job):  # noqa: F811
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await open_form(pilot)
        app.screen.form.field("problems").value = "7"
        app.screen.form.field("source").value = "zoo skinny"
        await settled(pilot)
        await pilot.press("ctrl+g")
        await say_yes(pilot)
        run = int(job.hear().split()[1])
        await looked(pilot)
        assert isinstance(app.screen, RunScreen)
        assert "$ diode-engine collect --source=zoo --source=skinny --problems=7" in text_of(app)
        await pilot.press("escape")
        await settled(pilot)
        assert app.screen.form.field("problems").value == "7"
    job.tell("end")
    wait_for_end(store.run(run).process)
    assert store.run(run).state is RunState.DONE


@pytest.mark.asyncio
async def test_a_mistake_starts_nothing(make_app, store):
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await open_form(pilot)
        app.screen.form.field("seed").value = "none"
        await settled(pilot)
        await pilot.press("ctrl+g")
        await settled(pilot)
        assert app.screen.form.field("seed").has_focus_within
        assert store.runs() == []


@pytest.mark.asyncio
async def test_without_a_gpu_it_says_so_and_offers_an_import(make_app, store, monkeypatch):
    none = Here(H200, 0, {})

    async def look_around() -> Here:
        return none

    monkeypatch.setattr("diode_app.screens.home.look_around", look_around)
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await open_form(pilot)
        assert "No GPU here" in text_of(app)
        assert "1 GPU like an H200" in text_of(app)
        await pilot.press("ctrl+g")
        await settled(pilot)
        assert isinstance(app.screen, Confirm)
        await pilot.press("n")
        await settled(pilot)
        assert store.runs() == []


@pytest.mark.asyncio
async def test_a_real_collection_without_a_gpu_fails_in_a_sentence(make_app, store):
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await open_form(pilot)
        app.screen.form.field("problems").value = "2"
        await settled(pilot)
        await pilot.press("ctrl+g")
        await say_yes(pilot)
        await settled(pilot)
        assert isinstance(app.screen, RunScreen)
        wait_for_end(store.run(1).process)
        await looked(pilot)
        assert "✗ failed" in text_of(app)
        assert "There is no GPU here" in text_of(app)


@pytest.mark.asyncio
async def test_a_read_only_dashboard_starts_nothing(make_app, store):
    app = make_app(read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_form(pilot)
        await pilot.press("ctrl+g")
        await settled(pilot)
        assert isinstance(app.screen, ErrorDialog)
        assert "--read-only" in text_of(app)
        assert store.runs() == []
