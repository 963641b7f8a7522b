"""Progress where stderr is not a terminal: a line now and then, in a file or a run's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.progress import Progress, TaskID

EVERY_SECONDS = 30.0


class PlainProgress(Progress):
    """Draws nothing; prints how far its tasks are every EVERY_SECONDS."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(disable=True)
        self._say = say
        self._said = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._said < EVERY_SECONDS:
            return
        self._said = now
        for task in self.tasks:
            total = "" if task.total is None else f" of {task.total:g}"
            self._say(f"{task.description}: {task.completed:g}{total}")
