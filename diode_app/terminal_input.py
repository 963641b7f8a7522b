"""Escape is a key of its own, also where another one follows it at once.

A terminal sends Alt and a key as Escape and the key. So Textual waits for what follows Escape; but
it looks at the clock only after it has read on, up to 0.1 s later, and drops an Escape before
punctuation. No key of the dashboard has Alt: what follows Escape is a sequence of the terminal's,
or the next key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from textual import _xterm_parser
from textual._xterm_parser import XTermParser
from textual.message import Message

_ESCAPE = "\x1b"
_KEY = "[27u"  # with Escape before it: the key Escape in kitty's protocol, which needs no waiting
_BEGINS = "[]OP_"  # a sequence, after Escape: CSI, OSC, SS3, DCS, APC
_ALONE = re.compile(f"{_ESCAPE}(?=[^{_ESCAPE}{re.escape(_BEGINS)}])")


class TerminalInput(XTermParser):
    """Textual's reader of what a terminal sends, with Escape as a key of its own."""

    _ended_with_escape = False

    def feed(self, data: str) -> Iterable[Message]:
        yield from self.tick()  # an Escape that nothing has followed in time
        waiting = self._ended_with_escape and self._timeout_time is not None
        self._ended_with_escape = data.endswith(_ESCAPE)
        data = _ALONE.sub(_ESCAPE + _KEY, data)
        if waiting and data and data[0] not in _ESCAPE + _BEGINS:
            data = _KEY + data
        yield from super().feed(data)


def install() -> None:
    """Has all drivers that are imported later read with TerminalInput."""
    _xterm_parser.XTermParser = TerminalInput  # type: ignore[misc]
