"""A run: one collection, import, training, validation or other long job, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """The state of a run. CANCELLING and DEAD are not in the store: `diode_engine.runs` derives
    them."""

    QUEUED = "queued"  # its process is being started
    RUNNING = "running"
    CANCELLING = "cancelling"  # it was asked to stop, and has not stopped yet
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"  # it has not ended, and its process is gone

    @property
    def ended(self) -> bool:
        return self in ENDED or self is RunState.DEAD


ENDED = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True)
class Process:
    """A process. Two processes that had the same pid at different times differ in other fields."""

    host: str  # the machine's name
    machine: str  # where the pid is valid: a machine, one boot of it, and a pid namespace
    pid: int
    started: int | None  # in the kernel's clock ticks since that boot; None where it is not known


@dataclass(frozen=True)
class Run:
    """A row of `runs`. Times are time-zone-aware, in UTC."""

    id: int
    kind: str  # collect, train, validate, import, …
    spec: Mapping[str, Any]  # what it was asked for
    state: RunState
    started: datetime
    heartbeat: datetime  # when it last wrote to the store
    finished: datetime | None
    progress: Mapping[str, Any] | None
    message: str | None
    key: str | None  # of the content that was imported; no two runs have the same
    process: Process | None
    command: tuple[str, ...] | None  # what starts it again; None where it was not a command
    directory: str | None  # where the command was started
    log: str | None  # the file that a run without a terminal writes its messages to
    cancel_asked: datetime | None
    resumes: int | None  # the earlier run that it continues
    note: str | None  # what a person wrote about it
    tags: tuple[str, ...]  # in alphabetical order
    user: str | None = None  # the name, on that machine, of the user who started it
