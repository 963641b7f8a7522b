"""The dashboard as a person meets it: over stores in every state, by keys."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields

import pytest
from textual.widgets import Input, Static
from textual.widgets._toast import Toast

from diode_app.actions import clashes
from diode_app.app import DiodeApp
from diode_app.data.store_access import Condition
from diode_app.screens.help import Help
from diode_app.screens.home import HomeScreen
from diode_app.screens.places import APP_ACTIONS, PLACES, sections
from diode_app.screens.runs import RunsScreen
from diode_app.settings import Settings, load
from diode_app.widgets.bars import KeyBar
from diode_app.widgets.filter_box import FilterBox
from diode_app.widgets.form import Field
from diode_app.widgets.modals import Choose, Confirm, PickOne
from diode_app.widgets.page_grid import PageGrid
from diode_app.widgets.table import PagedTable
from diode_engine.runs.process import current_process
from diode_engine.store import RunState, Store
from tests.app.waiting import looked, press, put, running, settled, text_of, toasts

# The store's states


async def test_a_missing_store_is_told_and_can_be_made(make_app, path):
    async with running(make_app()) as (app, pilot):
        assert "There is no store yet" in text_of(app)
        assert not path.exists()  # looking makes none
        await app.run_action("app.create_store")
        await settled(pilot)
        assert path.exists()
        assert app.session.store.last.ready
        assert "Operators" in text_of(app)


async def test_it_recovers_when_the_store_comes_and_goes(make_app, path):
    async with running(make_app()) as (app, pilot):
        Store.open(path).close()
        await looked(pilot)
        assert app.session.store.last.ready
        away = path.rename(path.with_name("away"))
        await looked(pilot)
        assert "There is no store yet" in text_of(app)
        away.rename(path)
        await looked(pilot)
        assert "● ready" in text_of(app)


async def test_a_file_that_is_no_store(make_app, path):
    path.write_bytes(b"This is not a database. " * 100)
    async with running(make_app()) as (app, _pilot):
        assert app.session.store.last.condition is Condition.BROKEN
        assert "not a Diode store" in text_of(app)
    assert path.read_bytes() == b"This is not a database. " * 100


async def test_a_newer_and_an_older_store(make_app, path):
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    async with running(make_app()) as (app, pilot):
        assert app.session.store.last.condition is Condition.NEW
        assert "update Diode" in text_of(app)
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("UPDATE alembic_version SET version_num = '0002'")
        await looked(pilot)
        assert app.session.store.last.condition is Condition.OLD
        assert "Update the store" in text_of(app)


async def test_a_locked_store_keeps_what_was_shown(make_app, store, path):
    store.start_run("train", {}, process=current_process())
    async with running(make_app(), (80, 40)) as (app, pilot):
        store.close()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            # Nobody gets an exclusive lock while we are connected, but after that.
            app.session.store._close_store()
            app.session.store._watch.close()
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            await looked(pilot)
            assert app.session.store.last.condition is Condition.LOCKED
            assert "locked" in text_of(app)
            assert "train" in text_of(app)
        await looked(pilot)
        assert app.session.store.last.ready


# Nothing is sent to the terminal while nothing changes, whatever is in front of what


async def test_a_look_at_an_unchanged_store_paints_nothing(make_app, store, monkeypatch):
    store.finish_run(store.start_run("train", {}), RunState.DONE)
    async with running(make_app(), (120, 40)) as (app, pilot):
        painted = []
        display = app._display

        def show(screen, update):
            painted.append(update)
            display(screen, update)

        monkeypatch.setattr(app, "_display", show)
        for keys in ("S", "O", "question_mark", "R", "R n", "R enter", "R enter g",
                     "R enter question_mark"):  # fmt: skip
            await press(pilot, *keys.split())
            await looked(pilot)
            painted.clear()
            for _ in range(4):
                await looked(pilot)
            assert painted == [], keys
            await press(pilot, "escape", "H")


# Going about


async def test_the_key_of_a_place_leads_to_it_from_its_pages_too(make_app, store):
    store.finish_run(store.start_run("train", {}, process=current_process()), RunState.DONE)
    async with running(make_app(), (80, 24)) as (app, pilot):
        app.open_run(1)  # as an import from Home does
        await press(pilot, "H")
        assert isinstance(app.screen, HomeScreen)
        for keys in ("R,enter,R", "R,enter,H,R"):
            await press(pilot, *keys.split(","))
            assert isinstance(app.screen, RunsScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_click_on_a_name_above_goes_there(make_app, store, size):
    async with running(make_app(), size) as (app, pilot):
        for place in (*PLACES[1:], PLACES[0]):
            if place.label is not None:
                names = app.screen.query_one("#bar-places", Static)
                at = str(names.content).index(place.label)
                await pilot.click(names, offset=(at + 1, 0))  # it has a column of padding
                await settled(pilot)
                assert app.current_mode == place.mode


async def test_the_frame_comes_first_and_keys_wait_for_the_body(make_app, store, monkeypatch):
    """A body that takes long leaves the loop free; what is typed ahead is done when it is there."""
    made = asyncio.Event()

    class Slow(Static):
        async def on_mount(self) -> None:
            await made.wait()

    body = RunsScreen.body

    def slow(screen):
        yield from body(screen)
        yield Slow()

    monkeypatch.setattr(RunsScreen, "body", slow)
    async with running(make_app()) as (app, pilot):
        app.simulate_key("R")  # a pilot's press waits for all that is being made
        while app.current_mode != "runs":
            await asyncio.sleep(0)
        app.simulate_key("slash")
        shown = asyncio.Event()
        app.screen.call_after_refresh(shown.set)
        await asyncio.wait_for(shown.wait(), 30)
        frame = text_of(app)
        made.set()
        await settled(pilot)
        assert "Validate Models" in frame
        assert "started (UTC)" not in frame
        assert app.screen.query_one(FilterBox).query_one(Input).has_focus


async def test_the_keys_are_whole_on_a_small_terminal(make_app, store):
    """At 80 columns: the screen's first, and the ways to all the others and out. Every column of
    the lists has a meaning for the help."""
    store.start_run("train", {}, process=current_process())
    async with running(make_app(), (80, 24)) as (app, pilot):
        for place in PLACES:
            await press(pilot, place.key)
            line = str(app.screen.query_one(KeyBar).content)
            offered = [a for a in place.load().ACTIONS if a.footer]
            offered = [a for a in offered if app.screen.check_action(a.name, ())]
            for action in offered[:4]:
                assert f" {action.label} " in line
            assert ": Commands " in line
            assert line.endswith("q Quit")
            assert len(line) <= 80
            for table in app.screen.query(PagedTable):
                assert all(column.meaning for column in table.columns), (place.mode, table.what)
        await pilot.click(KeyBar, offset=(line.index(": Commands"), 0))
        await settled(pilot)
        assert app.screen.is_modal


async def test_every_action_has_a_method_and_a_key_of_its_own(make_app, store):
    actions = [action for _, part in sections() for action in part]
    assert clashes({a.id: a for a in (*APP_ACTIONS, *actions)}.values(), {}) == []
    for place in PLACES:
        for action in place.load().ACTIONS:
            assert action.does or hasattr(place.load(), f"action_{action.name}"), action.id
    for action in APP_ACTIONS:
        assert action.does or hasattr(DiodeApp, f"action_{action.name}"), action.id


async def test_the_palette_has_what_can_be_done_now(make_app, store):
    store.start_run("train", {}, process=current_process())
    async with running(make_app(), (80, 24), "R") as (app, _pilot):
        found = {command.title: command.help for command in app.get_system_commands(app.screen)}
        assert found["Cancel"] == "c  Stop this run; what it has written stays."
        assert "Down" not in found  # the help says how to move about
        assert "Filter" in found  # of the table that has the focus
        assert "Quit" in found


# Settings


async def test_a_setting_is_applied_and_kept(make_app, store, tmp_path):
    store.start_run("train", {}, process=current_process())
    async with running(make_app(), (80, 50), "S") as (app, pilot):
        keys = app.screen.query_one("#field-keys Input", Input)
        await put(pilot, keys, "runs.cancel=R")
        assert "would do both" in text_of(app)
        assert not (tmp_path / "dashboard.toml").exists()
        await put(pilot, keys, "runs.cancel=x")
        rows = app.screen.query_one("#field-rows Input", Input)
        await put(pilot, rows, "9")
        assert "from 10 to 500" in text_of(app)
        await put(pilot, rows, "20")
    again = make_app()
    assert dict(again.session.settings.keys) == {"runs.cancel": "x"}
    assert again.session.settings.rows == 20
    text = (tmp_path / "dashboard.toml").read_text()
    assert "# Rows on a page of a table, from 10 to 500." in text
    async with running(again, (160, 40), "R") as (_, pilot):
        assert "x Cancel" in text_of(again)


async def test_saved_filters_are_changed_and_their_mistakes_told(make_app, store, tmp_path):
    async with running(make_app(), (120, 60), "S") as (app, pilot):
        shown = {field.name for field in app.screen.query(Field)}
        assert shown == {field.name for field in fields(Settings)}
        entry = app.screen.query_one("#field-filters Input", Input)
        for wrong, says in (
            ("tall", "tall is not a name, ="),
            ("'tall=models x'", "it must be a place"),
            ("'tall=data m>>4'", "m>>4"),
        ):
            await put(pilot, entry, wrong)
            assert says in text_of(app)
            assert not (tmp_path / "dashboard.toml").exists()
        await put(pilot, entry, "'tall=data op:bmm m>4096' night=\"runs tag:night\"")
    kept = {"tall": "data op:bmm m>4096", "night": "runs tag:night"}
    assert dict(load(tmp_path / "dashboard.toml").filters) == kept


async def test_what_is_set_elsewhere_is_shown_and_not_lost(make_app, filled, tmp_path):
    async with running(make_app(), (80, 60), "S") as (app, pilot):
        await pilot.press("comma", "D")  # another theme
        await settled(pilot)
        await press(pilot, "slash", *"op:bmm", "enter", "b", *"mine", "enter", "S")
        assert app.screen.query_one("#field-theme", Field).value == app.theme
        entry = app.screen.query_one("#field-filters Input", Input)
        assert entry.value == "'mine=data op:bmm'"
        entry.value += " 'night=runs tag:night'"
        await settled(pilot)
        await press(pilot, "r", "y")
    assert set(load(tmp_path / "dashboard.toml").filters) == {"mine", "night"}


async def test_settings_that_cannot_be_read_are_told_and_left_alone(make_app, store, tmp_path):
    file = tmp_path / "dashboard.toml"
    file.write_text("rows = 3\n")
    async with running(make_app()) as (app, pilot):
        (toast,) = toasts(app)
        assert "must be a whole number from 10 to 500" in toast
        await press(pilot, "comma")
    assert file.read_text() == "rows = 3\n"


async def test_a_theme_colours_the_states_in_a_table(make_app, store):
    store.finish_run(store.start_run("train", {}), RunState.FAILED, "There is too little data.")
    app = make_app(theme="okabe-ito-light")

    def colours():
        return {style for _, style in app.screen.query_one(PageGrid).cells_of(0).values()}

    async with running(app, (120, 30), "R") as (_, pilot):
        assert app.theme_variables["error"] in colours()
        before = app.theme_variables["error"]
        await press(pilot, "comma")
        assert app.theme_variables["error"] != before
        assert app.theme_variables["error"] in colours()


# Runs


async def test_a_table_is_exported_whole(make_app, store, tmp_path):
    for _ in range(12):
        store.start_run("train", {"seed": 1}, process=current_process())
    (tmp_path / "dashboard.toml").write_text("rows = 10\n")
    async with running(make_app(), (120, 30), "R") as (app, pilot):
        assert "page 1 of 2 · 12 runs" in text_of(app)
        await press(pilot, "right_square_bracket")
        assert app.screen.query_one(PageGrid).row_count == 2
        await press(pilot, "e")
        box = app.screen.query_one(Input)
        box.value = str(tmp_path / "runs.txt")
        await press(pilot, "enter")
        assert "must end in .csv or .json" in text_of(app)
        box.value = str(tmp_path / "runs.json")
        await press(pilot, "enter")
    records = json.loads((tmp_path / "runs.json").read_text())
    assert [record["id"] for record in records] == list(range(12, 0, -1))


# What it brings along


async def test_no_torch_and_quick_to_quit(path):
    """The dashboard does not import torch, and ends although a thread of it never returns. It runs
    in a process of its own."""
    program = f"""
import asyncio, sys, threading
from pathlib import Path
import diode_app.app as app
from diode_app.data.background import in_thread
made = app.create_app(Path({str(path)!r}), settings_path=Path({str(path) + ".toml"!r}))
async def main():
    async with made.run_test() as pilot:
        await pilot.press("R", "W", "S", "A", "H", "question_mark")
        made.run_worker(in_thread(threading.Event().wait))
        await pilot.pause()
asyncio.run(main())
assert not {{"torch", "triton"}} & set(sys.modules), "afterwards"
print("left")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "left\n", done.stderr


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_notification_covers_no_part_of_a_dialog(make_app, store, size):
    app = make_app()
    words = "A sentence that takes two lines of the notification, as many of them do. " * 2
    dialogs = (
        lambda: Choose("Columns", [f"column {i}" for i in range(30)], ()),
        lambda: Confirm("Start it?\n" * 12),
        lambda: PickOne("Which?", [(str(i), str(i)) for i in range(30)]),
        lambda: Help(app.session, app.screen),
    )
    async with running(app, size, notifications=True) as (_, pilot):
        for make in dialogs:
            app.push_screen(make())
            await settled(pilot)
            app.notify(words, timeout=60)
            app.notify(words, timeout=60)
            await settled(pilot)
            shown = app.screen.query(Toast)
            assert len(shown) == 2
            (box,) = app.screen.query(".box, #help-box")
            assert not any(box.region.overlaps(toast.region) for toast in shown)
            assert box.region.y >= 0
            assert box.region.height >= 8
            foot = app.screen.query("DialogKeys, Button").last()
            assert foot.region.bottom <= box.region.bottom
            app.clear_notifications()
            await press(pilot, "escape")
