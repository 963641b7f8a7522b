"""`Store`: timings and runs in, timing tables out."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.errors import RecordError, StoreError
from diode_engine.hardware import Environment, Hardware
from diode_engine.problem import Candidate, Failure, Problem
from diode_engine.store import schema
from diode_engine.store.database import open_engine, sentences
from diode_engine.store.runs import ENDED, Process, Run, RunState
from diode_engine.table import FAILURES, TimingTable

_Record = TypeVar("_Record", Problem, Candidate, Environment)
_Ids = npt.NDArray[np.int64]

_KEYS_A_QUERY = 500
_INSERT = (
    "INSERT INTO timings (sweep, candidate, seq, min_us, median_us, spread_us, repeats, failure)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
# Two integers travel as one where they can: a column less is a tenth of the time of a read.
_ROW = np.dtype(
    [
        ("sweep_candidate", np.int64),
        ("min_us", np.float64),
        ("median_us", np.float64),
        ("spread_us", np.float64),
        ("repeats_failure", np.int64),
    ]
)
_LOW = 2**32 - 1  # the lower half of two integers in one
_HARDWARE = tuple(field.name for field in fields(Hardware))


@dataclass(frozen=True)
class Imported:
    """What an import did. `timings` is 0 and `new` False where `run` held it all before."""

    run: int
    new: bool
    timings: int


@dataclass(frozen=True)
class Stats:
    """What a store holds. Counts are of timings unless they say otherwise; `by_dtype` tells
    TF32 from plain float32; `size_bytes` is the file's, without what WAL has not merged."""

    size_bytes: int
    problems: int
    candidates: int
    timings: int
    failures: Mapping[str, int]
    by_op: Mapping[str, int]
    by_dtype: Mapping[str, int]
    by_environment: tuple[tuple[Environment, int], ...]
    by_run: Mapping[int, int]
    runs: tuple[Run, ...]


class Store:
    """Timings in an SQLite file. A context manager; several processes may have it open.

    Every method raises StoreError, with a sentence, where the file cannot be read or written.
    """

    def __init__(self, path: Path, engine: sa.Engine, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._engine = engine
        self._reader = engine.execution_options(reads=True)

    @classmethod
    def open(cls, path: str | PathLike[str], *, read_only: bool = False) -> Self:
        """Opens the store, making or migrating it first unless `read_only`.

        Raises StoreError where the file is missing (read-only), foreign or damaged, and
        SchemaTooNewError where a newer Diode wrote it.
        """
        where = Path(path)
        return cls(where, open_engine(where, read_only=read_only), read_only=read_only)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Runs

    def start_run(
        self,
        kind: str,
        spec: Mapping[str, Any],
        *,
        key: str | None = None,
        process: Process | None = None,
        command: Sequence[str] | None = None,
        directory: str | None = None,
    ) -> int:
        """A new run in state running; its id. `spec` is what it was asked for, as JSON; no two
        runs have the same `key`. For the others see `Run`."""
        facts = _process(process) | _command(command, directory)
        with self._writes() as connection:
            return self._start(connection, kind, spec, RunState.RUNNING, key=key, **facts)

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
        """A new run in state queued, for a process that is about to be started and then calls
        `begin_run`. Its log is a file of its own in the folder `logs`."""
        facts = _command(command, directory)
        with self._writes() as connection:
            run = self._start(connection, kind, spec, RunState.QUEUED, resumes=resumes, **facts)
            self._update(connection, run, {"log": str(logs / f"run-{run}.log")})
            return self._one(connection, run)

    def launched_run(self, run: int, process: Process) -> None:
        """Writes the process that a queued run was started in, unless it has begun by itself."""
        with self._writes() as connection:
            update = sa.update(schema.runs).values(heartbeat=time.time(), **_process(process))
            connection.execute(update.where(*_is_queued(run)))

    def begin_run(self, run: int, spec: Mapping[str, Any], *, process: Process) -> bool:
        """Makes a queued run a running one; False where it is not queued (any more)."""
        values: dict[str, Any] = {
            "state": str(RunState.RUNNING),
            "spec": _json(spec, "A run's spec"),
            "heartbeat": time.time(),
            **_process(process),
        }
        with self._writes() as connection:
            update = sa.update(schema.runs).where(*_is_queued(run)).values(**values)
            return connection.execute(update).rowcount == 1

    def ask_to_cancel(self, run: int) -> None:
        """Leaves word that the run should stop: what `beat` tells it. Of a run that has ended
        nothing changes."""
        with self._writes() as connection:
            update = sa.update(schema.runs).where(
                schema.runs.c.id == run,
                schema.runs.c.state.not_in(map(str, ENDED)),
                schema.runs.c.cancel_asked.is_(None),
            )
            connection.execute(update.values(cancel_asked=time.time()))

    def beat(self, run: int) -> bool:
        """Writes the heartbeat; True where somebody has asked the run to stop."""
        with self._writes() as connection:
            self._update(connection, run, {"heartbeat": time.time()})
            asked = sa.select(schema.runs.c.cancel_asked).where(schema.runs.c.id == run)
            return connection.scalar(asked) is not None

    def update_run(
        self,
        run: int,
        *,
        progress: Mapping[str, Any] | None = None,
        message: str | None = None,
    ) -> None:
        """Writes what is given, and the heartbeat always."""
        values: dict[str, Any] = {"heartbeat": time.time()}
        if progress is not None:
            values["progress"] = _json(progress, "A run's progress")
        if message is not None:
            values["message"] = message
        with self._writes() as connection:
            self._update(connection, run, values)

    def finish_run(self, run: int, state: RunState | str, message: str | None = None) -> None:
        """Ends a run as done, failed or cancelled."""
        if state not in ENDED:
            raise StoreError(f"A run ends as {', '.join(ENDED)}; {state!s} is none of these.")
        now = time.time()
        values: dict[str, Any] = {"state": str(state), "heartbeat": now, "finished": now}
        if message is not None:
            values["message"] = message
        with self._writes() as connection:
            self._update(connection, run, values)

    def runs(self) -> list[Run]:
        """All runs, the oldest first."""
        with self._reads() as connection:
            return self._runs(connection)

    def run(self, run: int) -> Run:
        """Raises StoreError where there is none of this number."""
        with self._reads() as connection:
            return self._one(connection, run)

    # Timings

    def add(self, run: int, table: TimingTable) -> int:
        """Writes all rows in one transaction and returns how many.

        Problems, candidates and environments that are there already are not written again;
        every timing is, also where the run holds one of the same candidate. Raises StoreError,
        and writes nothing, where there is no such run or a row was never timed.
        """
        with self._writes() as connection:
            self._update(connection, run, {"heartbeat": time.time()})
            return self._add(connection, run, table)

    def import_table(self, table: TimingTable, *, key: str, spec: Mapping[str, Any]) -> Imported:
        """Writes a finished run of kind import with these rows, all in one transaction; or
        nothing, where a run has this key."""
        with self._writes() as connection:
            there = connection.scalar(sa.select(schema.runs.c.id).where(schema.runs.c.key == key))
            if there is not None:
                return Imported(there, new=False, timings=0)
            run = self._start(connection, "import", spec, RunState.DONE, key=key)
            return Imported(run, new=True, timings=self._add(connection, run, table))

    def timed_pairs(self, environment: Environment) -> set[tuple[str, str]]:
        """(problem key, candidate key) of all that was timed, or failed, in this very
        environment: what a collection that resumes need not do again."""
        pairs = (
            sa.select(schema.sweeps.c.problem, schema.timings.c.candidate)
            .join_from(schema.timings, schema.sweeps)
            .join(schema.environments)
            .where(schema.environments.c.key == environment.key)
        )
        with self._reads() as connection:
            problems = _keys(connection, schema.problems)
            candidates = _keys(connection, schema.candidates)
            return {(problems[p], candidates[c]) for p, c in connection.execute(pairs)}

    def read(
        self, *, hardware: str | None = None, run: int | None = None, ok_only: bool = False
    ) -> TimingTable:
        """The timings, by problem and then by candidate, over the problems, candidates and
        environments that occur; all in the order in which the store met them first.

        `hardware` keeps those of the GPU of this name, `run` those of one run, `ok_only`
        leaves out failures.
        """
        wanted = sa.select(schema.sweeps.c.id, schema.sweeps.c.problem, schema.sweeps.c.environment)
        if hardware is not None:
            wanted = wanted.join(schema.environments).where(schema.environments.c.name == hardware)
        if run is not None:
            wanted = wanted.where(schema.sweeps.c.run == run)
        t = schema.timings.c
        rows = sa.select(
            t.sweep.bitwise_lshift(32).bitwise_or(t.candidate),
            t.min_us,
            t.median_us,
            t.spread_us,
            t.repeats.bitwise_lshift(32).bitwise_or(sa.func.coalesce(t.failure, 0)),
        ).order_by(t.sweep, t.candidate, t.seq)
        if hardware is not None or run is not None:
            rows = rows.where(t.sweep.in_(wanted.with_only_columns(schema.sweeps.c.id)))
        if ok_only:
            rows = rows.where(t.failure.is_(None))

        with self._reads() as connection:
            found = [tuple(row) for row in connection.execute(wanted.order_by(schema.sweeps.c.id))]
            sweeps = np.array(found, dtype=np.int64).reshape(-1, 3)
            # Straight from the driver: SQLAlchemy's rows would take twice as long.
            cursor: Any = connection.execute(rows).cursor
            data = np.fromiter(cursor, dtype=_ROW)
            position = np.searchsorted(sweeps[:, 0], data["sweep_candidate"] >> 32)
            problem, environment = sweeps[position, 1], sweeps[position, 2]
            candidate = data["sweep_candidate"] & _LOW
            order = (problem << 32) | candidate
            if np.any(order[1:] < order[:-1]):
                by = np.argsort(order, kind="stable")
                data, candidate = data[by], candidate[by]
                problem, environment = problem[by], environment[by]
            problem_ids, problem_index = _compact(problem)
            candidate_ids, candidate_index = _compact(candidate)
            environment_ids, environment_index = _compact(environment)
            return TimingTable(
                tuple(self._records(connection, schema.problems, problem_ids, _problem)),
                tuple(self._records(connection, schema.candidates, candidate_ids, _candidate)),
                tuple(
                    self._records(connection, schema.environments, environment_ids, _environment)
                ),
                problem=problem_index,
                candidate=candidate_index,
                environment=environment_index,
                min_us=np.ascontiguousarray(data["min_us"]),
                median_us=np.ascontiguousarray(data["median_us"]),
                spread_us=np.ascontiguousarray(data["spread_us"]),
                repeats=(data["repeats_failure"] >> 32).astype(np.int32),
                failure=self._failure_codes(connection)[data["repeats_failure"] & _LOW],
            )

    def stats(self) -> Stats:
        t, s, p, e = schema.timings.c, schema.sweeps.c, schema.problems.c, schema.environments.c
        count = sa.func.count().label("n")
        groups = sa.select(t.sweep, t.failure, count).group_by(t.sweep, t.failure).subquery()
        query = (
            sa.select(
                p.op, p.dtype, p.allow_tf32, e.id, s.run, schema.failures.c.reason, groups.c.n
            )
            .select_from(groups)
            .join(schema.sweeps, groups.c.sweep == s.id)
            .join(schema.problems, s.problem == p.id)
            .join(schema.environments, s.environment == e.id)
            .outerjoin(schema.failures, groups.c.failure == schema.failures.c.id)
        )
        total = 0
        failed: Counter[str] = Counter()
        by_op: Counter[str] = Counter()
        by_dtype: Counter[str] = Counter()
        by_environment: Counter[int] = Counter()
        by_run: Counter[int] = Counter()
        with self._reads() as connection:
            for op, dtype, tf32, environment, run, reason, n in connection.execute(query):
                total += n
                by_op[op] += n
                by_dtype[f"{dtype} tf32" if tf32 else dtype] += n
                by_environment[environment] += n
                by_run[run] += n
                if reason is not None:
                    failed[reason] += n
            ids = np.array(sorted(by_environment), dtype=np.int64)
            environments = self._records(connection, schema.environments, ids, _environment)
            return Stats(
                size_bytes=self.path.stat().st_size,
                problems=_count(connection, schema.problems),
                candidates=_count(connection, schema.candidates),
                timings=total,
                failures=dict(failed.most_common()),
                by_op=dict(by_op.most_common()),
                by_dtype=dict(by_dtype.most_common()),
                by_environment=tuple(
                    (environment, by_environment[int(i)])
                    for environment, i in zip(environments, ids, strict=True)
                ),
                by_run=dict(sorted(by_run.items())),
                runs=tuple(self._runs(connection)),
            )

    # Inside one transaction

    @contextmanager
    def _writes(self) -> Iterator[sa.Connection]:
        if self.read_only:
            raise StoreError(f"The store {self.path} was opened for reading only.")
        with sentences(self.path), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reads(self) -> Iterator[sa.Connection]:
        with sentences(self.path), self._reader.begin() as connection:
            yield connection

    def _start(
        self,
        connection: sa.Connection,
        kind: str,
        spec: Mapping[str, Any],
        state: RunState,
        *,
        key: str | None = None,
        **facts: Any,
    ) -> int:
        if key is not None:
            there = connection.scalar(sa.select(schema.runs.c.id).where(schema.runs.c.key == key))
            if there is not None:
                raise StoreError(f"Run {there} has the key {key} already; read that one.")
        now = time.time()
        done = connection.execute(
            sa.insert(schema.runs).values(
                key=key,
                kind=kind,
                spec=_json(spec, "A run's spec"),
                state=str(state),
                started=now,
                heartbeat=now,
                finished=now if state in ENDED else None,
                **facts,
            )
        )
        assert done.inserted_primary_key is not None
        return int(done.inserted_primary_key[0])

    def _update(self, connection: sa.Connection, run: int, values: Mapping[str, Any]) -> None:
        update = sa.update(schema.runs).where(schema.runs.c.id == run).values(**values)
        if connection.execute(update).rowcount != 1:
            raise self._no_run(run)

    def _no_run(self, run: int) -> StoreError:
        return StoreError(
            f"The store {self.path} has no run {run}; `diode-engine runs list` shows its runs."
        )

    def _runs(self, connection: sa.Connection) -> list[Run]:
        rows = connection.execute(sa.select(schema.runs).order_by(schema.runs.c.id))
        return [_run(row) for row in rows]

    def _one(self, connection: sa.Connection, run: int) -> Run:
        query = sa.select(schema.runs).where(schema.runs.c.id == run)
        row = connection.execute(query).one_or_none()
        if row is None:
            raise self._no_run(run)
        return _run(row)

    def _add(self, connection: sa.Connection, run: int, table: TimingTable) -> int:
        if not len(table):
            return 0
        if np.any(table.failure == FAILURES.index(Failure.NOT_TIMED) + 1):
            raise StoreError(
                "Some of these rows were never timed; a store keeps timings and failures only."
            )
        problem = _ids(connection, schema.problems, table.problems, table.problem)
        candidate = _ids(connection, schema.candidates, table.candidates, table.candidate)
        environment = _ids(connection, schema.environments, table.environments, table.environment)
        sweep, there = _sweep_ids(connection, run, problem, environment)
        # B-tree order, which fills the pages; stable, so that equal ones keep theirs.
        order = np.argsort((sweep << 32) | candidate, kind="stable")
        sweep, candidate = sweep[order], candidate[order]
        seq = _occurrence(sweep, candidate)
        if there:
            _after_those_there(connection, there, sweep, candidate, seq)
        codes = _failure_ids(connection, table.failure)
        driver: Any = connection.connection.driver_connection
        # The driver binds NaN as NULL, and SQLAlchemy would need a dict a row.
        driver.executemany(
            _INSERT,
            zip(
                sweep.tolist(),
                candidate.tolist(),
                seq.tolist(),
                table.min_us[order].tolist(),
                table.median_us[order].tolist(),
                table.spread_us[order].tolist(),
                table.repeats[order].tolist(),
                codes[table.failure[order]].tolist(),
                strict=True,
            ),
        )
        return len(table)

    def _records(
        self, connection: sa.Connection, table: sa.Table, ids: _Ids, make: Any
    ) -> list[Any]:
        """The records with these ids, in the ids' (ascending) order."""
        wanted = set(ids.tolist())
        rows = connection.execute(sa.select(table).order_by(table.c.id))
        try:
            return [make(row) for row in rows if row.id in wanted]
        except (RecordError, ValueError) as error:
            raise StoreError(
                f"The store {self.path} holds an impossible record; restore a backup. {error}"
            ) from error

    def _failure_codes(self, connection: sa.Connection) -> npt.NDArray[np.uint8]:
        """[largest id + 1] TimingTable's code for each id in `failures`, 0 for 0."""
        reasons = _reasons(connection)
        codes = np.zeros(max(reasons.values(), default=0) + 1, dtype=np.uint8)
        for reason, i in reasons.items():
            try:
                codes[i] = FAILURES.index(Failure(reason)) + 1
            except ValueError:
                raise StoreError(
                    f"The store {self.path} knows a reason of failure that this Diode does not, "
                    f"{reason!r}; update Diode."
                ) from None
        return codes


def _run(row: Any) -> Run:
    process = None
    if row.pid is not None:
        process = Process(row.host, row.machine, row.pid, row.pid_started)
    return Run(
        id=row.id,
        kind=row.kind,
        spec=json.loads(row.spec),
        state=RunState(row.state),
        started=_moment(row.started),
        heartbeat=_moment(row.heartbeat),
        finished=None if row.finished is None else _moment(row.finished),
        progress=None if row.progress is None else json.loads(row.progress),
        message=row.message,
        key=row.key,
        process=process,
        command=None if row.command is None else tuple(json.loads(row.command)),
        directory=row.directory,
        log=row.log,
        cancel_asked=None if row.cancel_asked is None else _moment(row.cancel_asked),
        resumes=row.resumes,
    )


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


def _json(value: Mapping[str, Any], what: str) -> str:
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be written as JSON: {error}.") from error


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def _keys(connection: sa.Connection, table: sa.Table) -> dict[int, str]:
    return dict(_pairs(connection, sa.select(table.c.id, table.c.key)))


def _pairs(connection: sa.Connection, query: sa.Select[Any, Any]) -> list[tuple[Any, Any]]:
    return [(first, second) for first, second in connection.execute(query)]


def _reasons(connection: sa.Connection) -> dict[str, int]:
    query = sa.select(schema.failures.c.reason, schema.failures.c.id)
    return dict(_pairs(connection, query))


def _compact(ids: _Ids) -> tuple[_Ids, npt.NDArray[np.int32]]:
    """The ids that occur, ascending, and for each row its place among them."""
    there = np.zeros(int(ids.max(initial=0)) + 1, dtype=np.bool_)
    there[ids] = True
    place = np.cumsum(there, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(there), place[ids]


def _ids(
    connection: sa.Connection,
    table: sa.Table,
    records: Sequence[_Record],
    index: npt.NDArray[np.int32],
) -> _Ids:
    """[n] the id of each row's record; those that are new are written, in the rows' order."""
    used, first = np.unique(index, return_index=True)
    used = used[np.argsort(first)]
    keys = [records[i].key for i in used.tolist()]
    known: dict[str, int] = {}
    for start in range(0, len(keys), _KEYS_A_QUERY):
        some = keys[start : start + _KEYS_A_QUERY]
        query = sa.select(table.c.key, table.c.id).where(table.c.key.in_(some))
        known.update(_pairs(connection, query))
    new = {key: records[i] for key, i in zip(keys, used.tolist(), strict=True) if key not in known}
    if new:
        largest = connection.scalar(sa.select(sa.func.max(table.c.id))) or 0
        rows = []
        for i, (key, record) in enumerate(new.items(), largest + 1):
            rows.append({"id": i, "key": key, **_columns(record)})
            known[key] = i
        connection.execute(sa.insert(table), rows)
    ids = np.zeros(len(records), dtype=np.int64)
    ids[used] = [known[key] for key in keys]
    return ids[index]


def _sweep_ids(
    connection: sa.Connection, run: int, problem: _Ids, environment: _Ids
) -> tuple[_Ids, list[int]]:
    """[n] the sweep of each row, and which of the sweeps held timings before."""
    pairs, inverse = np.unique((problem << 32) | environment, return_inverse=True)
    s = schema.sweeps.c
    known: dict[int, int] = {}
    problems = np.unique(problem).tolist()
    for start in range(0, len(problems), _KEYS_A_QUERY):
        some = problems[start : start + _KEYS_A_QUERY]
        query = sa.select(s.id, s.problem, s.environment).where(s.run == run, s.problem.in_(some))
        known.update(((p << 32) | e, i) for i, p, e in connection.execute(query))
    ids = np.zeros(len(pairs), dtype=np.int64)
    there: list[int] = []
    new: list[dict[str, int]] = []
    largest = connection.scalar(sa.select(sa.func.max(s.id))) or 0
    for k, pair in enumerate(pairs.tolist()):
        sweep = known.get(pair)
        if sweep is None:
            sweep = largest + len(new) + 1
            new.append({"id": sweep, "problem": pair >> 32, "run": run, "environment": pair & _LOW})
        else:
            there.append(sweep)
        ids[k] = sweep
    if new:
        connection.execute(sa.insert(schema.sweeps), new)
    return ids[inverse], there


def _occurrence(sweep: _Ids, candidate: _Ids) -> _Ids:
    """[n] for rows ordered by (sweep, candidate): how many equal ones come before each."""
    n = np.arange(len(sweep))
    starts = np.ones(len(sweep), dtype=np.bool_)
    starts[1:] = (sweep[1:] != sweep[:-1]) | (candidate[1:] != candidate[:-1])
    return n - np.maximum.accumulate(np.where(starts, n, 0))


def _after_those_there(
    connection: sa.Connection, sweeps: list[int], sweep: _Ids, candidate: _Ids, seq: _Ids
) -> None:
    """Moves `seq` behind the timings that these sweeps hold of the same candidates."""
    t = schema.timings.c
    for there in sweeps:
        rows = slice(*np.searchsorted(sweep, [there, there + 1]))
        query = sa.select(t.candidate, sa.func.max(t.seq)).where(t.sweep == there)
        held = dict(_pairs(connection, query.group_by(t.candidate)))
        if held:
            seq[rows] += [held.get(c, -1) + 1 for c in candidate[rows].tolist()]


def _failure_ids(
    connection: sa.Connection, failure: npt.NDArray[np.uint8]
) -> npt.NDArray[np.object_]:
    """[number of reasons + 1] the id in `failures` for each of TimingTable's codes, None for 0."""
    reasons = _reasons(connection)
    ids = np.full(len(FAILURES) + 1, None, dtype=np.object_)
    for code in np.unique(failure[failure > 0]).tolist():
        reason = str(FAILURES[code - 1])
        if reason not in reasons:
            insert = sa.insert(schema.failures).values(reason=reason)
            done = connection.execute(insert).inserted_primary_key
            assert done is not None
            reasons[reason] = int(done[0])
        ids[code] = reasons[reason]
    return ids


def _columns(record: Problem | Candidate | Environment) -> dict[str, Any]:
    """The record as its table's columns."""
    if isinstance(record, Candidate):
        kwargs = json.dumps(record.to_dict()["kwargs"], sort_keys=True, separators=(",", ":"))
        return {"template": record.template, "kwargs": kwargs}
    if isinstance(record, Environment):
        columns = record.to_dict()
        return {**columns.pop("hardware"), **columns}
    return {**record.to_dict(), "allow_tf32": int(record.allow_tf32)}


def _problem(row: Any) -> Problem:
    columns = dict(row._mapping)
    del columns["id"], columns["key"]
    return Problem.from_dict({**columns, "allow_tf32": bool(columns["allow_tf32"])})


def _candidate(row: Any) -> Candidate:
    return Candidate.from_dict({"template": row.template, "kwargs": json.loads(row.kwargs)})


def _environment(row: Any) -> Environment:
    hardware = Hardware(**{name: row._mapping[name] for name in _HARDWARE})
    return Environment(hardware, row.driver, row.torch, row.triton)
