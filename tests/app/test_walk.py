"""The whole job as a new user does it, on an empty disk and without a GPU, on measured rows of the
shipped timings: import, train, watch, validate, compare, promote, roll back, ask. Once by keys
alone on a small terminal, once by the mouse alone on a larger one."""

from __future__ import annotations

import os

import numpy as np
import pytest

from diode_app.data.overview import shipped_timings
from diode_app.screens.compare import CompareScreen
from diode_app.screens.model import ModelScreen
from diode_app.screens.run import RunScreen
from diode_app.text import quantity
from diode_engine import paths
from diode_engine.registry import default_for
from diode_engine.store import RunState, Store, read_dataset, write_dataset
from tests.app.registered import register_model
from tests.app.waiting import click_on, looked, press, running, settled, text_of
from tests.runs.conftest import wait_for_end

PROBLEMS = 150


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A data directory that is empty except for a bad model, and only a part of the timings that
    come with Diode."""
    rows = read_dataset(shipped_timings()[0])
    file = tmp_path / "timings.msgpack"
    write_dataset(rows.take(np.flatnonzero(rows.problem < PROBLEMS)), file)
    monkeypatch.setattr("diode_app.app.shipped_timings", lambda: (file,))
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")
    monkeypatch.setenv("DIODE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    register_model(tmp_path, "poor", stage=0.3, default=True)


def taken() -> str:
    model = default_for("nvidia-h200")
    assert model is not None
    return model.reference


async def finished(pilot, path, kind: str) -> int:
    """Waits for the last run, which must be of this kind and succeed; returns its number."""
    await settled(pilot)
    with Store.open(path) as store:
        run = store.runs()[-1]
        assert run.kind == kind
        wait_for_end(run.process)
        run = store.run(run.id)
        assert run.state is RunState.DONE, run.message
    await looked(pilot)
    return run.id


async def test_by_keys_alone_on_a_small_terminal(make_app, path, disk):
    async with running(make_app(), (80, 24)) as (app, pilot):
        assert "There is no store yet" in text_of(app)
        await press(pilot, "i")
        assert not path.exists()  # it asks first
        await press(pilot, "enter")
        await finished(pilot, path, "import")
        await press(pilot, "escape")
        assert f"problems {PROBLEMS}" in text_of(app)

        await press(pilot, "T", "down", "down", "down", "left", "left")  # trees
        await press(pilot, "down", "down", *"mine", "down", "down", "down", "down", "down", *"60")
        assert "(•) trees" in text_of(app)
        await press(pilot, "ctrl+g", "y")
        assert isinstance(app.screen, RunScreen)
        run = await finished(pilot, path, "train")
        with Store.open(path) as store:
            assert "gpus" in store.run(run).progress
        assert "mine@1 reaches 0." in text_of(app)
        assert f" of {quantity(os.cpu_count(), 'cores')} · " in text_of(app)
        assert "--model=mine@1" in dict(app.screen.headless_commands())["Validate"]
        await press(pilot, "v")
        assert "efficiency on problems not fitted to" in text_of(app)
        await press(pilot, "v")
        assert "trees-0 (fitted to)" in text_of(app)
        await press(pilot, "3")
        assert " of CPU time" in text_of(app)
        assert "family trees" in text_of(app)
        await press(pilot, "m")
        assert isinstance(app.screen, ModelScreen)
        await press(pilot, "escape")
        await press(pilot, "R", "enter")
        assert app.screen.run == run

        await press(pilot, "w")
        assert "--model=mine@1" in text_of(app)
        await press(pilot, "ctrl+g", "y")
        judged = await finished(pilot, path, "validate")
        await press(pilot, "o")
        assert "mine@1 takes kernels that reach 0." in text_of(app)
        assert f"run {judged}" in text_of(app)

        await press(pilot, "M", "slash", *"mine", "enter", "c", "enter")
        assert isinstance(app.screen, CompareScreen)
        assert "poor@1" in text_of(app)
        await press(pilot, "escape")

        assert taken() == "poor@1"
        await press(pilot, "p")
        assert "trained with other versions than" in text_of(app)
        await press(pilot, "y", *" but faster", "enter")
        assert taken() == "mine@1"
        await press(pilot, "b", "y")
        assert taken() == "poor@1"
        await press(pilot, "U")
        assert taken() == "mine@1"

        await press(pilot, "W", "m", *"mm 512 4096 1024")
        assert "mine@1 takes" in text_of(app)


async def test_by_the_mouse_alone(make_app, path, disk):
    app = make_app()

    async def click(*words: str) -> None:
        for each in words:
            await click_on(pilot, each)

    async with running(app, (120, 40)) as (_, pilot):
        await click("Import timings", "Enter takes it")
        await finished(pilot, path, "import")
        await click("esc Back")
        assert f"problems {PROBLEMS}" in text_of(app)

        await click(" Train ", "( ) trees", "Start (^g)", "Start it")
        assert isinstance(app.screen, RunScreen)
        run = await finished(pilot, path, "train")
        assert "trees@1 reaches 0." in text_of(app)
        await click("Curves", "esc Back", " Runs ", "100 %", "100 %")
        assert app.screen.run == run

        await click("w Validate", "Start (^g)", "Start it")
        judged = await finished(pilot, path, "validate")
        await click(" Validate ")
        assert "trees@1 takes kernels that reach 0." in text_of(app)
        assert f"run {judged}" in text_of(app)

        await click(" Models ", "trees@1", "c Compare", "poor@1 for")
        assert isinstance(app.screen, CompareScreen)
        await click("esc Back")

        await click("p Promote")
        assert "trained with other versions than" in text_of(app)
        await click("Take it anyway", "Enter takes it")
        assert taken() == "trees@1"
        await click("b Roll back", "Roll back (y)")
        assert taken() == "poor@1"

        await click("trees@1", "trees@1")
        assert isinstance(app.screen, ModelScreen)
        await click("esc Back", " Data ", " mm ", "w Ask")
        assert "poor@1 takes" in text_of(app)
