"""Escape is a key of its own, also where another one follows it at once.

A terminal sends Alt with a key as Escape and that key. So Textual waits after Escape for what
follows. It looks at the clock only when it reads next, up to 0.1 s later, and it drops an Escape
before punctuation. No key of the dashboard uses Alt: what follows Escape is either a control
sequence of the terminal or the next key.
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
        yield from self.tick()  # sends an Escape after which nothing came in time
        waiting = self._ended_with_escape and self._timeout_time is not None
        self._ended_with_escape = data.endswith(_ESCAPE)
        data = _ALONE.sub(_ESCAPE + _KEY, data)
        if waiting and data and data[0] not in _ESCAPE + _BEGINS:
            data = _KEY + data
        yield from super().feed(data)


def install() -> None:
    """Makes Textual's drivers, which must be imported later, read with TerminalInput."""
    _xterm_parser.XTermParser = TerminalInput  # type: ignore[misc]
