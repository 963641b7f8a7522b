"""Keys that come in one burst: each does what it would have done by itself, and none is lost; and
the keys that a terminal sends."""

from __future__ import annotations

import asyncio
import math
import os
from contextlib import contextmanager
from queue import SimpleQueue
from select import select
from threading import Thread
from types import SimpleNamespace

import pytest
from textual.app import App
from textual.command import CommandPalette
from textual.events import Key, Paste
from textual.widgets import Input

from diode_app import app as app_module
from diode_app import keys as keys_module
from diode_app.screens.data import DataScreen
from diode_app.screens.places import APP_ACTIONS, sections
from diode_app.screens.run import RunScreen
from diode_app.screens.runs import RunsScreen
from diode_app.search import Everything
from diode_app.terminal_driver import TerminalDriver
from diode_app.widgets.bars import KeyBar
from diode_app.widgets.filter_box import FilterBox
from diode_app.widgets.modals import Confirm, Prompt
from diode_engine.store import RunState
from tests.app.trained import make_training
from tests.app.waiting import burst, looked, press, running, settled, text_of
from tests.training.conftest import make_timings


@pytest.fixture
def ended(store, tmp_path):
    """Runs that could be started again by one letter."""
    for kind in ("train", "collect", "train"):
        command = ("diode-engine", kind, f"--store={store.location}")
        run = store.start_run(kind, {}, command=command, directory=str(tmp_path))
        store.finish_run(run, RunState.FAILED, "There is too little data.")
    return store


async def test_a_filter_and_its_text_in_one_burst(make_app, ended):
    async with running(make_app(), (80, 24)) as (app, pilot):
        await burst(pilot, "R", "/", "kind:trst", "backspace", "backspace", "ain", "enter")
        table = app.screen.table
        assert table.query_now.filter == "kind:train"
        assert table.query_now.sort == "run"  # the letters sorted nothing
        assert [row.cells["kind"] for row in table.page.rows] == ["train", "train"]
        assert table.grid.has_focus
        assert len(ended.runs()) == 3


async def test_what_starts_a_run_asks_first(make_app, ended, job):
    """Letters typed at a page, one of which asks something, do not answer it: a yes counts once the
    question is seen."""
    async with running(make_app(), (120, 40)) as (app, pilot):
        await burst(pilot, "R", "ryyy")
        assert isinstance(app.screen, Confirm)
        assert "run 3" in text_of(app)
        assert len(ended.runs()) == 3
        await burst(pilot, "n")
        assert len(ended.runs()) == 3
        await burst(pilot, "r")
        await burst(pilot, "y")
        assert len(ended.runs()) == 4
        assert job.hear() == "begun 4"
        job.tell("end")


async def test_a_place_and_a_letter_for_it_in_one_burst(make_app, ended, monkeypatch):
    painted = []
    monkeypatch.setattr(keys_module, "_FRAME_SECONDS", -1.0)
    async with running(make_app(), (120, 40)) as (app, pilot):
        app.post_display_hook = lambda: painted.append(app.keys.held)
        for _ in range(2):  # made, and come back to
            await burst(pilot, "R", "H", "i")
            assert isinstance(app.screen, Prompt)
            await burst(pilot, "escape", "R")
            assert app.current_mode == "runs"
        # What is typed on a page that takes letters opens one dialog, which has the rest.
        await burst(pilot, "enter", "3", "notes")
        assert isinstance(app.screen, Prompt)
        assert app.screen.query_one(Input).value == "otes"
        assert [type(screen) for screen in app.screen_stack[1:]] == [RunScreen, Prompt]
        await burst(pilot, "enter")
        assert ended.run(3).note == "otes"
        assert set(painted) == {None}  # nothing while more keys waited


async def test_a_paste_goes_where_the_keys_before_it_lead(make_app, ended):
    async with running(make_app(), (120, 40)) as (app, pilot):
        app.simulate_key("R")
        app.simulate_key("slash")
        app.post_message(Paste("kind:train"))
        app.simulate_key("enter")
        await settled(pilot)
        assert app.screen.table.query_now.filter == "kind:train"
        await burst(pilot, "R", ":", "reverse", "enter")  # a command of the palette
        assert not app.screen.is_modal
        assert not app.screen.table.query_now.descending


async def test_a_key_that_leaves_does_not_wait_for_what_is_there(make_app, ended, monkeypatch):
    monkeypatch.setattr(keys_module, "_ROWS_SECONDS", math.inf)
    async with running(make_app(), (120, 40), "R") as (app, _):
        answered, read = asyncio.Event(), app.session.store.read

        async def slowly(work):
            await answered.wait()
            return await read(work)

        monkeypatch.setattr(app.session.store, "read", slowly)
        async with asyncio.timeout(20):
            for key in ("enter", "escape", "o", "D"):  # a page and back, rows and another place
                app.simulate_key(key)
            while app.current_mode != "data":
                await asyncio.sleep(0)
        answered.set()


async def test_a_key_waits_for_the_rows_of_the_key_before_it(make_app, ended, monkeypatch):
    """The first of them is handled, and nothing else waits, when the second one comes."""
    async with running(make_app(), (120, 40)) as (app, pilot):
        await burst(pilot, "R", "/", "tag:nothing", "enter")
        table = app.screen.table
        assert not table.page.rows
        asked, answered, fetch = asyncio.Event(), asyncio.Event(), table.fetch

        async def slowly(query):
            asked.set()
            await answered.wait()
            return await fetch(query)

        monkeypatch.setattr(table, "fetch", slowly)
        app.simulate_key("escape")
        await asked.wait()
        while app.keys.busy:
            await asyncio.sleep(0)
        app.simulate_key("n")
        await pilot.pause()
        answered.set()
        await settled(pilot)
        assert isinstance(app.screen, Prompt)


# Escape always leaves, and the footer says how


def _footer(app) -> str:
    return str(app.screen.query_one(KeyBar).content)


async def test_escape_leaves_a_field_and_then_the_settings(make_app, ended):
    async with running(make_app(), (80, 24)) as (app, pilot):
        await burst(pilot, "T", "down", "name")  # of a form
        assert "esc Leave the field" in _footer(app)
        await burst(pilot, "escape")
        assert "esc" not in _footer(app)
        await burst(pilot, "R", "S")
        for selector in ("#field-rows Input", "#field-theme Choices"):
            app.screen.query_one(selector).focus()
            await settled(pilot)
            assert "esc Leave" in _footer(app)
            await burst(pilot, "escape")
            assert app.focused is None
            assert app.current_mode == "settings"
        assert "esc Leave" in _footer(app)
        await burst(pilot, "escape")
        assert app.current_mode == "runs"


async def test_escape_leaves_what_is_searched_or_filtered(make_app, ended):
    async with running(make_app(), (80, 24)) as (app, pilot):
        await burst(pilot, "R", "/", "tag:x")
        assert "esc All rows" in _footer(app)
        await burst(pilot, "escape")
        assert app.screen.table.grid.has_focus
        await burst(pilot, "enter", "2", "/", "x")
        assert "esc All lines" in _footer(app)
        await burst(pilot, "escape", "escape")
        assert app.screen.MODE == "runs"
        assert not isinstance(app.screen, RunScreen)


async def test_an_empty_filter_and_escape_close_its_line(make_app, ended):
    async with running(make_app(), (80, 24)) as (app, pilot):
        await burst(pilot, "R", "/", "enter")
        assert not app.screen.query_one(FilterBox).region
        assert app.screen.table.grid.has_focus
        await burst(pilot, "/", "tag:nothing", "enter")
        assert not app.screen.table.page.rows
        assert "esc All rows" in _footer(app)
        await burst(pilot, "escape")
        assert app.screen.table.query_now.filter == ""
        assert len(app.screen.table.page.rows) == 3
        assert "esc" not in _footer(app)
        assert not app.screen.query_one(FilterBox).region
        # On a page, the filter first, then the page.
        await burst(pilot, "enter", "escape")
        assert isinstance(app.screen, RunsScreen)


async def test_an_escape_that_was_read_with_the_keys_behind_it_is_one(make_app, ended):
    """Textual types a ^ for it; a ^ that comes alone is one."""
    async with running(make_app(), (120, 40)) as (app, pilot):
        await burst(pilot, ":tr", "^", "R")
        assert isinstance(app.screen, RunsScreen)
        await press(pilot, "n", "circumflex_accent")
        assert app.screen.query_one(Input).value == "^"


async def test_enter_in_the_palette_waits_for_the_commands(make_app, ended, monkeypatch):
    """Each key before it is handled completely, and the search is still at work when Enter comes:
    it opens what is found, not what was listed before."""
    asked, found = asyncio.Event(), asyncio.Event()
    search = Everything.search

    async def slowly(self, query):
        if query == "run/2":
            asked.set()
            await found.wait()
        async for hit in search(self, query):
            yield hit

    monkeypatch.setattr(Everything, "search", slowly)
    async with running(make_app(), (120, 40)) as (app, pilot):
        await burst(pilot, ":", "run")
        for key in ("slash", "2"):
            app.post_message(Key(key, "/2"[key == "2"]).set_sender(app))
            await pilot.pause()
        await asyncio.wait_for(asked.wait(), 30)
        while app.keys.busy:
            await asyncio.sleep(0)
        app.simulate_key("enter")
        for _ in range(20):
            await pilot.pause()
        waits = isinstance(app.screen, CommandPalette)
        found.set()
        await settled(pilot)
        assert waits
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run == 2


async def test_some_keys_and_names_mean_the_same_on_every_screen():
    """i imports, g goes to the first row, and neither does anything else on any."""
    actions = [action for _, of in sections() for action in of] + list(APP_ACTIONS)
    for key, label in (("i", "Import"), ("g", "First")):
        meant = {action.label for action in actions if key in action.key.split(",")}
        assert all(each.startswith(label) for each in meant), (key, meant)
    starts = [action for action in actions if action.label == "Start"]
    assert {action.key for action in starts} == {"ctrl+g"}
    assert {action.label for action in actions if "export" in action.id} == {"Export"}


# Screens that are made ahead, while no key is pressed


@pytest.fixture
def made_ahead(monkeypatch):
    monkeypatch.setattr(app_module, "MADE_AHEAD", ("runs", "data", "settings"))
    monkeypatch.setattr(app_module, "QUIET_SECONDS", 0.0)


async def test_they_read_and_take_keys_when_they_are_shown(make_app, store, made_ahead):
    store.import_table(make_timings(12), key="x", spec={})
    async with running(make_app(), (120, 40)) as (app, pilot):
        runs, data, _settings = made = app.get_screen_stack("ahead")[1:]
        assert [screen.MODE for screen in made] == list(app_module.MADE_AHEAD)
        assert all(screen.is_made for screen in made)
        assert app.current_mode == "home"
        assert not data.table.page.rows  # nothing is read for a screen that nobody sees
        run = make_training(store, "trees", 0.9)
        await press(pilot, "R")
        assert app.screen is runs
        assert runs.run == run
        assert "trees@1" in text_of(app)
        await press(pilot, "D", "down", "j")
        assert isinstance(app.screen, DataScreen)
        assert len(data.table.page.rows) == 12
        assert data.table.grid.cursor_row == 2
        await pilot.resize_terminal(80, 24)
        await press(pilot, "S", "escape")
        assert app.screen is data


async def test_none_is_made_while_keys_come(make_app, store, made_ahead, monkeypatch):
    monkeypatch.setattr(app_module, "QUIET_SECONDS", 3600.0)
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        while "diode_app.screens.home" not in type(app.screen).__module__:
            await pilot.pause()
        app.simulate_key("g")
        while not any(worker.group == "preloading" for worker in app.workers):
            await pilot.pause()
        for _ in range(50):
            await asyncio.sleep(0)
            await pilot.pause()
        with pytest.raises(KeyError):
            app.get_screen_stack("ahead")
        monkeypatch.setattr(app_module, "QUIET_SECONDS", 0.0)
        await settled(pilot)
        assert len(app.get_screen_stack("ahead")) == 4


async def test_garbage_is_collected_while_no_key_comes(make_app, store, monkeypatch):
    collected, polls = [], []
    garbage = {"get_count": lambda: (0, 0, 1), "collect": lambda: collected.append(1)}
    monkeypatch.setattr(app_module, "gc", SimpleNamespace(freeze=lambda: None, **garbage))
    monkeypatch.setattr(app_module, "PAUSE_SECONDS", 3600.0)
    async with running(make_app(poll_seconds=0.01)) as (app, pilot):
        monkeypatch.setattr(app, "look_at_store", lambda: polls.append(1))
        while len(polls) < 5:
            await pilot.pause()
        assert not collected
        monkeypatch.setattr(app_module, "PAUSE_SECONDS", 0.0)
        while not collected:
            await pilot.pause()


@pytest.mark.parametrize(
    ("between_frames", "keys", "wanted"),
    [
        (math.inf, "abcde", ["held", "a", "b", "c", "d", "e", "drawn"]),
        # A question is drawn before a key can answer it.
        (math.inf, "abqyyyy", ["held", "a", "b", "q", "drawn", "visible"]),
        # During a key that takes long, a frame, and no more.
        (1.0, "asbc", ["held", "a", "s", "drawn", "held", "b", "c", "drawn"]),
    ],
)
async def test_the_screen_is_drawn_seldom_amid_keys(between_frames, keys, wanted, monkeypatch):
    log = []

    class Heard(App):
        async def on_event(self, event):
            if isinstance(event, Key) and not event.is_forwarded:
                self.keys.put(event)
            else:
                await super().on_event(event)

        async def on_key(self, event):
            log.append(event.key)
            async with asyncio.timeout(20):
                while event.key == "s" and log.count("held") < 2:
                    await asyncio.sleep(0.01)
            if event.key == "q":
                self.push_screen(Confirm("Start it?"))

        def on_key_handled(self, event):
            event.arrived.set()

        @contextmanager
        def batch_update(self):
            log.append("held")
            with super().batch_update():
                yield
            log.append("drawn")

    app = Heard()
    app.keys = keys_module.Keys(app, super(Heard, app).on_event)
    async with app.run_test() as pilot:
        log.clear()
        monkeypatch.setattr(keys_module, "_FRAME_SECONDS", -1.0)
        monkeypatch.setattr(keys_module, "_FRAMES_SECONDS", between_frames)
        monkeypatch.setattr(keys_module, "_PASS_SECONDS", 20.0)
        monkeypatch.setattr(Confirm, "_accept_keys", lambda _: log.append("visible"))
        await burst(pilot, keys)
        assert log == wanted


async def test_what_has_not_changed_is_not_read_or_laid_out_again(make_app, ended, monkeypatch):
    """Of a page that a dialog or another place has covered; what was written is read."""
    async with running(make_app(poll_seconds=3600.0), (120, 40), "R", "n") as (app, pilot):
        await press(pilot, "escape")
        done, page, read = [], app.screen, app.session.store.read
        monkeypatch.setattr(app.session.store, "read", lambda work: done.append(work) or read(work))
        page.screen_layout_refresh_signal.subscribe(page, done.append)
        await press(pilot, "question_mark")
        assert not done
        await press(pilot, "escape", "H", "R")
        assert not [each for each in done if each is not page]
        await press(pilot, "question_mark")
        ended.set_note(3, "w")
        await looked(pilot)
        await press(pilot, "escape")
        assert page.record["note"] == "w"
        await press(pilot, "enter", "n", "x")
        await pilot.resize_terminal(80, 24)
        await press(pilot, "enter", "escape")
        assert app.screen is page
        assert page.record["note"] == "x"
        assert page.has_class("-narrow")


# What a terminal sends


def start(hear):
    terminal, keyboard = os.pipe()
    driver = TerminalDriver(App())
    driver.fileno, driver.process_message = terminal, hear
    thread = Thread(target=driver._run_input_thread, daemon=True)
    thread.start()
    return driver, thread, os.fdopen(terminal), os.fdopen(keyboard, "wb", 0)


async def test_escape_is_a_key_of_its_own_also_where_another_follows_it_at_once():
    """An arrow is one key, and so is Alt with a letter that edits a line. What is no UTF-8, which
    would end Textual's reading, is left out."""
    sent = SimpleQueue()
    driver, thread, terminal, keyboard = start(sent.put)
    with terminal, keyboard:
        keyboard.write(b"\x1b:\x1b2\x1b\x1b[A\xff\x1bf\xe4\xc3\xa4\x1b")
        found = [sent.get(timeout=30).key for _ in range(9)]
        assert found[:7] == ["escape", "colon", "escape", "2", "escape", "up", "ctrl+right"]
        assert found[7:] == ["ä", "escape"]
        keyboard.close()
        thread.join(30)
        assert (thread.is_alive(), driver.fileno) == (False, terminal.fileno())
    assert not driver.exit_event.is_set()  # else Textual leaves the mouse switched on


async def test_it_ends_amid_a_long_paste():
    driver, thread, terminal, keyboard = start(lambda _: driver.exit_event.wait())
    with terminal, keyboard:
        while select([], [keyboard], [], 1)[1]:  # until nothing is read any more
            keyboard.write(b"a" * 512)
        driver.exit_event.set()
        thread.join(30)
        assert not thread.is_alive()
