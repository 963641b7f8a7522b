"""The runs of a store, and what a run has besides timings: notes, tags, curves, results."""

from __future__ import annotations

import getpass
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
import zstandard

from diode_engine.documents import Limits, Malformed, decompressed, parse_json
from diode_engine.errors import NoSuchRunError, StoreError
from diode_engine.store import bulk, schema
from diode_engine.store.runs import ENDED, Process, Run, RunState
from diode_engine.store.session import OpenStore

Curves = dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]

_MAX_TAG = 50
# Of a run's result: a report on the shipped timings has 10 MiB, and ten objects for each problem.
_RESULT = Limits(bytes=256 << 20, containers=1 << 22, values=1 << 25)
# Fields of a Run that are columns, and those that are moments.
_PLAIN = ("id", "kind", "message", "directory", "log", "resumes", "note", "user")
_MOMENTS = ("started", "heartbeat", "finished", "cancel_asked")
_ADD_POINT = (
    f"{bulk.insert_statement(schema.curves)} "
    "ON CONFLICT (run, series, step) DO UPDATE SET value = excluded.value"
)
_SET_RESULT = (
    f"{bulk.insert_statement(schema.results)} "
    "ON CONFLICT (run) DO UPDATE SET document = excluded.document"
)
_TAG = re.compile(rf"\w[\w.+/-]{{0,{_MAX_TAG - 1}}}")


class RunTable(OpenStore):
    """The runs in a store."""

    def start_run(
        self,
        kind: str,
        spec: Mapping[str, Any],
        *,
        process: Process | None = None,
        command: Sequence[str] | None = None,
        directory: str | None = None,
    ) -> int:
        """Adds a run in state running, and returns its number. `spec` is what the run was asked
        for; `Run` describes the other arguments. Raises StoreError where `spec` cannot be JSON."""
        facts = _process(process) | _command(command, directory)
        with self.writes() as connection:
            return self._start(connection, kind, spec, RunState.RUNNING, **facts)

    def queue_run(
        self,
        kind: str,
        spec: Mapping[str, Any],
        *,
        command: Sequence[str],
        directory: str,
        logs: Path,
        resumes: int | None = None,
    ) -> Run:
        """Adds a run in state queued, and returns it. The caller then starts its process, which
        calls `begin_run`. The run's log is a file of its own in the folder `logs`."""
        facts = _command(command, directory)
        with self.writes() as connection:
            run = self._start(connection, kind, spec, RunState.QUEUED, resumes=resumes, **facts)
            self._update(connection, run, {"log": str(logs / f"run-{run}.log")})
            return self._one(connection, run)

    def launched_run(self, run: int, process: Process) -> None:
        """Writes which process was started for a queued run; nothing if the run has begun
        already."""
        with self.writes() as connection:
            update = sa.update(schema.runs).values(heartbeat=time.time(), **_process(process))
            connection.execute(update.where(*_is_queued(run)))

    def begin_run(self, run: int, spec: Mapping[str, Any], *, process: Process) -> bool:
        """Changes a queued run to a running one. Returns False where it is not queued any more, as
        when it was cancelled."""
        values: dict[str, Any] = {
            "state": str(RunState.RUNNING),
            "spec": as_json(spec, "A run's spec"),
            "heartbeat": time.time(),
            **_process(process),
        }
        with self.writes() as connection:
            update = sa.update(schema.runs).where(*_is_queued(run)).values(**values)
            return connection.execute(update).rowcount == 1

    def ask_to_cancel(self, run: int) -> None:
        """Asks the run to stop: from then on `beat` returns True. A run that has ended is not
        changed."""
        with self.writes() as connection:
            update = sa.update(schema.runs).where(
                schema.runs.c.id == run,
                schema.runs.c.state.not_in(map(str, ENDED)),
                schema.runs.c.cancel_asked.is_(None),
            )
            connection.execute(update.values(cancel_asked=time.time()))

    def beat(self, run: int) -> bool:
        """Writes the heartbeat; True where somebody has asked the run to stop."""
        with self.writes() as connection:
            self._update(connection, run, {"heartbeat": time.time()})
            asked = sa.select(schema.runs.c.cancel_asked).where(schema.runs.c.id == run)
            return connection.scalar(asked) is not None

    def update_run(self, run: int, *, progress: Mapping[str, Any]) -> None:
        """Writes the progress and the heartbeat."""
        values = {"heartbeat": time.time(), "progress": as_json(progress, "A run's progress")}
        with self.writes() as connection:
            self._update(connection, run, values)

    def finish_run(
        self, run: int, state: RunState | str, message: str | None = None, *,
        progress: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Ends a run as done, failed or cancelled; writes the message and the progress, where they
        are given."""
        if state not in ENDED:
            raise StoreError(f"A run ends as {', '.join(ENDED)}; {state!s} is none of these.")
        now = time.time()
        values: dict[str, Any] = {"state": str(state), "heartbeat": now, "finished": now}
        if progress is not None:
            values["progress"] = as_json(progress, "A run's progress")
        if message is not None:
            values["message"] = message
        with self.writes() as connection:
            self._update(connection, run, values)

    def runs(self) -> list[Run]:
        """All runs, the oldest first."""
        with self.reads() as connection:
            return read_runs(connection, sa.select(schema.runs).order_by(schema.runs.c.id))

    def run(self, run: int) -> Run:
        """The run of this number. Raises NoSuchRunError where there is none."""
        with self.reads() as connection:
            return self._one(connection, run)

    def set_note(self, run: int, note: str | None) -> None:
        """Writes a person's note on a run in place of the earlier one; None removes it."""
        with self.writes() as connection:
            self._update(connection, run, {"note": note or None})

    def tag(self, run: int, *tags: str) -> None:
        """Adds tags to a run. Raises StoreError, and adds none, where one is not a word of up to
        50 letters, digits and the characters ``_ . + / -``."""
        for tag in tags:
            if not _TAG.fullmatch(tag):
                raise StoreError(
                    f"{tag!r} is no tag; a tag is one word of up to {_MAX_TAG} letters, digits "
                    "and the characters _ . + / - and begins with a letter or digit."
                )
        with self.writes() as connection:
            self._one(connection, run)
            insert = f"{bulk.insert_statement(schema.tags)} ON CONFLICT DO NOTHING"
            bulk.execute_many(connection, insert, [(run, tag) for tag in tags])

    def untag(self, run: int, *tags: str) -> None:
        """Removes tags from a run; tags that it does not have are ignored."""
        with self.writes() as connection:
            self._one(connection, run)
            t = schema.tags.c
            connection.execute(sa.delete(schema.tags).where(t.run == run, t.tag.in_(tags)))

    def add_points(self, run: int, series: str, points: Iterable[tuple[float, float]]) -> None:
        """Adds (step, value)s to a curve of a run, such as a loss by epochs, or a GPU's clock by
        seconds. A step that the curve has already gets the new value. NaN is allowed."""
        # -0.0 becomes 0.0, as in SQLite.
        rows = [(run, series, float(step), float(value) + 0.0) for step, value in points]
        with self.writes() as connection:
            self._one(connection, run)
            bulk.execute_many(connection, _ADD_POINT, rows)

    def curves(self, run: int, *, after: Mapping[str, float] | None = None) -> Curves:
        """The curves of a run by the names of their series: (steps [n], values [n]), in the order
        of steps, NaN where a value is not known. `after` has, for some series, the last step that
        the caller knows: of these series only later steps are returned."""
        c = schema.curves.c
        query = sa.select(c.series, c.step, c.value).where(c.run == run)
        if after:
            behind = [sa.and_(c.series == name, c.step > step) for name, step in after.items()]
            query = query.where(sa.or_(c.series.not_in(after), *behind))
        found: dict[str, list[tuple[float, float]]] = {}
        with self.reads() as connection:
            self._one(connection, run)
            for name, step, value in connection.execute(query.order_by(c.series, c.step)):
                found.setdefault(name, []).append((step, value))
        columns = {name: np.array(rows, dtype=np.float64) for name, rows in found.items()}
        return {name: (rows[:, 0], rows[:, 1]) for name, rows in columns.items()}

    def set_result(self, run: int, document: Mapping[str, Any]) -> None:
        """Writes the result of a run (a validation's report, a training's metrics) in place of the
        earlier one. Raises StoreError where it is not valid JSON; NaN is not."""
        text = as_json(document, "A run's result").encode()
        packed = zstandard.ZstdCompressor(level=9, write_checksum=True).compress(text)
        with self.writes() as connection:
            self._one(connection, run)
            bulk.execute_many(connection, _SET_RESULT, [(run, packed)])

    def result(self, run: int) -> dict[str, Any] | None:
        """The result of a run; None where it has none."""
        query = sa.select(schema.results.c.document).where(schema.results.c.run == run)
        with self.reads() as connection:
            self._one(connection, run)
            packed = connection.scalar(query)
        if packed is None:
            return None
        try:
            document: dict[str, Any] = parse_json(decompressed(packed, _RESULT), _RESULT)
        except Malformed as error:
            raise StoreError(
                f"The result of run {run} in {self.location} is damaged; restore a backup. {error}"
            ) from error
        return document

    def _start(
        self,
        connection: sa.Connection,
        kind: str,
        spec: Mapping[str, Any],
        state: RunState,
        **facts: Any,
    ) -> int:
        now = time.time()
        done = connection.execute(
            sa.insert(schema.runs).values(
                kind=kind,
                spec=as_json(spec, "A run's spec"),
                state=str(state),
                started=now,
                heartbeat=now,
                user=_user(),
                **facts,
            )
        )
        assert done.inserted_primary_key is not None
        return int(done.inserted_primary_key[0])

    def _update(self, connection: sa.Connection, run: int, values: Mapping[str, Any]) -> None:
        update = sa.update(schema.runs).where(schema.runs.c.id == run).values(**values)
        if connection.execute(update).rowcount != 1:
            raise self._no_run(run)

    def _no_run(self, run: int) -> NoSuchRunError:
        return NoSuchRunError(
            f"The store {self.location} has no run {run}; `diode-engine runs list` shows its runs."
        )

    def _one(self, connection: sa.Connection, run: int) -> Run:
        found = read_runs(connection, sa.select(schema.runs).where(schema.runs.c.id == run))
        if not found:
            raise self._no_run(run)
        return found[0]


def read_runs(connection: sa.Connection, query: sa.Select[Any]) -> list[Run]:
    """The runs that a query of the table `runs` finds, in its order."""
    rows = connection.execute(query).all()
    tags: dict[int, list[str]] = {row.id: [] for row in rows}
    t = schema.tags.c
    found = t.run.in_(query.with_only_columns(schema.runs.c.id))
    for run, tag in connection.execute(sa.select(t.run, t.tag).where(found).order_by(t.tag)):
        tags[run].append(tag)
    return [run_of(row, tags[row.id]) for row in rows]


def run_of(row: Any, tags: Sequence[str]) -> Run:
    """A row of `runs` as a record."""
    process = None
    if row.pid is not None:
        process = Process(row.host, row.machine, row.pid, row.pid_started)
    values: dict[str, Any] = {name: getattr(row, name) for name in _PLAIN}
    values |= {name: _moment(getattr(row, name)) for name in _MOMENTS}
    return Run(
        **values,
        spec=_object(row.spec),
        state=RunState(row.state),
        progress=None if row.progress is None else _object(row.progress),
        key=None if (row.key or "").startswith(schema.UNFINISHED) else row.key,
        process=process,
        command=None if row.command is None else tuple(json.loads(row.command)),
        tags=tuple(tags),
    )


def _user() -> str | None:
    """The name of this process's user; None where the system knows none, as in a container that
    runs under the number of a user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the last two before Python 3.13
        return None


def _process(process: Process | None) -> dict[str, Any]:
    """The columns of a run's process."""
    if process is None:
        return {}
    return {
        "host": process.host,
        "machine": process.machine,
        "pid": process.pid,
        "pid_started": process.started,
    }


def _command(command: Sequence[str] | None, directory: str | None) -> dict[str, Any]:
    """The columns of a run's command."""
    words = None if command is None else json.dumps(list(command))
    return {"command": words, "directory": directory}


def _is_queued(run: int) -> tuple[sa.ColumnElement[bool], ...]:
    return schema.runs.c.id == run, schema.runs.c.state == str(RunState.QUEUED)


def as_json(value: Mapping[str, Any], what: str) -> str:
    """The value as JSON. Raises StoreError, with a sentence that begins with `what`, where that is
    not possible."""
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be written as JSON: {error}.") from error


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _moment(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{seconds} is no moment") from error
