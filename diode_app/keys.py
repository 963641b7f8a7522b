"""Handles keys one after the other: each is handled completely before the next.

Textual sends a key to the widget that has the focus, and the key bubbles up to the app. All keys of
one burst would go to that widget, before the first of them has moved the focus or opened a screen.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import ScreenError
from textual.message import Message
from textual.screen import ModalScreen

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode
    from textual.message_pump import MessagePump
    from textual.screen import Screen
    from textual.worker import Worker

Typed = events.Key | events.Paste

ASKING = "acting"  # the group of workers that come to ask a person something
# Textual's workers that look for the commands of the palette, and the keys that choose one of them.
_GATHERING = "--textual-command-palette-gather-commands"
_CHOOSING = frozenset({"enter", "down", "up", "pagedown", "pageup"})
_PASS_SECONDS = 0.5  # at most, for the messages of a key
_ASK_SECONDS = 10.0  # at most, from a key to the dialog that it opens, on a machine that is busy
_ROWS_SECONDS = 3.0  # at most, from a key to the rows that it asks for
_NEXT_SECONDS = 0.1  # at most, from the answer to a dialog to the next one
_LOOK_SECONDS = 0.005


class Passed(Message):
    """A message that follows a key from the focus up to the app, after all messages that the key
    has caused. When it arrives, the key is handled."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()


class Keys:
    """The keys that wait to be handled. The next one is delivered when

    - the screen is made;
    - all messages of the key before it are handled, so that the focus is where it moved it;
    - a dialog that the key before it opens is open (after ten seconds at the latest): until then
      letters would be the screen's keys;
    - the rows that it asked for are in the table (after three seconds at the latest).
    """

    def __init__(self, app: App[None], deliver: Callable[[Typed], Awaitable[None]]) -> None:
        self._app = app
        self._deliver = deliver
        self._waiting: deque[Typed] = deque()
        self._task: asyncio.Task[None] | None = None
        self._last = -math.inf

    @property
    def busy(self) -> bool:
        """Whether a key waits, or is being handled."""
        return self._task is not None

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last key came."""
        return time.monotonic() - self._last

    async def put(self, event: Typed) -> None:
        """Handles the key, at once or after those before it."""
        self._last = time.monotonic()
        self._waiting.append(event)
        if self._task is None:
            before = self._now()
            at_once = self._screen_is_made() and not self._rows_are_old()
            at_once = at_once and not (_chooses(event) and self._works(_GATHERING))
            if at_once:
                await self._deliver(self._waiting.popleft())
            self._task = asyncio.create_task(self._go(before if at_once else None))

    async def _go(self, before: _KeyState | None) -> None:
        try:
            if before is not None:
                await self._handled(before)
            while self._waiting:
                while not self._screen_is_made():
                    await asyncio.sleep(_LOOK_SECONDS)
                await self._until(lambda: not self._rows_are_old(), _ROWS_SECONDS)
                if _chooses(self._waiting[0]):
                    await self._until(lambda: not self._works(_GATHERING), _ASK_SECONDS)
                before = self._now()
                await self._deliver(self._waiting.popleft())
                await self._handled(before)
        except Exception as error:  # noqa: BLE001  # as in Textual's own loop of messages
            self._app._handle_exception(error)
        finally:
            self._task = None

    def _screen_is_made(self) -> bool:
        try:
            return bool(getattr(self._app.screen, "is_made", True))
        except ScreenError:
            return False

    async def _handled(self, before: _KeyState) -> None:
        await self._pass()
        now = self._now()
        if now.asking - before.asking:
            await self._asked(_ASK_SECONDS)
        elif now.asking and now.screen is not before.screen:
            await self._asked(_NEXT_SECONDS)

    async def _asked(self, seconds: float) -> None:
        """Waits until the workers that ask have opened a dialog, or are done."""
        screen = self._app.screen
        if isinstance(screen, ModalScreen):
            return
        await self._until(
            lambda: self._app.screen is not screen or not self._works(ASKING), seconds
        )
        await self._pass()

    def _rows_are_old(self) -> bool:
        """Whether the focus is in a table or on a page whose content has not been read yet since it
        was last asked for."""
        focus = self._focus()
        nodes = () if focus is None else focus.ancestors_with_self
        return any(getattr(node, "is_behind", False) for node in nodes)

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not is_so() and time.monotonic() < end:
            await asyncio.sleep(_LOOK_SECONDS)

    # Messages

    async def _pass(self) -> None:
        """Waits until no message is left between the focus and the app."""
        end = time.monotonic() + _PASS_SECONDS
        while time.monotonic() < end:
            target = self._focus()
            if target is None:
                return
            passed = Passed()
            target.post_message(passed)
            while not passed.arrived.is_set() and time.monotonic() < end:
                with suppress(TimeoutError):
                    await asyncio.wait_for(passed.arrived.wait(), 4 * _LOOK_SECONDS)
                if self._focus() is not target:
                    break  # which may be gone, and the message with it
            else:
                if self._is_quiet(target):
                    return

    def _focus(self) -> DOMNode | None:
        try:
            return self._app.focused or self._app.screen
        except ScreenError:
            return None

    def _is_quiet(self, target: MessagePump) -> bool:
        node: MessagePump | None = target
        while node is not None:
            if node.message_queue_size:
                return False
            node = node._parent
        return self._focus() is target

    # Workers

    def _works(self, group: str) -> bool:
        return any(w.group == group and not w.is_finished for w in self._app.workers)

    def _now(self) -> _KeyState:
        try:
            screen: Screen[object] | None = self._app.screen
        except ScreenError:
            screen = None
        asking = (w for w in self._app.workers if w.group == ASKING and not w.is_finished)
        return _KeyState(screen, frozenset(asking))


@dataclass(frozen=True)
class _KeyState:
    """The screen, and the workers that will ask something."""

    screen: Screen[object] | None
    asking: frozenset[Worker[Any]]


def _chooses(event: Typed) -> bool:
    """Whether the key chooses among the commands of the palette, if this is open."""
    return isinstance(event, events.Key) and event.key in _CHOOSING
