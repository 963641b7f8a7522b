"""The state of a run, with what its row in the store cannot say: whether it is being cancelled, or
dead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from diode_engine.plain_text import format_duration
from diode_engine.runs.process import current_process, is_alive
from diode_engine.store import Process, Run, RunState, Store
from diode_engine.store.fields import RUNS
from diode_engine.store.query import MAX_ROWS
from diode_engine.store.run_query import runs
from diode_engine.store.runs import ENDED

# A run beats every few seconds (see `job`), and waits up to half a minute for a locked store.
STALE_SECONDS = 90.0
Clock = Callable[[], datetime]


def now() -> datetime:
    """The present time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Status:
    """The state of a run at the time `seen`. `why` is a sentence where the state differs from that
    in the row."""

    run: Run
    state: RunState
    why: str | None
    seen: datetime

    @property
    def seconds(self) -> float:
        """How long the run has worked: until now, or until it ended or last wrote."""
        end = self.run.finished
        if end is None:
            end = self.run.heartbeat if self.state is RunState.DEAD else self.seen
        return max(0.0, (end - self.run.started).total_seconds())

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the run last wrote to the store."""
        return max(0.0, (self.seen - self.run.heartbeat).total_seconds())

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; times are in ISO 8601."""
        run = self.run
        plain = ("message", "directory", "log", "user", "resumes", "note")
        return {
            "id": run.id, "kind": run.kind, "state": str(self.state), "why": self.why,
            "started": run.started.isoformat(), "heartbeat": run.heartbeat.isoformat(),
            "finished": None if run.finished is None else run.finished.isoformat(),
            "seconds": round(self.seconds, 1), "spec": dict(run.spec), "tags": list(run.tags),
            "progress": None if run.progress is None else dict(run.progress),
            "command": None if run.command is None else list(run.command),
            "host": None if run.process is None else run.process.host,
            "pid": None if run.process is None else run.process.pid,
            **{name: getattr(run, name) for name in plain},
        }  # fmt: skip


def look(store: Store, run: int, *, clock: Clock = now) -> Status:
    """The status of a run. Raises StoreError where there is no such run."""
    return _look_at(store, store.run(run), clock)


def look_at_all(store: Store) -> list[Status]:
    """The status of all runs, the oldest first."""
    return find(store, limit=sys.maxsize)[::-1]


def find(
    store: Store, query: str = "", *, before: int | None = None, limit: int = MAX_ROWS,
    clock: Clock = now,
) -> list[Status]:  # fmt: skip
    """A page of the runs that a filter query finds (see `store.run_query.runs`), the last one
    first. For the next page, `before` is the number of this page's last run. Raises QueryError."""
    wanted = RUNS.parse(query).computed.get("state")
    found: list[Status] = []
    while True:
        page = runs(store, query, before=before)
        for run in page:
            status = _look_at(store, run, clock)
            if wanted is None or status.state in wanted:
                found.append(status)
            if len(found) == limit:
                return found
        if len(page) < MAX_ROWS:
            return found
        before = page[-1].id


def _look_at(store: Store, run: Run, clock: Clock) -> Status:
    status = _status_at(run, clock())
    # It may have ended after its row was read and before its process was looked for.
    return _status_at(store.run(run.id), clock()) if status.state is RunState.DEAD else status


def _status_at(run: Run, at: datetime) -> Status:
    if run.state in ENDED:
        return Status(_without_rest(run), run.state, None, at)
    quiet = (at - run.heartbeat).total_seconds()
    alive = None if run.process is None else is_alive(run.process)
    if alive is False:
        begun = "came to its end" if run.state is RunState.RUNNING else "began"
        return Status(run, RunState.DEAD, f"Its process was gone before it {begun}.", at)
    if alive is None and quiet > STALE_SECONDS:
        return Status(run, RunState.DEAD, _describe_loss(run.process, quiet), at)
    if run.cancel_asked is not None:
        return Status(run, RunState.CANCELLING, "It was asked to stop.", at)
    return Status(run, run.state, None, at)


def _without_rest(run: Run) -> Run:
    """An ended run without what it last expected: a fit may end before its last step."""
    if run.progress is None:
        return run
    progress = {name: value for name, value in run.progress.items() if name != "seconds_left"}
    if run.state is RunState.DONE and "fraction" in progress:
        progress["fraction"] = 1.0
    return replace(run, progress=progress)


def _describe_loss(process: Process | None, quiet: float) -> str:
    sentence = f"It has sent no heartbeat for {format_duration(quiet)}"
    if process is None:
        return f"{sentence}."
    here = current_process()
    if process.host == here.host and process.machine.split()[0] != here.machine.split()[0]:
        return f"{sentence}, and {process.host} has been restarted since."
    return f"{sentence}; it ran on {process.host}."
