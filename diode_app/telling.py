"""Tells a person who looks elsewhere that a run has ended, by a bell or the terminal's own
notification, and which runs are live, in the terminal's title."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from diode_app import text
from diode_app.data.progress import fraction
from diode_app.data.store_access import Look
from diode_app.settings import BELL, NOTIFICATION

if TYPE_CHECKING:
    from diode_engine.runs import Status

# XTerm Control Sequences: OSC 2 sets the title, CSI 22 and 23 keep it and bring it back; OSC 9 is
# the notification of iTerm2, which kitty, WezTerm, Ghostty, Windows Terminal and others show.
KEEP_TITLE, BRING_TITLE_BACK = "\x1b[22;2t", "\x1b[23;2t"


class Telling:
    """Writes to the terminal (by `write`) what has changed since the store was last looked at."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._live: frozenset[int] = frozenset()
        self._title = ""

    def ended(self, look: Look) -> list[int]:
        """The runs that were live before and are not any more."""
        if not look.ready:
            return []
        live = frozenset(status.run.id for status in look.live)
        ended, self._live = sorted(self._live - live), live
        return ended

    def title(self, look: Look, store: str) -> None:
        """Sets the terminal's title to what is live in the store of this name."""
        parts = [part for part in map(fraction, look.live) if part is not None]
        words = ["Diode", store]
        if look.live:
            words[1] = f"{len(look.live)} live"
        if parts:
            words.append(f"{100 * sum(parts) / len(parts):.0f} %")
        title = " · ".join(words)
        if title != self._title:
            self._title = title
            self._write(f"\x1b]2;{_plain(title)}\x07")

    def tell(self, sentence: str, way: str) -> None:
        if way == BELL:
            self._write("\a")
        elif way == NOTIFICATION:
            self._write(f"\x1b]9;{_plain(sentence)}\x07")


def sentence_of(status: Status) -> str:
    """How a run has ended, in one line."""
    run = status.run
    why = (status.why or run.message or "").split("\n")[0]
    says = f"Run {run.id}, {run.kind}: {text.state(str(status.state))}"
    return f"{says} after {text.seconds(status.seconds)}" + (f"; {why}" if why else "")


def _plain(words: str) -> str:
    """The text without control characters."""
    return "".join(c for c in words if c.isprintable())
