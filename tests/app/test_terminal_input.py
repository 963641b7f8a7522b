"""What a terminal sends, read as keys."""

from __future__ import annotations

import pytest
from textual import _parser
from textual.events import Key

from diode_app.terminal_input import TerminalInput


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_parser, "get_time", clock)
    return clock


def keys(*parts: str, clock: Clock, between: float = 0.0) -> list[str]:
    """The keys of what comes in these parts, with so many seconds between them."""
    parser, found = TerminalInput(), []
    for part in parts:
        found += parser.feed(part)
        clock.now += between
    clock.now += 1.0
    found += parser.tick()
    assert all(isinstance(key, Key) for key in found)
    return [key.key for key in found]


@pytest.mark.parametrize(
    ("typed", "name"),
    [("/", "slash"), ("d", "d"), ("D", "D"), (":", "colon"), ("1", "1"), ("\r", "enter")],
)
def test_escape_and_the_next_key_are_two(clock: Clock, typed: str, name: str) -> None:
    assert keys(f"\x1b{typed}", clock=clock) == ["escape", name]  # as on a slow line
    assert keys("\x1b", typed, clock=clock) == ["escape", name]
    # after the time that Textual waits, before it has looked at the clock
    assert keys("\x1b", typed, clock=clock, between=0.5) == ["escape", name]


def test_sequences_stay_whole(clock: Clock) -> None:
    assert keys("\x1b[A", clock=clock) == ["up"]
    assert keys("\x1b", "[A", clock=clock) == ["up"]
    assert keys("\x1b[", "A", clock=clock) == ["up"]
    assert keys("\x1bOP", clock=clock) == ["f1"]
    assert keys("\x1b", clock=clock) == ["escape"]
    assert keys("\x1b\x1b", clock=clock) == ["escape", "escape"]
    assert keys("\x1b\x1b[B", "/x", clock=clock) == ["escape", "down", "slash", "x"]
