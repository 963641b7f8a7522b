"""Writes timings to the tables, in one transaction or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, NOT_TIMED, TimingTable
from diode_engine.errors import StoreError
from diode_engine.store import bulk, checksums, schema
from diode_engine.store.records import columns_of, pairs_of
from diode_engine.store.summaries import Summaries, tally

_Record = TypeVar("_Record", Problem, Candidate, Environment)
_Key = TypeVar("_Key", str, int)
_Ids = npt.NDArray[np.int64]

Transactions = Callable[[], AbstractContextManager[sa.Connection]]

_AT_ONCE = 500  # records that are looked up, and written, together


class Ingest:
    """Rows of a table on their way into a run. Each transaction that `identify` and `write` need
    comes from `transaction`, so that they may be several short ones or parts of a single one.
    Raises StoreError where a row was never timed."""

    problem: _Ids  # [n] each, as `environment`, `candidate` and `failure`: the ids in the store
    prepared: Summaries

    def __init__(self, transaction: Transactions, run: int, table: TimingTable) -> None:
        if np.any(table.failure == NOT_TIMED):
            raise StoreError(
                "Some of these rows were never timed; a store keeps timings and failures only."
            )
        self._transaction, self._run, self._table = transaction, run, table

    def identify(self) -> None:
        """Writes the records that are new."""
        table = self._table
        self.problem = self._ids(schema.problems, table.problems, table.problem)
        self.candidate = self._ids(schema.candidates, table.candidates, table.candidate)
        self.environment = self._ids(schema.environments, table.environments, table.environment)
        with self._transaction() as connection:
            self.failure = _failure_ids(connection, table.failure)[table.failure]

    def write(self, slices: Callable[[int], Iterable[slice]]) -> None:
        """Writes the timings, those of each of the slices of n rows in a transaction."""
        table = self._table
        sweep, there = self._sweep_ids()
        # Rows in the order of the B-tree fill its pages. The sort is stable: equal rows keep their
        # order.
        order = np.argsort((sweep << 32) | self.candidate, kind="stable")
        rows = np.empty(len(table), bulk.TIMING_ROW)
        rows["sweep"], rows["candidate"] = sweep[order], self.candidate[order]
        rows["seq"] = _occurrence(rows["sweep"], rows["candidate"])
        rows["failure"] = self.failure[order]
        for name in ("min_us", "median_us", "spread_us", "repeats"):
            rows[name] = getattr(table, name)[order]
        if there:
            with self._transaction() as connection:
                _number_after_those_there(connection, there, rows)
        numbers = checksums.of_timings(rows)
        kernel = None if table.kernel is None else table.kernel[order]
        for some in slices(len(table)):
            ids, sums = checksums.of_sweeps(rows["sweep"][some], numbers[some])
            with self._transaction() as connection:
                bulk.execute_many(
                    connection,
                    "UPDATE sweeps SET checksum = checksum + ? WHERE id = ?",
                    zip(sums.tolist(), ids.tolist(), strict=True),
                )
                bulk.insert_timings(connection, rows[some])
                if kernel is not None:
                    _add_kernels(connection, rows[some], kernel[some])

    def prepare(self, connection: sa.Connection) -> None:
        """Computes what `derive` writes; the store may change between the two."""
        pairs = (self.problem << 32) | self.environment
        self.prepared = Summaries.read(connection, pairs, self.candidate, self._table.time_us)

    def derive(self, connection: sa.Connection) -> None:
        """Writes what is derived from the rows."""
        self.prepared.write(connection)
        tally(connection, self._run, self._table, self.environment, self.failure)

    def _ids(
        self, table: sa.Table, records: Sequence[_Record], index: npt.NDArray[np.int32]
    ) -> _Ids:
        """[n] the id of each row's record; new records are written, in the rows' order."""
        used, first = np.unique(index, return_index=True)
        used = used[np.argsort(first)]
        by_key = {records[i].key: records[i] for i in used.tolist()}
        known, _ = self._numbered(
            table,
            list(by_key),
            lambda connection, keys: _known(connection, table, keys),
            lambda key: {"key": key, **columns_of(by_key[key])},
        )
        ids = np.zeros(len(records), dtype=np.int64)
        ids[used] = [known[records[i].key] for i in used.tolist()]
        return ids[index]

    def _sweep_ids(self) -> tuple[_Ids, list[int]]:
        """[n] the sweep of each row, and which of the sweeps had timings before."""
        pairs, inverse = np.unique((self.problem << 32) | self.environment, return_inverse=True)
        s = schema.sweeps.c

        def find(connection: sa.Connection, pairs: list[int]) -> dict[int, int]:
            problems = {pair >> 32 for pair in pairs}
            return pairs_of(
                connection,
                bulk.packed(s.problem, s.environment),
                s.id,
                s.run == self._run,
                s.problem.in_(problems),
            )

        ids, there = self._numbered(
            schema.sweeps,
            pairs.tolist(),
            find,
            lambda pair: {"problem": pair >> 32, "environment": pair & bulk.LOW, "run": self._run},
        )
        return np.array([ids[pair] for pair in pairs.tolist()], np.int64)[inverse], there

    def _numbered(
        self,
        table: sa.Table,
        keys: list[_Key],
        find: Callable[[sa.Connection, list[_Key]], dict[_Key, int]],
        columns: Callable[[_Key], dict[str, Any]],
    ) -> tuple[dict[_Key, int], list[int]]:
        """The ids of the rows of these keys, and those that were there before. `find` returns the
        ids of rows that are there; the others are written, with these `columns`."""
        ids: dict[_Key, int] = {}
        there: list[int] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            with self._transaction() as connection:
                known = find(connection, some)
                there += [known[key] for key in some if key in known]
                last = connection.scalar(sa.select(sa.func.max(table.c.id))) or 0
                new = {
                    key: i for i, key in enumerate((k for k in some if k not in known), last + 1)
                }
                if new:
                    rows = [{"id": i, **columns(key)} for key, i in new.items()]
                    connection.execute(sa.insert(table), rows)
            ids |= known | new
        return ids, there


def rows_there(
    connection: sa.Connection, table: TimingTable
) -> tuple[npt.NDArray[np.bool_], int | None]:
    """[n] which rows the store has already, and the last run that has one of them (None: no run).
    Times are compared in nanoseconds, as a packed dataset keeps them. Where the table has more
    equal rows than the store, only as many as the store has are marked."""
    there = np.zeros(len(table), dtype=np.bool_)
    last: int | None = None
    problems = _known(connection, schema.problems, [p.key for p in table.problems])
    environments = _known(connection, schema.environments, [e.key for e in table.environments])
    if not len(table) or not problems or not environments:
        return there, last
    candidates = _known(connection, schema.candidates, [c.key for c in table.candidates])
    reasons = pairs_of(connection, schema.failures.c.reason, schema.failures.c.id)
    columns: list[list[Any]] = [
        [candidates.get(table.candidates[i].key) for i in table.candidate.tolist()],
        *(_nanoseconds(c.tolist()) for c in (table.min_us, table.median_us, table.spread_us)),
        table.repeats.tolist(),
        [reasons.get(FAILURES[code - 1]) if code else None for code in table.failure.tolist()],
    ]
    t = schema.timings.c
    times_us = t.min_us, t.median_us, t.spread_us
    earlier = schema.of_sweeps(
        schema.timings, t.candidate, *times_us, t.repeats, t.failure, schema.sweeps.c.run
    )
    pairs, group = np.unique(
        (table.problem.astype(np.int64) << 32) | table.environment, return_inverse=True
    )
    rows_of = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
    for pair, rows in zip(pairs.tolist(), rows_of, strict=True):
        problem = problems.get(table.problems[pair >> 32].key)
        environment = environments.get(table.environments[pair & bulk.LOW].key)
        if problem is None or environment is None:
            continue
        runs_of: dict[tuple[Any, ...], list[int]] = {}
        which = {"in_problem": problem, "in_environment": environment}
        for candidate, *times, repeats, failure, run in connection.execute(earlier, which):
            row = (candidate, *_nanoseconds(times), repeats, failure)
            runs_of.setdefault(row, []).append(run)
        for i in rows.tolist():
            if equal := runs_of.get(tuple(column[i] for column in columns)):
                last = max(equal.pop(), last or 0)
                there[i] = True
    return there, last


def _nanoseconds(times_us: Iterable[float | None]) -> list[float | None]:
    return [None if us is None or us != us else round(us, 3) for us in times_us]


def _add_kernels(
    connection: sa.Connection, timings: npt.NDArray[Any], facts: npt.NDArray[np.int32]
) -> None:
    """Writes the compiler's facts on these timings' kernels, where they are known. Facts that the
    store has already are not changed."""
    known = facts[:, 0] >= 0
    timings = timings[known]
    rows = np.column_stack([timings["sweep"], timings["candidate"], facts[known]])
    insert = f"{bulk.insert_statement(schema.kernels)} ON CONFLICT (sweep, candidate) DO NOTHING"
    bulk.execute_many(connection, insert, rows.tolist())


def _known(connection: sa.Connection, table: sa.Table, keys: Sequence[str]) -> dict[str, int]:
    """The ids of those of the keys that are in the table."""
    known: dict[str, int] = {}
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        known |= pairs_of(connection, table.c.key, table.c.id, table.c.key.in_(some))
    return known


def _occurrence(sweep: _Ids, candidate: _Ids) -> _Ids:
    """[n] for each row, how many rows before it have the same sweep and candidate. The rows must be
    ordered by these."""
    n = np.arange(len(sweep))
    starts = np.ones(len(sweep), dtype=np.bool_)
    starts[1:] = (sweep[1:] != sweep[:-1]) | (candidate[1:] != candidate[:-1])
    return n - np.maximum.accumulate(np.where(starts, n, 0))


def _number_after_those_there(
    connection: sa.Connection, sweeps: list[int], rows: npt.NDArray[Any]
) -> None:
    """Adds to the rows' `seq` the number of timings of the same candidate that the store has in
    these sweeps."""
    t = schema.timings.c
    for there in sweeps:
        some = rows[slice(*np.searchsorted(rows["sweep"], [there, there + 1]))]
        query = sa.select(t.candidate, sa.func.max(t.seq)).where(t.sweep == there)
        counts = dict(map(tuple, connection.execute(query.group_by(t.candidate))))
        if counts:
            some["seq"] += [counts.get(c, -1) + 1 for c in some["candidate"].tolist()]


def _failure_ids(connection: sa.Connection, failure: npt.NDArray[np.uint8]) -> _Ids:
    """[number of reasons + 1] the id in `failures` for each of TimingTable's codes, 0 for 0."""
    reasons = pairs_of(connection, schema.failures.c.reason, schema.failures.c.id)
    ids = np.zeros(len(FAILURES) + 1, dtype=np.int64)
    for code in np.unique(failure[failure > 0]).tolist():
        reason = str(FAILURES[code - 1])
        if reason not in reasons:
            insert = sa.insert(schema.failures).values(reason=reason)
            done = connection.execute(insert).inserted_primary_key
            assert done is not None
            reasons[reason] = int(done[0])
        ids[code] = reasons[reason]
    return ids
