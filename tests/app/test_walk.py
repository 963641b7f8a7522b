"""The whole job by keys, on an empty disk: import, train, validate, register, ask."""

from __future__ import annotations

import pytest

from diode_app.screens.run import RunScreen
from diode_engine import paths
from diode_engine.registry import default_for
from diode_engine.store import RunState, Store, write_dataset
from tests.app.waiting import imported, looked, settled, started, text_of
from tests.runs.conftest import wait_for_end
from tests.training.conftest import make_timings


async def finished(pilot, path, kind: str) -> int:
    """The number of the last run, which is of this kind and has done its work."""
    with Store.open(path) as store:
        run = store.runs()[-1]
        assert run.kind == kind
        wait_for_end(run.process)
        run = store.run(run.id)
        assert run.state is RunState.DONE, run.message
    await looked(pilot)
    return run.id


@pytest.mark.asyncio
async def test_import_train_validate_register_ask(make_app, path, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")
    monkeypatch.setenv("DIODE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = tmp_path / "timings.msgpack"
    write_dataset(make_timings(60), file)
    monkeypatch.setattr("diode_app.app.shipped_timings", lambda: (file,))
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await started(pilot)
        assert "There is no store yet" in text_of(app)
        await pilot.press("i")
        await settled(pilot)
        await pilot.press("y")
        await imported(pilot)
        assert "problems 60" in text_of(app)

        await pilot.press("T")
        await settled(pilot)
        changed = {"family": "trees", "rounds": "4", "name": "mine", "default": "yes"}
        for name, value in changed.items():
            app.screen.form.field(name).value = value
            await settled(pilot)
        await pilot.press("ctrl+g")
        await settled(pilot)
        await pilot.press("y")
        await settled(pilot)
        assert isinstance(app.screen, RunScreen)
        await finished(pilot, path, "train")
        assert "mine@1 reaches 0." in text_of(app)

        await pilot.press("w")
        await settled(pilot)
        await pilot.press("ctrl+g")
        await settled(pilot)
        await pilot.press("y")
        await settled(pilot)
        run = await finished(pilot, path, "validate")
        await pilot.press("escape", "V")
        await settled(pilot)
        assert "mine@1 takes kernels that reach 0." in text_of(app)
        assert f"run {run}" in text_of(app)

        await pilot.press("M")
        await settled(pilot)
        model = default_for("nvidia-h200")
        assert model is not None
        assert model.reference == "mine@1"
        assert "mine@1" in text_of(app)

        await pilot.press("W")
        await settled(pilot)
        app.screen.query_one("#problem-op").value = "mm"
        await settled(pilot)
        await pilot.press("m", *"512")
        await settled(pilot)
        assert "mine@1 takes" in text_of(app)
