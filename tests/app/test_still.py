"""Nothing is sent to the terminal while nothing changes, whatever is in front of what."""

import asyncio

from diode_app.widgets.modals import Notice
from diode_engine.store import RunState
from tests.app.waiting import looked, press, running, settled


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
