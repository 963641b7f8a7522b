"""`Store`: adds timings and runs, and returns tables of timings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURE_CODES, TimingTable
from diode_engine.core.timing import KERNEL_FACTS
from diode_engine.errors import StoreError
from diode_engine.store import bulk, schema
from diode_engine.store.fields import sweeps_found
from diode_engine.store.ingest import Ingest, rows_there
from diode_engine.store.records import pairs_of, records_of
from diode_engine.store.run_table import RunTable, read_runs
from diode_engine.store.runs import Run
from diode_engine.store.staging import Staging
from diode_engine.store.summaries import TimingCounts, count_timings

# Two integers are read as one where possible: one column fewer saves a tenth of the time.
_ROW = np.dtype(
    [
        ("sweep_candidate", np.int64),
        ("min_us", np.float64),
        ("median_us", np.float64),
        ("spread_us", np.float64),
        ("repeats_failure", np.int64),
    ]
)


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    run: int  # the new run; where all timings were there before, the last run that has some of them
    new: bool  # whether there is a new run
    timings: int  # how many were added
    there: int  # how many the store had before
    left_out: int = 0  # how many timings of another format Diode cannot use


@dataclass(frozen=True)
class StoreStats(TimingCounts):
    """What a store holds."""

    size_bytes: int  # of the file, without its write-ahead log; or of the tables on a server
    problems: int
    candidates: int
    by_run: Mapping[int, int]
    runs: tuple[Run, ...]


class Store(RunTable):
    """Timings, in an SQLite file or on a PostgreSQL server. A context manager; several processes
    may have it open. Every method raises StoreError where the store cannot be read or written."""

    def add(self, run: int, table: TimingTable) -> int:
        """Writes all rows in one transaction and returns how many there are.

        Problems, candidates and environments that exist are not written again. Every timing is
        written, also where the run has one of the same candidate already. Raises StoreError, and
        writes nothing, where there is no such run or a row was never timed.
        """
        with self.writes(in_turn=True) as connection:
            self._update(connection, run, {"heartbeat": time.time()})
            if len(table):
                rows = Ingest(lambda: nullcontext(connection), run, table)
                rows.identify()
                rows.prepare(connection)
                rows.derive(connection)
                rows.write(lambda n: (slice(n),))
            return len(table)

    def has_key(self, key: str) -> bool:
        """Whether a run has this key, so that its rows were imported."""
        with self.reads() as connection:
            return _run_with_key(connection, key) is not None

    def import_table(
        self,
        table: TimingTable,
        *,
        key: str,
        spec: Mapping[str, Any],
        run: int | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Imported:
        """Writes these rows as a finished run of kind import, in many short transactions, between
        which others can write. All rows are seen at once, after the last; whatever ends the import
        before that leaves none.

        Rows that the store has already, from whatever run, are not written. No run is made where a
        run has this key already, or no row is left. With `run` no run is made: the rows become
        those of this run, which must be running and gets the key. `progress` is called with how
        many rows are written, and how many there are to write.
        """
        staged: Staging | None = None
        known = np.zeros(0, dtype=np.bool_)
        while True:
            with self.reads() as connection:
                there = _run_with_key(connection, key)
                imports = _imports(connection)
                before, (known, last) = known, rows_there(connection, table)
            count = int(known.sum())
            if staged is not None and not np.array_equal(known, before):
                staged.discard()  # another import has brought some of its rows meanwhile
                staged = None
            if there is not None:
                return Imported(there, new=False, timings=0, there=len(table))
            if last is not None and count == len(table):
                return Imported(last, new=False, timings=0, there=count)
            if staged is None:
                rest = table.take(~known) if count else table
                staged = Staging(self, rest, spec, run=run, progress=partial(progress, len(rest)))
            if self._published(staged, key, imports):
                return Imported(staged.run, new=True, timings=len(table) - count, there=count)

    def _published(self, staged: Staging, key: str, imports: int) -> bool:
        """Whether the staged rows are now seen; False where another import was finished since there
        were so many."""
        try:
            staged.prepare()
            with self.writes(in_turn=True) as connection:
                if _imports(connection) != imports:
                    return False
                staged.publish(connection, key)
                return True
        except BaseException:
            staged.discard()
            raise

    def timed(self, problem: Problem, environment: Environment) -> dict[str, float | None]:
        """What was timed on the problem in exactly this environment, by candidate key: the shortest
        time in microseconds (see Timing.time_us), None where the candidate failed each time. A
        collection does not time these candidates again."""
        t = schema.timings.c
        least = sa.func.min(sa.func.coalesce(t.min_us, t.median_us)).label("us")
        times = (
            sa.select(schema.candidates.c.key, least)
            .select_from(schema.problems)
            .join(schema.sweeps, schema.sweeps.c.problem == schema.problems.c.id)
            .join(schema.environments)
            .join(schema.timings, t.sweep == schema.sweeps.c.id)
            .join(schema.candidates)
            .where(
                schema.problems.c.key == problem.key,
                schema.environments.c.key == environment.key,
                schema.is_finished(schema.sweeps.c.run),
            )
            .group_by(schema.candidates.c.key)
        )
        with self.reads() as connection:
            return {row.key: row.us for row in connection.execute(times)}

    def read(
        self,
        query: str = "",
        *,
        hardware: str | None = None,
        run: int | None = None,
        kernels: bool = False,
    ) -> TimingTable:
        """The timings, ordered by problem and then by candidate. The table has only problems,
        candidates and environments that occur, in the order in which the store first got them.

        `query` keeps the timings of problems that a filter query (see `filter`) finds, `hardware`
        those of the GPU of this name, `run` those of one run. With `kernels` the table has the
        compiler's facts on kernels, where they are known. Raises QueryError where the query has a
        mistake.
        """
        wanted = sa.select(schema.sweeps.c.id, schema.sweeps.c.problem, schema.sweeps.c.environment)
        if hardware is not None:
            wanted = wanted.join(schema.environments).where(schema.environments.c.name == hardware)
        if run is not None:
            wanted = wanted.where(schema.sweeps.c.run == run)
        if query:
            wanted = wanted.where(sweeps_found(query))
        hidden = schema.hidden_sweeps()
        t = schema.timings.c
        rows = sa.select(
            bulk.packed(t.sweep, t.candidate),
            t.min_us,
            t.median_us,
            t.spread_us,
            bulk.packed(t.repeats, sa.func.coalesce(t.failure, 0)),
        ).order_by(t.sweep, t.candidate, t.seq)
        if query or hardware is not None or run is not None:
            rows = rows.where(t.sweep.in_(wanted.with_only_columns(schema.sweeps.c.id)))

        with self.reads() as connection:
            if connection.execute(hidden.limit(1)).first() is not None:
                wanted = wanted.where(schema.is_finished(schema.sweeps.c.run))
                rows = rows.where(t.sweep.not_in(hidden))
            found = [tuple(row) for row in connection.execute(wanted.order_by(schema.sweeps.c.id))]
            sweeps = np.array(found, dtype=np.int64).reshape(-1, 3)
            data = bulk.rows(connection, rows, _ROW)
            sweep = data["sweep_candidate"] >> 32
            position = np.searchsorted(sweeps[:, 0], sweep)
            if len(sweep) and not (
                position.max() < len(sweeps) and np.array_equal(sweeps[position, 0], sweep)
            ):
                raise LookupError("there are timings without a problem")
            problem, environment = sweeps[position, 1], sweeps[position, 2]
            candidate = data["sweep_candidate"] & bulk.LOW
            order = (problem << 32) | candidate
            if np.any(order[1:] < order[:-1]):
                by = np.argsort(order, kind="stable")
                data, candidate = data[by], candidate[by]
                problem, environment = problem[by], environment[by]
            facts = _kernels(connection, data["sweep_candidate"]) if kernels else None
            problems, problem = records_of(connection, schema.problems, problem)
            candidates, candidate = records_of(connection, schema.candidates, candidate)
            environments, environment = records_of(connection, schema.environments, environment)
            return TimingTable(
                problems,
                candidates,
                environments,
                problem=problem,
                candidate=candidate,
                environment=environment,
                min_us=np.ascontiguousarray(data["min_us"]),
                median_us=np.ascontiguousarray(data["median_us"]),
                spread_us=np.ascontiguousarray(data["spread_us"]),
                repeats=(data["repeats_failure"] >> 32).astype(np.int32),
                failure=self._failure_codes(connection)[data["repeats_failure"] & bulk.LOW],
                kernel=facts,
            )

    def contributors(self, environments: Iterable[Environment], query: str = "") -> list[Run]:
        """The runs that have timings in one of these environments, of problems that `query` finds;
        the oldest first."""
        ids = (
            sa.select(schema.sweeps.c.run)
            .join(schema.environments)
            .where(schema.environments.c.key.in_([e.key for e in environments]))
            .where(schema.is_finished(schema.sweeps.c.run))
        )
        if query:
            ids = ids.where(sweeps_found(query))
        with self.reads() as connection:
            r = schema.runs
            return read_runs(connection, sa.select(r).where(r.c.id.in_(ids)).order_by(r.c.id))

    def stats(self) -> StoreStats:
        """Counts what the store holds."""
        t = schema.tallies.c
        of_runs = sa.select(t.run, sa.func.sum(t.timings)).group_by(t.run).order_by(t.run)
        with self.reads() as connection:
            counts = count_timings(connection)
            return StoreStats(
                **vars(counts),
                size_bytes=self._backend.size_bytes(connection),
                problems=_count(connection, schema.summaries.c.problem.distinct()),
                candidates=_count(connection, schema.candidates.c.id),
                by_run=dict(map(tuple, connection.execute(of_runs))),
                runs=tuple(
                    read_runs(connection, sa.select(schema.runs).order_by(schema.runs.c.id))
                ),
            )

    def _failure_codes(self, connection: sa.Connection) -> npt.NDArray[np.uint8]:
        """[largest id + 1] TimingTable's code of each reason in `failures`, by its id; 0 for 0."""
        reasons = pairs_of(connection, schema.failures.c.id, schema.failures.c.reason)
        codes = np.zeros(max(reasons, default=0) + 1, dtype=np.uint8)
        for i, reason in reasons.items():
            if reason not in FAILURE_CODES:
                raise StoreError(
                    f"The store {self.location} knows a reason of failure that this Diode does "
                    f"not, {reason!r}; update Diode."
                )
            codes[i] = FAILURE_CODES[reason]
        return codes


def _count(connection: sa.Connection, what: sa.ColumnElement[Any]) -> int:
    return int(connection.scalar(sa.select(sa.func.count(what))) or 0)


def _run_with_key(connection: sa.Connection, key: str) -> int | None:
    return connection.scalar(sa.select(schema.runs.c.id).where(schema.runs.c.key == key))


def _imports(connection: sa.Connection) -> int:
    """How many imports are finished."""
    return _count(connection, schema.runs.c.key) - len(
        connection.scalars(schema.unfinished()).all()
    )


def _kernels(
    connection: sa.Connection, timing: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32] | None:
    """[n, KernelFacts] of timings; -1 where nothing is known, None where nothing is known of any.
    `timing` [n] has the sweep of a timing in its upper 32 bits and the candidate in the lower."""
    k = schema.kernels.c
    columns = [(name, np.int64) for name in KERNEL_FACTS]
    rows = sa.select(bulk.packed(k.sweep, k.candidate), *(k[name] for name, _ in columns))
    found = bulk.rows(
        connection, rows.order_by(k.sweep, k.candidate), [("timing", np.int64), *columns]
    )
    place = np.searchsorted(found["timing"], timing)
    known = np.append(found["timing"], -1)[place] == timing
    if not known.any():
        return None
    facts = np.full((len(timing), len(columns)), -1, np.int32)
    for i, (name, _) in enumerate(columns):
        facts[known, i] = found[name][place[known]]
    return facts
