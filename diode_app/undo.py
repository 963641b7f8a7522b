"""What can be taken back: each thing that was done says how."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_MAX_DONE = 20


@dataclass(frozen=True)
class Done:
    """Something that was done: `what`, as in "Take back what was done: the tags of run 3."; `back`
    undoes it and returns a sentence, or raises DiodeError."""

    what: str
    back: Callable[[], Awaitable[str]]


class Undo:
    """The last things that were done in this dashboard and can be taken back."""

    def __init__(self) -> None:
        self._done: deque[Done] = deque(maxlen=_MAX_DONE)

    def add(self, what: str, back: Callable[[], Awaitable[str]]) -> None:
        self._done.append(Done(what, back))

    def take(self) -> Done | None:
        """The last one, which is not here any more."""
        return self._done.pop() if self._done else None
