"""Checks whether a store still holds what was written to it. It checks the database's pages and
references, the records against their keys, and the timings against all that is derived from them.

Changes in values that nothing is derived from are not found: a run's note, message and progress,
tags, and the points of curves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.problem import MAX_DIM
from diode_engine.core.timing import MAX_US, Failure
from diode_engine.errors import StoreError
from diode_engine.location import Location
from diode_engine.store import bulk, checksums, schema
from diode_engine.store.backends import backend_of
from diode_engine.store.backends.backend import dangle
from diode_engine.store.migrations import refuse_newer
from diode_engine.store.records import RECORDS, columns_of
from diode_engine.store.run_table import RunTable, run_of
from diode_engine.store.session import explain_damage
from diode_engine.store.summaries import extern_ids, summaries_of

_Ids = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

LOST = "It is empty, without even a table; if it was a store, all that it held is lost."
_PROBLEMS = 1000  # the timings of so many problems are checked together
# CROSS JOIN makes SQLite read the sweeps first: they have an index on the problem, and the timings
# of a sweep are neighbours.
_ROWS = sa.text(
    "SELECT t.sweep, t.candidate, t.seq, t.min_us, t.median_us, t.spread_us, t.repeats,"
    " coalesce(t.failure, 0) FROM sweeps s CROSS JOIN timings t"
    " WHERE t.sweep = s.id AND s.problem BETWEEN :first AND :last"
    f" AND s.run NOT IN (SELECT id FROM runs WHERE key LIKE '{schema.UNFINISHED}%')"
)
_SWEEP = np.dtype(
    [(name, np.int64) for name in ("id", "problem", "run", "environment", "checksum")]
)


@dataclass(frozen=True)
class Soundness:
    """The result of a check."""

    revision: str | None  # of the store's schema; None: it has no table
    newest: str  # the revision of this Diode's schema
    problems: tuple[str, ...]  # sentences that say what is wrong


def check(where: Location) -> Soundness:
    """Reads and checks the whole store.

    In a store with an older schema only pages and references are checked. In a store on a server
    the pages are not checked, which is the server's own task. Raises StoreMissingError where there
    is no store, SchemaTooNewError where a newer Diode wrote it, and StoreError where it is not a
    store or so damaged that SQLite cannot read it.
    """
    return _check(where, lambda store, connection: chain(
        _records(connection), _runs(store, connection), _timings(connection)
    ))  # fmt: skip


def _check(
    where: Location, contents: Callable[[RunTable, sa.Connection], Iterable[str]]
) -> Soundness:
    """Checks pages and references, and then, where these are sound, the `contents`."""
    backend = backend_of(where)
    revision = backend.revision()
    if revision is None:
        return Soundness(None, schema.HEAD, (LOST,))
    refuse_newer(where, revision)
    problems = backend.find_damage()
    if not problems and revision == schema.HEAD:
        with RunTable.open(where, read_only=True) as store, store.reads() as connection:
            if not backend.enforces_references:
                problems += _references(connection)
            problems += problems or contents(store, connection)
    return Soundness(revision, schema.HEAD, tuple(problems))


def require_sound(where: Location, so: str) -> None:
    """Raises StoreError where `check` finds damage; `so` says in its sentence what is not done.
    Raises what `check` does."""
    if problems := check(where).problems:
        raise _damaged(where, so, problems)


def check_counts(where: Location) -> None:
    """Raises StoreError where the store's pages or references are damaged, or it has other timings
    than the counts that `Store.stats` adds up. It takes a tenth of the time of `check`."""
    if problems := _check(where, lambda _, connection: _counts(connection)).problems:
        raise _damaged(where, "these numbers may be wrong", problems)


def _counts(connection: sa.Connection) -> Iterator[str]:
    there = connection.scalar(
        sa.select(sa.func.count())
        .select_from(schema.timings)
        .where(schema.timings.c.sweep.not_in(schema.hidden_sweeps()))
    )
    told = connection.scalar(sa.select(sa.func.sum(schema.tallies.c.timings))) or 0
    if there != told:
        yield f"It has {there} timings, and counts {told}."


def _damaged(where: Location, so: str, problems: Sequence[str]) -> StoreError:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return StoreError(
        f"The store {where} is damaged, so {so}: {problems[0].rstrip('.')}{more}. `diode-engine db "
        "check` says all that is wrong."
    )


def _references(connection: sa.Connection) -> Iterator[str]:
    for table in schema.metadata.sorted_tables:
        for reference in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            parent = reference.column.table.alias("parent")
            query = (
                sa.select(sa.func.count())
                .select_from(table.outerjoin(parent, reference.parent == parent.c.id))
                .where(reference.parent.is_not(None), parent.c.id.is_(None))
            )
            if n := int(connection.scalar(query) or 0):
                yield dangle(n, table.name, reference.column.table.name)


def _records(connection: sa.Connection) -> Iterator[str]:
    for table in RECORDS:
        yield from _count_wrong(
            misfits(connection, table),
            f"{table.name.capitalize()} that do not fit their keys: they were changed",
            "number",
        )
    reasons = connection.scalars(sa.select(schema.failures.c.reason))
    unknown = [repr(reason) for reason in reasons if reason not in list(Failure)]
    if unknown:
        yield f"It has reasons of failure that this Diode does not know: {', '.join(unknown)}."


def misfits(connection: sa.Connection, table: sa.Table) -> list[int]:
    """Return the ids of the rows of a table of RECORDS that do not fit their keys."""
    rows = connection.execute(sa.select(table).order_by(table.c.id))
    return [row.id for row in rows if not _fits(row, RECORDS[table])]


def _fits(row: Any, make: Callable[[Any], Any]) -> bool:
    """Whether the row is a possible record and has the key of its content."""
    try:
        record = make(row)
        return {"id": row.id, "key": record.key, **columns_of(record)} == dict(row._mapping)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return False


def _runs(store: RunTable, connection: sa.Connection) -> Iterator[str]:
    unreadable = []
    for row in connection.execute(sa.select(schema.runs).order_by(schema.runs.c.id)):
        try:
            with explain_damage(store.location):
                run_of(row, ())
        except StoreError:
            unreadable.append(row.id)
    yield from _count_wrong(unreadable, "Runs that cannot be read", "run")
    lost = []
    for run in connection.scalars(sa.select(schema.results.c.run)).all():
        try:
            store.result(run)
        except StoreError:
            lost.append(run)
    yield from _count_wrong(lost, "Runs with a result that cannot be read", "run")


def _timings(connection: sa.Connection) -> Iterator[str]:
    p = schema.problems.c
    kinds = {
        row.id: (row.op, row.dtype, row.allow_tf32)
        for row in connection.execute(sa.select(p.id, p.op, p.dtype, p.allow_tf32))
    }
    extern = extern_ids(connection)
    impossible, changed = 0, []
    wrong: list[int] = []
    counts: Counter[tuple[Any, ...]] = Counter()
    last = connection.scalar(sa.select(sa.func.max(p.id))) or 0
    for first in range(min(kinds, default=1), last + 1, _PROBLEMS):
        end = first + _PROBLEMS - 1
        s = schema.sweeps.c
        of_sweeps = (
            sa.select(schema.sweeps)
            .where(s.problem.between(first, end), schema.is_finished(s.run))
            .order_by(s.id)
        )
        sweeps = bulk.rows(connection, of_sweeps, _SWEEP)
        query = _ROWS.bindparams(first=first, last=end)
        rows = bulk.rows(connection, query, bulk.TIMING_ROW)
        at = np.searchsorted(sweeps["id"], rows["sweep"])
        impossible += int(np.count_nonzero(_impossible(rows)))
        changed += _changed(sweeps, rows, at)
        in_part = schema.summaries.c.problem.between(first, end)
        summaries = connection.execute(sa.select(schema.summaries).where(in_part))
        wrong += _wrong_summaries(summaries, sweeps, rows, at, extern)
        counts.update(_counted(sweeps, rows, at, kinds))
    if impossible:
        yield f"Timings with a time, a spread or a count that cannot be: {impossible}."
    yield from _count_wrong(
        changed,
        "Problems with timings of a run that something other than Diode has changed, added or "
        "deleted",
        "problem",
    )
    yield from _count_wrong(
        wrong, "Problems with a summary that is not what their timings say", "problem"
    )
    tallies = {tuple(row[:-1]): row[-1] for row in connection.execute(sa.select(schema.tallies))}
    different = {
        key[0] for key in tallies.keys() | counts.keys() if tallies.get(key) != counts[key]
    }
    yield from _count_wrong(sorted(different), "Runs with other counts than timings", "run")


def _impossible(rows: npt.NDArray[Any]) -> _Mask:
    """[n] whether `TimingTable` would refuse the timing."""
    low, median, spread = rows["min_us"], rows["median_us"], rows["spread_us"]
    bad: _Mask = (rows["repeats"] < 0) | (rows["repeats"] > MAX_DIM) | (low > median)
    bad |= (low <= 0) | (median <= 0) | (spread < 0)  # False for NaN
    for column in (low, median, spread):
        bad |= column > MAX_US
    return bad


def _changed(sweeps: npt.NDArray[Any], rows: npt.NDArray[Any], at: _Ids) -> list[int]:
    """The problems of the sweeps whose checksum is not that of their timings. `at` [n] is the index
    of each row's sweep in `sweeps`."""
    sums = np.zeros(len(sweeps), dtype=np.int64)
    np.add.at(sums, at, checksums.of_timings(rows))
    found: list[int] = sweeps["problem"][sums != sweeps["checksum"]].tolist()
    return found


def _wrong_summaries(
    written: Iterable[Any], sweeps: npt.NDArray[Any], rows: npt.NDArray[Any], at: _Ids, extern: _Ids
) -> list[int]:
    """The problems whose summaries (`written`) differ from those computed from these timings."""
    there = {(row[0], row[1]): tuple(row[2:]) for row in written}
    expected: dict[tuple[int, int], tuple[Any, ...]] = {}
    if len(rows):
        pair = (sweeps["problem"][at] << 32) | sweeps["environment"][at]
        pairs, group = np.unique(pair, return_inverse=True)
        time_us = np.where(np.isnan(rows["min_us"]), rows["median_us"], rows["min_us"])
        for row in summaries_of(pairs, group, rows["candidate"], time_us, extern):
            expected[row[0], row[1]] = row[2:]
    keys = sorted(there.keys() | expected.keys())
    return [key[0] for key in keys if not _same(there.get(key), expected.get(key))]


def _same(there: tuple[Any, ...] | None, expected: tuple[Any, ...] | None) -> bool:
    """Whether two summaries are equal. The last digits of times may differ, since an older store's
    means of two numbers were computed by SQLite."""
    if there is None or expected is None:
        return False
    times = np.array([there[-2:], expected[-2:]], dtype=np.float64)  # None becomes NaN
    close = np.isclose(times[0], times[1], rtol=1e-12, atol=0.0, equal_nan=True)
    return there[:-2] == expected[:-2] and bool(np.all(close))


def _counted(
    sweeps: npt.NDArray[Any], rows: npt.NDArray[Any], at: _Ids, kinds: dict[int, tuple[Any, ...]]
) -> Counter[tuple[Any, ...]]:
    """How many timings there are, by the key of `tallies`."""
    cells, counts = np.unique((at << 32) | rows["failure"], return_counts=True)
    found: Counter[tuple[Any, ...]] = Counter()
    for cell, n in zip(cells.tolist(), counts.tolist(), strict=True):
        sweep, failure = cell >> 32, cell & bulk.LOW
        kind = kinds[int(sweeps["problem"][sweep])]
        found[int(sweeps["run"][sweep]), int(sweeps["environment"][sweep]), *kind, failure] += n
    return found


def _count_wrong(numbers: list[int], what: str, one: str) -> Iterator[str]:
    """A sentence that says how many are wrong, if any, and names the first."""
    if numbers:
        yield f"{what}: {len(numbers)} (the first: {one} {numbers[0]})."
