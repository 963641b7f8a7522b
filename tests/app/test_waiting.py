"""What is written while another process keeps the store: it is shown as waiting, and nothing that a
person wrote is lost."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from textual.widgets import Input

from diode_engine.store import Store
from diode_engine.store.backends import sqlite_connection
from tests.app.waiting import lines_of, looked, press, running, settled, text_of, until_shown
from tests.training.conftest import make_timings

WAITING = "waiting for the store"


@contextmanager
def locked(path):
    """The store as a long write of another process keeps it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def run(store):
    store.import_table(make_timings(5), key="x", spec={})
    return store.start_run("train", {})


async def test_what_is_not_written_stays_in_its_dialog(make_app, store, path, run, monkeypatch):
    async with running(make_app(), (80, 24), "R", "n") as (app, pilot):
        monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.3)
        with locked(path):
            await pilot.press(*"better")
            await press(pilot, "enter")
            assert "stayed locked by another process" in text_of(app)
            assert app.screen.query_one(Input).value == "better"
        await press(pilot, "enter")
        assert not app.screen.is_modal
    assert store.run(run).note == "better"


async def test_a_note_waits_in_its_dialog_and_who_quits_is_asked(make_app, store, path, run):
    async with running(make_app(), (80, 24), "R", "n") as (app, pilot):
        with locked(path):
            await pilot.press(*"better", "enter")
            await until_shown(pilot, WAITING)
            assert app.screen.query_one(Input).value == "better"
            await pilot.press("escape")
            await until_shown(pilot, f"◍ {WAITING}")
            await pilot.press("q")
            await until_shown(pilot, "Leave without it?")
            await pilot.press("n")
        await settled(pilot)
        assert WAITING not in text_of(app)
        assert store.run(run).note == "better"
        assert app.is_running
        await pilot.press("q")
        assert not app.is_running


async def test_keys_after_enter_are_not_the_lines(make_app, store, run):
    async with running(make_app(), (80, 24), "R", "n") as (app, pilot):
        await press(pilot, *"fine", "enter", "H")
        assert app.current_mode == "home"
    assert store.run(run).note == "fine"


def test_without_a_terminal_it_says_so(path):
    done = subprocess.run(
        [sys.executable, "-m", "diode_app", f"--store={path}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
    assert not path.exists()


async def test_a_store_that_is_being_made_is_no_alarm(make_app, path):
    async with running(make_app(), (80, 24)) as (app, pilot):
        path.touch()  # so far another process has come
        await looked(pilot)
        assert "There is no store yet" in text_of(app)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            await looked(pilot)
            assert "There is no store yet" in text_of(app)
        Store.open(path).close()
        await looked(pilot)
        assert "Import" in text_of(app)
        assert app.session.store.last.ready


@pytest.mark.parametrize(("width", "last"), [(60, "tag:x"), (140, "started>2026-11-01")])
async def test_the_examples_of_a_filter_are_not_cut(make_app, run, width, last):
    async with running(make_app(), (width, 24), "R", "slash") as (app, _):
        (line,) = [line for line in lines_of(app) if "state:failed" in line]
        shown = line.replace("│", " ").split("  ")[0].split()
        hint = ["state:failed", "kind:train", "tag:x", "problems>100", "started>2026-11-01"]
        assert shown == hint[: len(shown)]
        assert last in shown
