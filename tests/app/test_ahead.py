"""Screens that are made ahead, while no key is pressed."""

from __future__ import annotations

import asyncio

import pytest

from diode_app import app as app_module
from diode_app.screens.data import DataScreen
from tests.app.trained import make_training
from tests.app.waiting import press, running, settled, text_of
from tests.training.conftest import make_timings


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
        preloading = [worker for worker in app.workers if worker.group == "preloading"]
        while not preloading:
            await pilot.pause()
            preloading = [worker for worker in app.workers if worker.group == "preloading"]
        for _ in range(50):
            await asyncio.sleep(0)
            await pilot.pause()
        with pytest.raises(KeyError):
            app.get_screen_stack("ahead")
        monkeypatch.setattr(app_module, "QUIET_SECONDS", 0.0)
        await settled(pilot)
        assert len(app.get_screen_stack("ahead")) == 4
