"""What is written while another process keeps the store: it is shown as waiting, and nothing that a
person wrote is lost."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from textual.widgets import Input

from diode_app.data.run_results import outcome
from diode_app.widgets.modals import Prompt
from diode_engine.runs import look
from diode_engine.store import Store
from diode_engine.store.backends import sqlite_connection
from tests.app.waiting import lines_of, looked, press, running, settled, text_of
from tests.training.conftest import make_timings

WAITING = "waiting for the store"


@contextmanager
def locked(path):
    """The store as a long write of another process keeps it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def _until(pilot, words):
    for _ in range(1000):
        await pilot.pause(0.01)
        if words in text_of(pilot.app):
            return
    raise AssertionError(text_of(pilot.app))


@pytest.fixture
def run(store):
    store.import_table(make_timings(5), key="x", spec={})
    return store.start_run("train", {})


async def test_a_note_waits_in_its_dialog(make_app, store, path, run):
    async with running(make_app(), (80, 24), "R", "n") as (app, pilot):
        with locked(path):
            await pilot.press(*"better", "enter")
            await _until(pilot, WAITING)
            assert app.screen.query_one(Input).value == "better"
        await settled(pilot)
        assert not app.screen.is_modal
        assert WAITING not in text_of(app)
    assert store.run(run).note == "better"


async def test_what_could_not_be_written_stays_in_its_dialog(
    make_app, store, path, run, monkeypatch
):
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


async def test_who_quits_is_asked_while_something_waits(make_app, store, path, run):
    async with running(make_app(), (80, 24), "R", "n") as (app, pilot):
        with locked(path):
            await pilot.press(*"better", "enter")
            await _until(pilot, WAITING)
            await pilot.press("escape")
            await _until(pilot, f"◍ {WAITING}")
            await pilot.press("q")
            await _until(pilot, "Leave without it?")
            await pilot.press("n")
        await settled(pilot)
        assert store.run(run).note == "better"
        assert app.is_running
        await pilot.press("q")
        assert not app.is_running


async def test_tags_that_are_refused_stay_with_the_reason(make_app, store, run):
    async with running(make_app(), (80, 24), "R", "a") as (app, pilot):
        await pilot.press(*"a !b")
        await press(pilot, "enter")
        assert isinstance(app.screen, Prompt)
        assert "is no tag" in text_of(app)
        assert app.screen.query_one(Input).value == "a !b"
        assert store.run(run).tags == ()
        await pilot.press("backspace", "backspace")
        await press(pilot, "enter")
        assert not app.screen.is_modal
    assert store.run(run).tags == ("a",)


async def test_keys_after_enter_are_not_the_lines(make_app, store, run):
    async with running(make_app(), (80, 24), "R", "n") as (app, pilot):
        await press(pilot, *"fine", "enter", "H")
        assert app.current_mode == "home"
    assert store.run(run).note == "fine"


async def test_a_pin_is_shown_as_waiting(make_app, store, path, run):
    async with running(make_app(), (80, 24), "R") as (app, pilot):
        with locked(path):
            await pilot.press("p")
            await _until(pilot, f"◍ {WAITING}")
        await settled(pilot)
        assert WAITING not in text_of(app)
    assert store.run(run).tags == ("diode/baseline",)


async def test_a_promotion_that_was_refused_is_not_done(make_app, store, run):
    refused = store.start_run("promote", {})
    store.update_run(refused, progress={"judged": "a@1", "refused": True})
    why = "a@1 was refused: " + "it is slower on many problems, " * 12
    store.finish_run(refused, "done", why)
    assert outcome(look(store, refused)) == "refused"
    async with running(make_app(), (80, 24)) as (app, pilot):
        assert "✗ refused" in text_of(app)
        assert "✓ done" not in text_of(app).split("promote")[1].split("train")[0]
        # A long reason takes one line: the runs below it stay on the screen.
        assert "train" in text_of(app).split("promote")[1]
        await press(pilot, "R", "enter")
        await looked(pilot)
        assert "it is slower on many problems" in text_of(app)


@pytest.mark.parametrize("words", [(), ("--read-only",)])
def test_without_a_terminal_it_says_so(path, words):
    done = subprocess.run(
        [sys.executable, "-m", "diode_app", f"--store={path}", *words],
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


async def test_a_store_with_nothing_has_no_details(make_app, store, path):
    async with running(make_app(), (120, 40)) as (app, pilot):
        assert "d Details" not in lines_of(app)[-1]
        store.import_table(make_timings(5), key="x", spec={})
        await looked(pilot)
        assert "d Details" in lines_of(app)[-1]


async def test_nothing_can_be_started_where_the_store_cannot_be_read(make_app, path):
    async with running(make_app(), (120, 40), "T") as (app, _):
        assert "Start" not in lines_of(app)[-1]
