"""The dashboard over a store on a PostgreSQL server, as a team shares one."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from diode_app.app import create_app
from diode_app.data.store_access import Condition
from diode_app.settings import Settings
from diode_engine.location import location_of
from diode_engine.runs.process import current_process
from diode_engine.store import RunState, Store
from tests.app.judged import judge
from tests.app.registered import register_model
from tests.app.trained import make_training
from tests.app.waiting import looked, press, running, text_of
from tests.training.conftest import make_timings


@pytest.fixture
def shared(database, tmp_path):
    """One with timings, a training of each of two machines, and a report."""
    model = register_model(tmp_path, "plain", sure=True, default=True)
    with Store.open(database) as store:
        store.import_table(make_timings(40), key="x", spec={"file": "gemm"})
        for host in ("gpu-a.example", "gpu-b.example"):
            process = replace(current_process(), host=host, machine=host)
            store.finish_run(store.start_run("train", {}, process=process), RunState.DONE)
        make_training(store, "trees", 0.9, trees=1.0)
        judge(store, model)
    return database


def over(url: str, tmp_path, **options):
    app = create_app(
        location_of(url), settings_path=tmp_path / "dashboard.toml", poll_seconds=3600, **options
    )
    app.session.settings = Settings(run_columns=("run", "kind", "state", "host", "note"))
    return app


@pytest.mark.parametrize("read_only", [False, True])
async def test_every_screen_shows_what_is_there(shared, tmp_path, read_only):
    app = over(shared, tmp_path, read_only=read_only)
    async with running(app, (160, 50)) as (_, pilot):
        assert app.session.store.last.condition is Condition.READY
        shows = {
            "H": "problems 40", "R": "gpu-a.example", "D": "40 problems", "T": "40 problems",
            "V": "plain@1 takes kernels", "M": "plain@1", "W": "plain@1",
        }  # fmt: skip
        for key, words in shows.items():
            await press(pilot, key)
            assert words in text_of(app), key
            assert "could not be" not in text_of(app)
        await press(pilot, "D", "enter")
        assert "candidates" in text_of(app)
        password = os.environ["PGPASSWORD"]
        assert password not in text_of(app)


async def test_what_others_write_is_seen_and_what_is_written_here_is_kept(shared, tmp_path):
    app = over(shared, tmp_path)
    async with running(app, (160, 50), "R") as (_, pilot):
        with Store.open(shared) as store:
            store.start_run("collect", {}, process=current_process())
            await looked(pilot)
            assert "collect" in text_of(app)
            run = app.screen.run
            await press(pilot, "n", *"mine", "enter")
            assert store.run(run).note == "mine"
