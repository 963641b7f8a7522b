"""What can be undone: each change comes with the function that undoes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_MAX_DONE = 20


@dataclass(frozen=True)
class Done:
    """A change: `what` names it, as in "the tags of run 3"; `back` undoes it and returns a
    sentence, or raises DiodeError."""

    what: str
    back: Callable[[], Awaitable[str]]


class Undo:
    """The last changes that were made in this dashboard and can be undone."""

    def __init__(self) -> None:
        self._done: deque[Done] = deque(maxlen=_MAX_DONE)

    def add(self, what: str, back: Callable[[], Awaitable[str]]) -> None:
        self._done.append(Done(what, back))

    def take(self) -> Done | None:
        """Removes the last change and returns it."""
        return self._done.pop() if self._done else None
