"""A run: one collection, import, training or validation, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Run:
    """A row of `runs`. Times are aware, in UTC; `heartbeat` is when the run last wrote."""

    id: int
    kind: str
    spec: Mapping[str, Any]
    state: RunState
    started: datetime
    heartbeat: datetime
    finished: datetime | None
    progress: Mapping[str, Any] | None
    message: str | None
    key: str | None
