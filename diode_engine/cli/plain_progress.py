"""Progress where stderr is not a terminal: a line now and then, in a file or a run's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.progress import Progress, TaskID

FIRST_SECONDS = 30.0  # until the first lines; then each wait is twice the one before
MOST_SECONDS = 600.0


class PlainProgress(Progress):
    """Draws nothing; prints, less and less often, how far the tasks are that have gone on since the
    last time."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(disable=True)
        self._say = say
        self._said = time.monotonic()
        self._wait = FIRST_SECONDS
        self._told: dict[TaskID, float] = {}  # what was completed of each when it was printed

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._said < self._wait:
            return
        self._said, self._wait = now, min(2 * self._wait, MOST_SECONDS)
        for task in self.tasks:
            if self._told.get(task.id) == task.completed:
                continue
            self._told[task.id] = task.completed
            total = "" if task.total is None else f" of {task.total:g}"
            self._say(f"{task.description}: {task.completed:g}{total}")
