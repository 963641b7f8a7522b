"""A run: one collection, import, training, validation or other long job, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """The state of a run. The store never holds CANCELLING and DEAD: `diode_engine.runs` finds them
    out."""

    QUEUED = "queued"  # its process was started, and has not begun
    RUNNING = "running"
    CANCELLING = "cancelling"  # somebody asked it to stop, and it has not yet
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"  # it did not come to its end, and nobody works on it any more

    @property
    def ended(self) -> bool:
        return self in ENDED or self is RunState.DEAD


ENDED = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True)
class Process:
    """A process, told apart from later ones with the same pid. `machine` names where the pid is
    valid: one boot of one machine, and one of its pid namespaces. `started` is in the kernel's
    clock ticks since that boot; None where the system does not say."""

    host: str
    machine: str
    pid: int
    started: int | None


@dataclass(frozen=True)
class Run:
    """A row of `runs`. Times are aware, in UTC; `heartbeat` is when the run last wrote.

    `command` are the words that start it again in `directory`, with everything that it was
    asked for; None where it was not started as a command. `log` is the file that a run without
    a terminal writes its messages to. `resumes` is the earlier run that it goes on with.
    `note` and `tags`, in their alphabet's order, are what people wrote on it. `user` is the name
    that who started it has on that machine; None where it is not known.
    """

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
    process: Process | None
    command: tuple[str, ...] | None
    directory: str | None
    log: str | None
    cancel_asked: datetime | None
    resumes: int | None
    note: str | None
    tags: tuple[str, ...]
    user: str | None = None
