"""Notifies a person who looks elsewhere that a run has ended, by a bell or the terminal's own
notification; the terminal's title shows which runs are live."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.notifications import Notification

from diode_app import text
from diode_app.data.run_results import fraction, outcome
from diode_app.data.store_access import Look
from diode_app.settings import BELL, NOTIFICATION

if TYPE_CHECKING:
    from diode_engine.runs import Status

# XTerm Control Sequences: OSC 2 sets the title, CSI 22 and 23 save and restore it; OSC 9 is the
# notification of iTerm2, which kitty, WezTerm, Ghostty, Windows Terminal and others show.
SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"


class LastingNotification(Notification):
    """A notification that always has time left. Where one ends while Textual makes its toast, the
    toast's timer would have a negative delay, and loop for ever (Textual 8.2.8)."""

    @property
    def time_left(self) -> float:
        return max(super().time_left, 0.1)

    @property
    def has_expired(self) -> bool:
        return super().time_left <= 0


class RunNotifier:
    """Writes to the terminal (by `write`) what has changed since the store was last looked at."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._live: frozenset[int] = frozenset()
        self._title = ""

    def find_ended(self, look: Look) -> list[int]:
        """Return the runs that were live before and are not any more."""
        if not look.ready:
            return []
        live = frozenset(status.run.id for status in look.live)
        ended, self._live = sorted(self._live - live), live
        return ended

    def set_title(self, look: Look, store: str) -> None:
        """Set the terminal's title to what is live in the store of this name."""
        parts = [part for part in map(fraction, look.live) if part is not None]
        words = ["Diode", f"{len(look.live)} live" if look.live else store]
        if parts:
            words.append(f"{100 * sum(parts) / len(parts):.0f} %")
        title = " · ".join(words)
        if title != self._title:
            self._title = title
            self._write(f"\x1b]2;{_printable(title)}\x07")

    def notify(self, sentence: str, way: str) -> None:
        """Notify in the `way` that the settings name."""
        if way == BELL:
            self._write("\a")
        elif way == NOTIFICATION:
            self._write(f"\x1b]9;{_printable(sentence)}\x07")


def describe_end(status: Status) -> str:
    """Return how a run has ended, in one line."""
    run = status.run
    why = (status.why or run.message or "").split("\n")[0]
    described = f"Run {run.id}, {run.kind}: {text.state(outcome(status))}"
    return f"{described} after {text.seconds(status.seconds)}" + (f"; {why}" if why else "")


def _printable(words: str) -> str:
    return "".join(c for c in words if c.isprintable())
