"""Nothing is sent to the terminal while nothing changes, whatever is in front of what."""

from __future__ import annotations

import asyncio

import pytest

from diode_app.widgets.modals import Notice
from diode_engine.store import RunState
from tests.app.waiting import looked, press, press_each, running, settled


@pytest.mark.parametrize(
    "keys",
    [
        ["R"], ["R", "enter"], ["R", "n"], ["R", "enter", "g"], ["O"], ["S"],
        ["question_mark"], ["R", "enter", "question_mark"],
    ],
)  # fmt: skip
async def test_a_look_at_an_unchanged_store_paints_nothing(make_app, store, monkeypatch, keys):
    store.finish_run(store.start_run("train", {}), RunState.DONE)
    async with running(make_app(), (120, 40)) as (app, pilot):
        await press_each(pilot, *keys)
        await looked(pilot)
        painted = []
        display = app._display

        def show(screen, update):
            painted.append(update)
            display(screen, update)

        monkeypatch.setattr(app, "_display", show)
        for _ in range(4):
            await looked(pilot)
        assert painted == []


async def test_what_is_below_a_dialog_is_new_when_the_dialog_is_gone(make_app, store):
    run = store.start_run("train", {})
    async with running(make_app(), (120, 40), "R") as (app, pilot):
        app.push_screen(Notice("One", "moment"))
        await settled(pilot)
        store.finish_run(run, RunState.FAILED, "No data.")
        await looked(pilot)
        await press(pilot, "escape")
        await asyncio.sleep(0)
        assert "failed" in app.screen.table.page.rows[0].cells["state"]
