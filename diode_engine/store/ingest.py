"""Writes timings to the tables, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure
from diode_engine.errors import StoreError
from diode_engine.store import bulk, checksums, schema
from diode_engine.store.records import columns_of, pairs_of
from diode_engine.store.summaries import summarise, tally

_Record = TypeVar("_Record", Problem, Candidate, Environment)
_Ids = npt.NDArray[np.int64]

_KEYS_A_QUERY = 500
_LOW = 2**32 - 1  # the lower half of an integer that has two integers in its halves


def add_rows(connection: sa.Connection, run: int, table: TimingTable) -> int:
    """Writes all rows, the problems, candidates and environments that are new, and what is derived
    from the rows. Returns how many rows there are. Raises StoreError where a row was never
    timed."""
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
    failure = _failure_ids(connection, table.failure)[table.failure]
    summarise(connection, problem, environment, candidate, table.time_us)
    tally(connection, run, table, environment, failure)
    # Rows in the order of the B-tree fill its pages. The sort is stable: equal rows keep their
    # order.
    order = np.argsort((sweep << 32) | candidate, kind="stable")
    sweep, candidate = sweep[order], candidate[order]
    seq = _occurrence(sweep, candidate)
    if there:
        _after_those_there(connection, there, sweep, candidate, seq)
    times = (table.min_us[order], table.median_us[order], table.spread_us[order])
    repeats, failure = table.repeats[order].astype(np.int64), failure[order]
    numbers = checksums.of_rows(candidate, seq, times, repeats, failure)
    ids, sums = checksums.of_sweeps(sweep, numbers)
    bulk.execute_many(
        connection,
        "UPDATE sweeps SET checksum = checksum + ? WHERE id = ?",
        zip(sums.tolist(), ids.tolist(), strict=True),
    )
    bulk.insert_timings(connection, (sweep, candidate, seq, *times, repeats, failure))
    if table.kernel is not None:
        _add_kernels(connection, sweep, candidate, table.kernel[order])
    return len(table)


def _add_kernels(
    connection: sa.Connection, sweep: _Ids, candidate: _Ids, facts: npt.NDArray[np.int32]
) -> None:
    """Writes the compiler's facts on these timings' kernels, where they are known. Facts that the
    store has already are not changed."""
    known = facts[:, 0] >= 0
    rows = np.column_stack([sweep[known], candidate[known], facts[known]])
    names = [column.name for column in schema.kernels.columns]
    bulk.execute_many(
        connection,
        f"INSERT INTO kernels ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        " ON CONFLICT (sweep, candidate) DO NOTHING",
        rows.tolist(),
    )


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
    reasons = failure_reasons(connection)
    columns: list[list[Any]] = [
        [candidates.get(table.candidates[i].key) for i in table.candidate.tolist()],
        *(_nanoseconds(c.tolist()) for c in (table.min_us, table.median_us, table.spread_us)),
        table.repeats.tolist(),
        [reasons.get(FAILURES[code - 1]) if code else None for code in table.failure.tolist()],
    ]
    t, s = schema.timings.c, schema.sweeps.c
    earlier = sa.select(
        t.candidate, t.min_us, t.median_us, t.spread_us, t.repeats, t.failure, s.run
    ).join_from(schema.sweeps, schema.timings)
    pairs, group = np.unique(
        (table.problem.astype(np.int64) << 32) | table.environment, return_inverse=True
    )
    rows_of = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
    for pair, rows in zip(pairs.tolist(), rows_of, strict=True):
        problem = problems.get(table.problems[pair >> 32].key)
        environment = environments.get(table.environments[pair & _LOW].key)
        if problem is None or environment is None:
            continue
        runs_of: dict[tuple[Any, ...], list[int]] = {}
        here = earlier.where(s.problem == problem, s.environment == environment)
        for candidate, *times, repeats, failure, run in connection.execute(here):
            row = (candidate, *_nanoseconds(times), repeats, failure)
            runs_of.setdefault(row, []).append(run)
        for i in rows.tolist():
            if equal := runs_of.get(tuple(column[i] for column in columns)):
                last = max(equal.pop(), last or 0)
                there[i] = True
    return there, last


def _nanoseconds(times_us: Iterable[float | None]) -> list[float | None]:
    return [None if us is None or us != us else round(us, 3) for us in times_us]


def failure_reasons(connection: sa.Connection) -> dict[str, int]:
    """The ids of the failure reasons in the store."""
    return pairs_of(connection, schema.failures.c.reason, schema.failures.c.id)


def _ids(
    connection: sa.Connection,
    table: sa.Table,
    records: Sequence[_Record],
    index: npt.NDArray[np.int32],
) -> _Ids:
    """[n] the id of each row's record; new records are written, in the rows' order."""
    used, first = np.unique(index, return_index=True)
    used = used[np.argsort(first)]
    keys = [records[i].key for i in used.tolist()]
    known = _known(connection, table, keys)
    new = {key: records[i] for key, i in zip(keys, used.tolist(), strict=True) if key not in known}
    if new:
        largest = connection.scalar(sa.select(sa.func.max(table.c.id))) or 0
        rows = []
        for i, (key, record) in enumerate(new.items(), largest + 1):
            rows.append({"id": i, "key": key, **columns_of(record)})
            known[key] = i
        connection.execute(sa.insert(table), rows)
    ids = np.zeros(len(records), dtype=np.int64)
    ids[used] = [known[key] for key in keys]
    return ids[index]


def _known(connection: sa.Connection, table: sa.Table, keys: Sequence[str]) -> dict[str, int]:
    """The ids of those of the keys that are in the table."""
    known: dict[str, int] = {}
    for start in range(0, len(keys), _KEYS_A_QUERY):
        some = keys[start : start + _KEYS_A_QUERY]
        known |= pairs_of(connection, table.c.key, table.c.id, table.c.key.in_(some))
    return known


def _sweep_ids(
    connection: sa.Connection, run: int, problem: _Ids, environment: _Ids
) -> tuple[_Ids, list[int]]:
    """[n] the sweep of each row, and which of the sweeps had timings before."""
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
    """[n] for each row, how many rows before it have the same sweep and candidate. The rows must be
    ordered by these."""
    n = np.arange(len(sweep))
    starts = np.ones(len(sweep), dtype=np.bool_)
    starts[1:] = (sweep[1:] != sweep[:-1]) | (candidate[1:] != candidate[:-1])
    return n - np.maximum.accumulate(np.where(starts, n, 0))


def _after_those_there(
    connection: sa.Connection, sweeps: list[int], sweep: _Ids, candidate: _Ids, seq: _Ids
) -> None:
    """Adds to `seq` the number of timings of the same candidate that the store has in these
    sweeps."""
    t = schema.timings.c
    for there in sweeps:
        rows = slice(*np.searchsorted(sweep, [there, there + 1]))
        query = sa.select(t.candidate, sa.func.max(t.seq)).where(t.sweep == there)
        counts = dict(map(tuple, connection.execute(query.group_by(t.candidate))))
        if counts:
            seq[rows] += [counts.get(c, -1) + 1 for c in candidate[rows].tolist()]


def _failure_ids(connection: sa.Connection, failure: npt.NDArray[np.uint8]) -> _Ids:
    """[number of reasons + 1] the id in `failures` for each of TimingTable's codes, 0 for 0."""
    reasons = failure_reasons(connection)
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
