"""Waiting for a dashboard without sleeping, and reading its screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rich.cells import cell_len
from textual._context import visible_screen_stack
from textual.app import App
from textual.events import Key
from textual.keys import _character_to_key, key_to_character
from textual.pilot import Pilot
from textual.widgets import Input

from diode_app.app import DiodeApp
from diode_app.data.store_access import Condition
from diode_app.widgets.modals import Confirm, Working


async def settled(pilot: Pilot[None], seconds: float = 30) -> None:
    """Waits until no worker works and no message waits. Workers that ask a person something are not
    waited for."""
    app = pilot.app
    end = time.monotonic() + seconds
    before: list[str] = []
    while True:
        await pilot.pause()
        working: list[Any] = [worker for worker in app.workers if not worker.is_finished]
        if app.screen.is_modal and not isinstance(app.screen, Working):
            working = [worker for worker in working if worker.group not in ("acting", "working")]
        if isinstance(app, DiodeApp) and app.keys.busy:
            working.append("the keys")
        if not working:
            now = lines_of(app)
            if now == before:
                return
            before = now
            shown = asyncio.Event()  # set after the work that widgets do when they are idle
            app.screen.call_after_refresh(shown.set)
            await asyncio.wait_for(shown.wait(), seconds)
        assert time.monotonic() < end, working


@asynccontextmanager
async def running(
    app: App[Any], size: tuple[int, int] = (80, 24), *keys: str, notifications: bool = False
) -> AsyncIterator[tuple[Any, Pilot[None]]]:
    """The app in a terminal of this size, when the result of a dashboard's first look at the store
    is shown and these keys were pressed, one after the other."""
    async with app.run_test(size=size, notifications=notifications) as pilot:
        await settled(pilot)
        if isinstance(app, DiodeApp):
            assert app.session.store.last.condition is not Condition.OPENING
        await press(pilot, *keys)
        yield app, pilot


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Presses the keys, each when all that the one before it caused is done."""
    for key in keys:
        _send(pilot.app, key)
        await settled(pilot)


async def enter(pilot: Pilot[None], words: str) -> None:
    """Gives the line of the screen that is open this text, and presses Enter."""
    pilot.app.screen.query_one(Input).value = words
    await press(pilot, "enter")


async def put(pilot: Pilot[None], field: Any, value: str) -> None:
    """Gives a field this value, and waits until all that this caused is done."""
    field.value = value
    await settled(pilot)


async def looked(pilot: Pilot[None]) -> None:
    """Looks at the store once more, and waits until the result is shown."""
    app = pilot.app
    assert isinstance(app, DiodeApp)
    app.look_at_store()
    await settled(pilot)


async def until_shown(pilot: Pilot[None], words: str) -> None:
    """Waits until these words are on the screen, whatever is at work."""
    for _ in range(1000):
        await pilot.pause(0.01)
        if words in text_of(pilot.app):
            return
    raise AssertionError(text_of(pilot.app))


def text_of(app: App[Any]) -> str:
    """What is on the screen, as if it were one line."""
    return " ".join(" ".join(lines_of(app)).split())


def lines_of(app: App[Any]) -> list[str]:
    """The lines of the screen, with their blanks at the end. Textual has no public way to them."""
    visible_screen_stack.set(app._background_screens)  # what is below a dialog
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip) for strip in strips]


def toasts(app: DiodeApp) -> list[str]:
    """The notifications that it has shown."""
    return [notification.message for notification in app._notifications]


async def burst(pilot: Pilot[None], *words: str) -> None:
    """Sends keys without a moment between them, as over a slow connection: names of keys, or texts
    of several characters (`"/bmm"`). Waits until all that they caused is done."""
    for word in words:
        for key in [word] if word in _NAMED else word:
            _send(pilot.app, key)
    await settled(pilot)


def _send(app: App[Any], key: str) -> None:
    """Sends a key, by its name, or a character, and waits for nothing."""
    name = key if len(key) > 1 else _character_to_key(key)
    app.post_message(Key(name, key_to_character(key)).set_sender(app))


_NAMED = {"enter", "escape", "tab", "space", "down", "up", "backspace"}


async def click_on(pilot: Pilot[None], words: str) -> None:
    """Clicks in the middle of these words, where they are first on the screen, and waits until all
    that this caused is done."""
    await settled(pilot)
    for y, line in enumerate(lines_of(pilot.app)):
        line = line.replace("\xa0", " ")
        if (at := line.find(words)) >= 0:
            x = cell_len(line[:at]) + cell_len(words) // 2
            assert await pilot.click(offset=(x, y))
            await settled(pilot)
            return
    raise AssertionError(f"{words!r} is not on the screen: {text_of(pilot.app)}")


async def say_yes(pilot: Pilot[None]) -> None:
    """Answers the question that is asked."""
    await settled(pilot)
    assert isinstance(pilot.app.screen, Confirm)
    await pilot.press("y")
