"""Reads the keys of a terminal. Escape is always a separate key.

A terminal sends Alt and a key as Escape and the key, and an arrow as Escape and more. Textual takes
an Escape and a key within 0.1 s after it for one key: Escape and 2 are ™, and : comes without the
Escape before it. Here such an Escape is passed on to Textual as a sequence that only Escape has.
"""

from __future__ import annotations

import os
import re
from codecs import getincrementaldecoder
from concurrent.futures import ThreadPoolExecutor
from select import select

from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver

_LOOK = 0.1  # seconds between two looks whether the driver shall end
_AT_ONCE = 1 << 9  # bytes; with longer Escapes they fit in a pipe that has room, 4 KiB
_ESCAPE = b"\x1b[27u"  # in the keyboard protocol of kitty
# Not of a sequence, nor of the keys that edit a line: Alt with f, b, Tab and Backspace.
_ALONE = re.compile(rb"\x1b(?![\[Ofb\t\x7f])")


class TerminalDriver(LinuxDriver):
    """Textual's driver; it reads a pipe, into which this one writes what the terminal sends."""

    def run_input_thread(self) -> None:
        terminal = self.fileno
        self.fileno, written = pipe = os.pipe()
        decode = getincrementaldecoder("utf-8")("ignore").decode  # Textual's reading would end
        try:
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(super().run_input_thread)
                try:
                    while not (self.exit_event.is_set() or reading.done()):
                        if _has_more(terminal, _LOOK) and select([], [written], [], _LOOK)[1]:
                            sent = decode(_read(terminal)).encode()
                            os.write(written, _ALONE.sub(_ESCAPE, sent))
                finally:
                    self.exit_event.set()
            reading.result()
        finally:
            self.exit_event.clear()  # else Textual leaves the terminal's mouse switched on
            self.fileno = terminal
            for end in pipe:
                os.close(end)


def _read(terminal: int) -> bytes:
    """Return what the terminal sends at once. A sequence that has begun is complete. Raises
    EOFError where the terminal is closed."""
    data = b""
    while not data or (data.endswith(b"\x1b") and _has_more(terminal, ESCAPE_DELAY)):
        if not (more := os.read(terminal, _AT_ONCE)):
            raise EOFError("The terminal is closed.")
        data += more
    return data


def _has_more(terminal: int, seconds: float) -> bool:
    return bool(select([terminal], [], [], seconds)[0])
