"""Models: a registry, by keys."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import datetime

import pytest

from diode_app.data.lineage import model_view
from diode_app.data.models import find_slug_to_change, models
from diode_app.data.overview import model_in_use
from diode_app.data.predictors import loaded, models_for
from diode_app.screens.data import DataScreen
from diode_app.screens.model import ModelScreen
from diode_app.screens.models import ModelsScreen
from diode_app.screens.run import RunScreen
from diode_app.widgets.modals import Confirm, ErrorDialog, Notice, Prompt, Working
from diode_app.widgets.page_grid import PageGrid
from diode_app.widgets.table import PagedTable
from diode_engine import paths, registry
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.errors import DiodeError
from diode_engine.models.artifact import load_artifact, save_artifact
from diode_engine.models.manifest import Data, GpuRecord
from tests.app.registered import register_model
from tests.app.waiting import enter, looked, press, running, settled, text_of, toasts
from tests.training.conftest import make_timings

SHIPPED = paths.shipped_dir
pytestmark = pytest.mark.usefixtures("nothing_shipped")


@pytest.fixture
def plain(tmp_path):
    return register_model(tmp_path, "plain", sure=True)


# The list


async def test_without_models_it_says_what_to_do(make_app, store):
    async with running(make_app(), (100, 30), "M") as (app, pilot):
        assert "There are no models" in text_of(app)
        assert "No model serves the NVIDIA H200 here" in text_of(app)
        await press(pilot, *"pbcwvxdant")  # which are not offered
        assert toasts(app) == []
        assert isinstance(app.screen, ModelsScreen)


async def test_which_one_is_taken_here_and_why(make_app, plain, tmp_path):
    async with running(make_app(), (160, 40), "M") as (app, pilot):  # no store is needed
        assert "On the NVIDIA H200 here plain@1 is taken: no default is set" in text_of(app)
        # As by another process: it is seen with the next look at the store.
        chosen = register_model(tmp_path, "chosen")
        await looked(pilot)
        assert app.screen.query_one(PageGrid).row_count == 2
        registry.set_default(chosen)
        await looked(pilot)
        assert "here chosen@1 is taken: you made it the default" in text_of(app)
        registry.tag(chosen, ["night"], [])
        await looked(pilot)
        assert "night" in text_of(app)
        assert app.screen.query_one(PageGrid).row_count == 2
        app.session.here = None
        app.screen.reload()
        await settled(pilot)
        assert "Looking at this machine's hardware" in text_of(app)


async def test_home_follows_the_registry(make_app, store, plain, tmp_path):
    async with running(make_app(), (160, 40)) as (app, pilot):
        await looked(pilot)
        assert "plain@1 (yours)" in text_of(app)
        registry.set_default(register_model(tmp_path, "chosen"))
        await looked(pilot)
        assert "chosen@1 (yours)" in text_of(app)


async def test_a_broken_registry_is_told(make_app, store, plain):
    (plain.folder.parents[1] / "registry.json").write_text("{")
    async with running(make_app(), (160, 40), "M") as (app, _pilot):
        assert "registry.json" in text_of(app)
        assert "is broken" in text_of(app)
        assert "plain@1" in text_of(app)


# Which one is taken


async def test_the_gates_reasons_are_shown_and_can_be_overruled(make_app, store, plain):
    store.import_table(make_timings(20), key="x", spec={})  # too few to judge by
    async with running(make_app(), (120, 40), "M", "p") as (app, pilot):
        await until(pilot, Confirm)
        assert "✗ plain@1 is not promoted" in text_of(app)
        assert "✓ loads" in text_of(app)
        assert "✗ problems" in text_of(app)
        await press(pilot, "n")
        assert registry.history(H200.slug) == ()
        await pilot.press("p")
        await until(pilot, Confirm)
        await pilot.press("y")
        await until(pilot, Prompt)
        await enter(pilot, "to see")
        await settled(pilot)
        assert registry.default_for(H200.slug) == plain
        (event,) = registry.history(H200.slug)
        assert (event.forced, event.reason) == (True, "to see")
        assert "plain@1 is taken now, against the gate." in toasts(app)
        judged, taken = [run for run in store.runs() if run.kind == "promote"][-2:]
        assert "was refused" in judged.message
        assert taken.spec["verdict_of"] == judged.id  # it was not judged again
        assert "is taken against the gate, for the reason: to see." in taken.message


async def until(pilot, modal: type) -> None:
    """Waits until the dialog is open and takes keys; the gate works in another process."""
    end = time.monotonic() + 120
    while not isinstance(pilot.app.screen, modal):
        assert time.monotonic() < end, text_of(pilot.app)
        await pilot.pause(0.01)
    await (pilot.pause() if modal is Working else settled(pilot))


async def test_it_is_seen_that_the_gate_is_at_work(make_app, store, plain, monkeypatch):
    done = asyncio.Event()

    async def run_command(_words):
        await done.wait()
        raise DiodeError("The gate fell.")

    monkeypatch.setattr("diode_app.data.store_access.run_command", run_command)
    async with running(make_app(), (120, 40), "M") as (app, pilot):
        await pilot.press("p")
        await until(pilot, Working)
        assert "plain@1 is judged on the held-out problems" in text_of(app)
        assert "working for" in text_of(app)
        await pilot.press("escape")
        await pilot.pause()
        assert not app.screen.is_modal
        done.set()
        await until(pilot, ErrorDialog)
        assert "The gate fell." in text_of(app)


async def test_a_model_that_passes_is_taken(make_app, store, plain, monkeypatch):
    said = {"model": "plain@1", "against": "ATen", "promoted": True,
            "checks": [{"name": "loads", "passed": True, "found": "It is whole."}]}  # fmt: skip
    asked = []

    async def run_command(words):
        asked.append(words)
        return json.dumps(said)

    monkeypatch.setattr("diode_app.data.store_access.run_command", run_command)
    async with running(make_app(), (120, 40), "M", "p") as (app, _pilot):
        assert isinstance(app.screen, Notice)
        assert "✓ plain@1 is taken now" in text_of(app)
        assert "It is whole." in text_of(app)
    (words,) = asked
    assert words[:4] == ["models", "promote", "plain@1", "--hardware=nvidia-h200"]


# What is done with one


async def test_out_to_a_file_and_in_again(make_app, store, plain, tmp_path):
    file = tmp_path / "plain.diode.zip"
    async with running(make_app(), (120, 40), "M", "x") as (app, pilot):
        await enter(pilot, str(tmp_path / "nowhere" / "a.zip"))
        assert "There is no folder" in text_of(app)
        await enter(pilot, str(file))
        assert "its SHA-256 is" in toasts(app)[0]
        await press(pilot, "i")
        await enter(pilot, str(file))
        assert "plain@1 is the same model" in toasts(app)[1]
        await press(pilot, "d")
        assert "Delete plain@1" in text_of(app)
        await press(pilot, "y")
        assert registry.list_models() == []
        await press(pilot, "i")
        await enter(pilot, str(file))
        assert [m.reference for m in registry.list_models()] == ["plain@2"]
        await press(pilot, "i")
        file.write_bytes(b"no archive")
        await enter(pilot, str(file))
        assert isinstance(app.screen, ErrorDialog)
        assert "is not an archive of a model" in text_of(app)


async def test_only_ones_own_models_can_be_deleted(make_app, store, monkeypatch):
    monkeypatch.setattr(paths, "shipped_dir", SHIPPED)
    async with running(make_app(), (120, 40), "M") as (app, pilot):
        assert "Delete" not in text_of(app)
        await press(pilot, "d")
        assert isinstance(app.screen, ModelsScreen)
        await press(pilot, "enter")
        assert isinstance(app.screen, ModelScreen)
        assert "Delete" not in text_of(app)


async def test_deleting_asks_and_names_the_aliases_that_go(make_app, store, plain):
    registry.set_default(plain)
    async with running(make_app(), (120, 40), "M", "d") as (app, pilot):
        assert isinstance(app.screen, Confirm)
        assert "It is default, which goes too." in text_of(app)
        await press(pilot, "n")
        assert plain.folder.is_dir()
        await press(pilot, "enter")
        assert isinstance(app.screen, ModelScreen)
        await press(pilot, "d", "y")
        assert not plain.folder.exists()
        assert not isinstance(app.screen, ModelScreen)


async def test_aliases_tags_and_notes(make_app, store, plain):
    async with running(make_app(), (160, 40), "M") as (app, pilot):
        for key, words in (("a", "candidate small"), ("t", "h200 night"), ("n", "the first")):
            await press(pilot, key)
            await enter(pilot, words)
        assert registry.aliases_for(H200.slug) == {"candidate": "plain@1", "small": "plain@1"}
        known = registry.facts_of(plain)
        assert (known.tags, known.note) == (("h200", "night"), "the first")
        for words in ("candidate small", "h200 night", "the first"):
            assert words in text_of(app)
        for key, words in (("a", "small"), ("t", "night"), ("a", "default")):
            await press(pilot, key)
            await enter(pilot, words)
        assert "by promoting" in text_of(app)
        assert registry.aliases_for(H200.slug) == {"small": "plain@1"}
        assert registry.facts_of(plain).tags == ("night",)


# Its page, and two of them


async def test_a_models_lineage_is_followed(make_app, store, plain, tmp_path):
    store.import_table(make_timings(5), key="x", spec={"file": "gemm.msgpack.zst"})
    artifact = load_artifact(plain.folder)
    manifest = replace(
        artifact.manifest, name="tuned", torch=("2.13.0",), triton=("3.7.1",), confidence=None,
        data=Data(("e" * 32,), ("import 1", "collect 1", "collect 9"), 5, 40,
                  base=artifact.manifest.identity),
    )  # fmt: skip
    made = save_artifact(tmp_path / "tuned", manifest, artifact.members)
    tuned = registry.register(tmp_path / "tuned")
    assert made.manifest.identity == tuned.manifest.identity
    run = store.start_run("train", {})
    store.set_result(run, {"model": "tuned@1", "identity": tuned.manifest.identity})
    store.finish_run(run, "done", "registered as tuned@1")
    async with running(make_app(), (140, 40), "M", "down", "enter") as (app, pilot):
        assert "tuned@1 for NVIDIA H200" in text_of(app)
        await press(pilot, "2")
        rows = app.screen.query_one(PagedTable).page.rows
        keys = [row.key.partition(":")[2] for row in rows]
        assert keys[1:5] == [
            f"run:{run}", f"model:{plain.folder}",
            'data:gpu:"NVIDIA H200" torch:"2.13.0" triton:"3.7.1"', "run:1",
        ]  # fmt: skip
        for other in ("collect 1", "collect 9"):
            assert f"{other}, of another store" in text_of(app)

        async def follow(place: int) -> None:
            table = app.screen.query_one(PageGrid)
            table.focus()
            table.point(place)
            await press(pilot, "enter")

        for place, number in ((1, run), (4, 1)):
            await follow(place)
            assert isinstance(app.screen, RunScreen)
            assert f"Run {number}," in text_of(app)
            await press(pilot, "escape")
        await follow(2)
        assert "plain@1 for NVIDIA H200" in text_of(app)
        await press(pilot, "escape")
        await follow(3)
        assert isinstance(app.screen, DataScreen)
        assert "5 problems" in text_of(app)
        assert 'gpu:"NVIDIA H200" torch:"2.13.0"' in text_of(app)


async def test_card_gate_and_history(make_app, store, plain):
    registry.set_default(plain, reason="it is the only one")
    async with running(make_app(), (120, 40), "M", "enter", "3") as (app, pilot):
        assert "What it was made of" in text_of(app)
        await press(pilot, "4")
        assert "It has not passed the gate yet" in text_of(app)
        gate = {"model": "plain@1", "against": "ATen", "passed": False,
                "checks": [{"name": "problems", "passed": False, "found": "Too few."}]}  # fmt: skip
        registry.set_verdict(plain, registry.ModelStatus.REJECTED, gate)
        app.screen.reload()
        await settled(pilot)
        assert "✗ problems" in text_of(app)
        await press(pilot, "5")
        assert "alias default to plain@1 (it is the only one)" in text_of(app)
        commands = dict(app.screen.headless_commands())
        assert commands["Card"].endswith("show plain@1 --hardware=nvidia-h200 --card")


async def test_times_are_those_of_the_place(make_app, store, plain, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Pacific/Kiritimati")  # 14 hours before UTC
        time.tzset()
        made = datetime.fromisoformat(plain.manifest.created)
        here = f"{made.astimezone():%Y-%m-%d %H:%M}"
        registry.set_default(plain)
        view = model_view(None, str(plain.folder))
        assert dict(view.facts)["made"].startswith(here)
        at = datetime.fromisoformat(registry.history(plain.slug)[-1].at)
        assert view.history[0][0] == f"{at.astimezone():%Y-%m-%d %H:%M}"
        assert models(None, 0).rows[0].cells["created"] == here[:10]
    time.tzset()


# A model of several GPUs


async def test_a_model_of_several_gpus_is_shown_for_each(make_app, tmp_path):
    h100 = KNOWN["NVIDIA H100 80GB HBM3"]
    gpus = (GpuRecord(H200, 9, 99, {"efficiency": 0.98, "problems": 40}),
            GpuRecord(h100, 5, 55, {"efficiency": 0.97, "problems": 30}))  # fmt: skip
    both = register_model(tmp_path, "both", gpus=gpus)
    registry.set_default(both)
    verdict = {"model": "both@1", "against": "plain@1", "passed": False,
               "checks": [{"name": "float32", "passed": False, "found": "0.9 on 30."}]}  # fmt: skip
    registry.set_verdict(both, registry.ModelStatus.REJECTED, verdict, h100.slug)
    registry.set_verdict(both, registry.ModelStatus.VALIDATED, verdict)
    async with running(make_app(), (160, 50), "M") as (app, pilot):
        assert "NVIDIA H200, NVIDIA H100" in text_of(app)
        await press(pilot, "enter")
        assert "0.970 on 30 problems; learned 55 timings of 5 problems" in text_of(app)
        assert f"taken on the {h100.name}: you made it the default" in text_of(app)
        await press(pilot, "4")
        assert f"For {h100.slug}" in text_of(app)
        assert "✗ float32" in text_of(app)
        await press(pilot, "5")
        assert f"alias default to nvidia-h200/both@1 on {h100.slug}" in text_of(app)
    (entry,) = models(None, 0).entries.values()
    assert find_slug_to_change(entry, None) == H200.slug
    assert find_slug_to_change(entry, h100) == h100.slug
    (model,) = models_for(h100)
    assert (model.hardware, model.likeness) == (h100, 1.0)
    assert loaded(model).hardware == h100
    assert dict(model_in_use(h100))["of the best"] == "0.970 on 30 problems"
