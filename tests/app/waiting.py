"""Waiting for a dashboard without sleeping, and reading its screen."""

from __future__ import annotations

import asyncio
import time

from textual.pilot import Pilot

from diode_app.app import DiodeApp
from diode_app.data.source import Condition


async def settled(pilot: Pilot[None], seconds: float = 30) -> None:
    """Until no worker works and no message waits; what asks a person something is left alone."""
    app = pilot.app
    end = time.monotonic() + seconds
    while True:
        await pilot.pause()
        working = [worker for worker in app.workers if not worker.is_finished]
        if app.screen.is_modal:
            working = [worker for worker in working if worker.group not in ("acting", "export")]
        if not working:
            shown = asyncio.Event()  # with what widgets do when they have nothing else to do
            app.screen.call_after_refresh(shown.set)
            await asyncio.wait_for(shown.wait(), seconds)
            await pilot.pause()
            return
        assert time.monotonic() < end, working


async def started(pilot: Pilot[None]) -> None:
    """Until the first look at the store is shown."""
    await settled(pilot)
    app = pilot.app
    assert isinstance(app, DiodeApp)
    assert app.session.source.last.condition is not Condition.OPENING


async def looked(pilot: Pilot[None]) -> None:
    """After another look at the store."""
    app = pilot.app
    assert isinstance(app, DiodeApp)
    app.action_look()
    await settled(pilot)


def text_of(app: DiodeApp) -> str:
    """What is on the screen, as if it were one line."""
    strips = app.screen._compositor.render_strips()
    lines = ("".join(segment.text for segment in strip) for strip in strips)
    return " ".join(" ".join(lines).split())


def toasts(app: DiodeApp) -> list[str]:
    """What it said in passing."""
    return [notification.message for notification in app._notifications]
