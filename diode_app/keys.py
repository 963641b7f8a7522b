"""Handles keys one after the other: each is handled completely before the next.

Textual sends a key to the widget that has the focus, and the key bubbles up to the app. All keys of
one burst would go to that widget, before the first of them has moved the focus or opened a screen.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from math import inf
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import ScreenError
from textual.message import Message
from textual.screen import ModalScreen

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode
    from textual.screen import Screen
    from textual.worker import Worker

    # The screen, and the workers that will ask something.
    _KeyState = tuple[Screen[object] | None, frozenset[Worker[Any]]]

Typed = events.Key | events.Paste

ASKING = "acting"  # the group of workers that come to ask a person something
# Textual's workers that look for the commands of the palette, and the keys that choose one of them.
_GATHERING = "--textual-command-palette-gather-commands"
_CHOOSING = frozenset({"enter", "down", "up", "pagedown", "pageup"})
_LEAVING = frozenset({"go", "back"})  # actions
_PASS_SECONDS = 0.5  # at most, for the messages of a key
_ASK_SECONDS = 10.0  # at most, from a key to the dialog that it opens, on a machine that is busy
_ROWS_SECONDS = 3.0  # at most, from a key to the rows that it asks for
_NEXT_SECONDS = 0.1  # at most, from the answer to a dialog to the next one
_LOOK_SECONDS = 0.005
# While more keys wait, the screen is held back for the first time, and then drawn for the second
# one: a frame takes as much processor time as several keys.
_FRAMES_SECONDS, _FRAME_SECONDS = 0.5, 0.04
# Textual types a ^ for an Escape that it read at once with the keys behind it.
_CARET, _AT_ONCE_SECONDS = "circumflex_accent", 0.001


class KeyHandled(Message):
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
    - the rows that it asked for are in the table (after three seconds at the latest), unless it
      leaves the screen: for another place, or back.
    """

    def __init__(self, app: App[None], deliver: Callable[[Typed], Awaitable[None]]) -> None:
        self._app = app
        self._deliver = deliver
        self._waiting: deque[Typed] = deque()
        self._task: asyncio.Task[None] | None = None
        self._last = time.monotonic()
        self.held: ExitStack | None = None  # while it is open, the screen is not drawn
        self._turned = 0.0  # when the screen began, or ceased, to be held back

    @property
    def busy(self) -> bool:
        """Whether a key waits, or is being handled."""
        return self._task is not None

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last key came, or since the start."""
        return time.monotonic() - self._last

    def put(self, event: Typed) -> None:
        """Handle the key after those before it."""
        self._last = time.monotonic()
        self._waiting.extend(_split(event))
        if self._task is None:
            self._task = asyncio.create_task(self._deliver_waiting())

    async def _deliver_waiting(self) -> None:
        try:
            while self._waiting:
                self._draw_seldom()
                await self._wait_until(self._screen_is_made, inf)
                await self._wait_until(lambda: not self._waits_for_rows(), _ROWS_SECONDS)
                if _chooses(self._waiting[0]):
                    await self._wait_until(lambda: not self._is_working(_GATHERING), _ASK_SECONDS)
                before = self._key_state()
                await self._deliver(await self._take_next())
                await self._finish_key(before)
                if not self._waiting:  # what the last one leads to is drawn, not what it leaves
                    await self._wait_until(self._shows_result, _FRAMES_SECONDS)
        except Exception as error:  # noqa: BLE001  # Textual handles it, as of any message
            self._app.call_later(_raise, error)
        finally:
            self.draw()
            self._task = None

    def _draw_seldom(self) -> None:
        """Hold the screen's updates back while more keys wait, but for a frame now and then."""
        since = time.monotonic() - self._turned
        if getattr(self._screen, "is_question", False) or since > _FRAMES_SECONDS:
            self.draw()
        elif not self.held and len(self._waiting) > 1 and since > _FRAME_SECONDS:
            self._turned = time.monotonic()  # the frame itself may have taken long
            self.held = ExitStack()
            self.held.enter_context(self._app.batch_update())

    def draw(self) -> None:
        """Hold nothing back any more. A dialog whose keys count once it is visible calls this."""
        self._turned = time.monotonic()
        if self.held is not None:
            self.held.close()
            self.held = None
            with suppress(ScreenError):
                self._app.screen.refresh()

    async def _take_next(self) -> Typed:
        """Return the next key; Escape in the place of a ^ with which another key was read."""
        event = self._waiting[0]
        if getattr(event, "key", "") == _CARET:
            await self._wait_until(lambda: len(self._waiting) > 1, 2 * _LOOK_SECONDS)
            following = [each.time - event.time for each in list(self._waiting)[1:2]]
            if following and following[0] < _AT_ONCE_SECONDS:
                self._waiting[0] = events.Key("escape", "\x1b")
        return self._waiting.popleft()

    def _screen_is_made(self) -> bool:
        return self._screen is not None and getattr(self._screen, "is_made", True)

    def _shows_result(self) -> bool:
        return bool(self._waiting) or (self._screen_is_made() and not self._waits_for_rows())

    @property
    def _screen(self) -> Screen[object] | None:
        try:
            return self._app.screen
        except ScreenError:
            return None

    async def _finish_key(self, before: _KeyState) -> None:
        await self._wait_for_messages()
        screen, asking = self._key_state()
        if asking - before[1]:
            await self._wait_for_dialog(_ASK_SECONDS)
        elif asking and screen is not before[0]:
            await self._wait_for_dialog(_NEXT_SECONDS)

    async def _wait_for_dialog(self, seconds: float) -> None:
        """Wait until the workers that ask have opened a dialog, or are done."""
        screen = self._app.screen
        if isinstance(screen, ModalScreen):
            return
        await self._wait_until(
            lambda: self._app.screen is not screen or not self._is_working(ASKING), seconds
        )
        await self._wait_for_messages()

    def _waits_for_rows(self) -> bool:
        """Return whether the focus is in a table or on a page whose content has not been read yet
        since it was last asked for, and the next key does not leave it."""
        focus = self._focus()
        nodes = () if focus is None else focus.ancestors_with_self
        return any(getattr(node, "is_behind", False) for node in nodes) and not self._leaves()

    def _leaves(self) -> bool:
        key = getattr(self._waiting[0], "key", "") if self._waiting else ""
        active = self._app.screen.active_bindings.get(key)
        return active is not None and active.binding.action.partition("(")[0] in _LEAVING

    async def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not is_so() and time.monotonic() < end:
            self._draw_seldom()
            await asyncio.sleep(_LOOK_SECONDS)

    # Messages

    async def _wait_for_messages(self) -> None:
        """Wait until no message is left between the focus and the app."""
        end = time.monotonic() + _PASS_SECONDS
        while time.monotonic() < end:
            target = self._focus()
            if target is None:
                return
            passed = KeyHandled()
            target.post_message(passed)
            while not passed.arrived.is_set() and time.monotonic() < end:
                self._draw_seldom()
                with suppress(TimeoutError):
                    await asyncio.wait_for(passed.arrived.wait(), 4 * _LOOK_SECONDS)
                if self._focus() is not target:
                    break  # which may be gone, and the message with it
            else:
                nodes = target.ancestors_with_self
                if not any(n.message_queue_size for n in nodes) and self._focus() is target:
                    return

    def _focus(self) -> DOMNode | None:
        return self._screen and (self._app.focused or self._screen)

    # Workers

    def _is_working(self, group: str) -> bool:
        return any(w.group == group and not w.is_finished for w in self._app.workers)

    def _key_state(self) -> _KeyState:
        asking = (w for w in self._app.workers if w.group == ASKING and not w.is_finished)
        return self._screen, frozenset(asking)


async def _raise(error: Exception) -> None:
    raise error


def _split(event: Typed) -> tuple[Typed, ...]:
    """Escape and a key that comes at once after it, which Textual takes for Alt with the key. No
    key of the dashboard uses Alt."""
    if not isinstance(event, events.Key) or not event.key.startswith("alt+"):
        return (event,)
    key = events.Key(event.character or event.key.removeprefix("alt+"), event.character)
    return events.Key("escape", "\x1b"), key


def _chooses(event: Typed) -> bool:
    """Return whether the key chooses among the commands of the palette, if this is open."""
    return isinstance(event, events.Key) and event.key in _CHOOSING
