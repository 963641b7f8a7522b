"""The end of a run is told, also to one who looks elsewhere."""

from __future__ import annotations

import pytest

from diode_app.data.store_access import Condition, Look
from diode_app.notifications import RunNotifier
from diode_app.settings import Settings
from diode_engine.runs import Status, look
from diode_engine.runs.process import current_process
from tests.app.waiting import looked, running, toasts


@pytest.mark.parametrize(
    ("way", "written"),
    [
        ("bell", "\a"),
        ("notification", "\x1b]9;Run 1, train: ✗ failed after 1 min 23 s; It fails.\x07"),
        ("nothing", None),
    ],
)
async def test_the_end_of_a_run_is_told_once(make_app, store, monkeypatch, way, written):
    run = store.start_run("train", {}, process=current_process())
    app = make_app()
    app.session.settings = Settings(tell=way)
    monkeypatch.setattr(Status, "seconds", property(lambda _: 83.0))
    said: list[str] = []
    monkeypatch.setattr(app._notifier, "_write", said.append)
    async with running(app, (80, 24)) as (_, pilot):
        assert said == ["\x1b]2;Diode · 1 live\x07"]
        await looked(pilot)
        assert len(said) == 1  # nothing has changed
        store.finish_run(run, "failed", "It fails.\nWith a second line.")
        await looked(pilot)
        await looked(pilot)
        assert said[1:] == ["\x1b]2;Diode · diode.db\x07", *([written] if written else [])]
        assert [says for says in toasts(app) if "Run 1, train" in says] == [
            "Run 1, train: ✗ failed after 1 min 23 s; It fails."
        ]


def test_the_title_says_how_far_what_is_live_is(store):
    run = store.start_run("collect", {}, process=current_process())
    store.update_run(run, progress={"timings": 25, "candidates": 100})
    said: list[str] = []
    notifier = RunNotifier(said.append)
    live = Look(Condition.READY, live=(look(store, run),))
    notifier.set_title(live, "a.db")
    notifier.set_title(live, "a.db")
    notifier.set_title(Look(Condition.READY), "a\x1b]9;b\x07.db")  # no sequence of a name's own
    assert said == ["\x1b]2;Diode · 1 live · 25 %\x07", "\x1b]2;Diode · a]9;b.db\x07"]


def test_a_store_that_is_locked_for_a_moment_ends_no_run(store):
    run = store.start_run("train", {}, process=current_process())
    notifier = RunNotifier(lambda _: None)
    live = Look(Condition.READY, live=(look(store, run),))
    assert notifier.find_ended(live) == []
    assert notifier.find_ended(Look(Condition.LOCKED)) == []
    assert notifier.find_ended(live) == []
    assert notifier.find_ended(Look(Condition.READY)) == [run]


async def test_a_notification_that_ends_while_its_toast_is_made_freezes_nothing(make_app):
    app = make_app()
    async with running(app, (80, 24)) as (_, pilot):
        app.notify("It has just ended.")
        await pilot.pause()
        (notification,) = app._notifications
        notification.raised_at -= 60
        assert notification.has_expired
        assert notification.time_left > 0  # Textual's timer never ends with a negative delay
