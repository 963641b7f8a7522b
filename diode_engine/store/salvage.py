"""Reads what can be read of a damaged store in a file: row by row, around the pages that SQLite
refuses."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from diode_engine.core.problem import MAX_DIM
from diode_engine.core.timing import MAX_US, Failure
from diode_engine.errors import StoreError
from diode_engine.store import bulk, schema
from diode_engine.store.backends.sqlite import SqliteBackend
from diode_engine.store.backends.sqlite_connection import connect
from diode_engine.store.records import RECORDS
from diode_engine.store.soundness import LOST, misfits
from diode_engine.store.store import Store

# A row comes after the rows that it refers to.
_TABLES = (
    *RECORDS, schema.failures, schema.runs, schema.sweeps, schema.timings, schema.kernels,
    schema.tallies,
)  # fmt: skip
_ROWS_OF_PAGE = 64  # at most: of problems, of candidates, or of sweeps with their timings
_KEYS_BEYOND = 1000  # that are tried, at least, after the last key that can be read in order
_IMPOSSIBLE = (
    f"min_us > median_us OR min_us <= 0 OR median_us <= 0 OR median_us > {MAX_US} OR"
    f" min_us > {MAX_US} OR spread_us NOT BETWEEN 0 AND {MAX_US} OR"
    f" repeats NOT BETWEEN 0 AND {MAX_DIM}"
)


@contextmanager
def salvage(damaged: Path) -> Iterator[Store]:
    """Open a store in a temporary folder that has those timings of the damaged one that can be read
    and are possible, and the damaged one's counts of timings. Raises StoreError where the damaged
    one has no tables, or they cannot be found."""
    backend = SqliteBackend(damaged)
    with tempfile.TemporaryDirectory(prefix="diode-salvaged-") as folder:
        copy = Path(folder, "salvaged.db")
        Store.open(copy).close()
        with (
            backend.explain_errors(),
            closing(connect(damaged, read_only=True)) as source,
            closing(sqlite3.connect(copy)) as target,
            target,
        ):
            source.execute("PRAGMA writable_schema = ON")  # so a file that was cut short is read
            if (revision := backend.revision_of(source)) is None:
                raise StoreError(f"The store {damaged} is damaged. {LOST}")
            if revision != schema.HEAD:
                Store.open(damaged).close()  # which migrates it
            source.text_factory = partial(str, encoding="utf-8", errors="replace")
            source.execute("BEGIN")  # from the first read on, all is as it is now
            target.execute("DELETE FROM failures")
            (pages,) = source.execute("PRAGMA page_count").fetchone()
            last = max(_find_last_key(source, table) for table in _TABLES)
            last = min(last, _ROWS_OF_PAGE * pages)
            for table in _TABLES:
                statement = bulk.insert_statement(table)
                for row in _read_rows(source, table, 0, last):
                    with suppress(sqlite3.IntegrityError):  # read twice, or impossible
                        target.execute(statement, row)
        with Store.open(copy) as store:
            with store.reads() as connection:
                wrong = {table: misfits(connection, table) for table in RECORDS}
            with closing(sqlite3.connect(copy)) as target, target:
                _remove_misfits(target, wrong)
            yield store


def _find_last_key(source: sqlite3.Connection, table: sa.Table) -> int:
    """Return the last value of the first column of the primary key; where it cannot be read, a
    number that is probably not less."""
    last, key = 0, table.primary_key.columns[0].name
    try:
        for (found,) in source.execute(f"SELECT {key} FROM {table.name} ORDER BY {key}"):
            last = found if isinstance(found, int) else last
    except sqlite3.DatabaseError:
        return 2 * last + _KEYS_BEYOND
    return last


def _read_rows(source: sqlite3.Connection, table: sa.Table, first: int, last: int) -> Iterator[Any]:
    """Yield the rows whose first column of the primary key is from `first` to `last`, some twice.
    They are read from both ends, up to what cannot be read, and what is between in two halves."""
    key = table.primary_key.columns[0].name
    columns = ", ".join(f'"{column.name}"' for column in table.c)
    query = f"SELECT {columns} FROM {table.name} WHERE {key} BETWEEN ? AND ? ORDER BY {key}"
    reached = [first, last]
    for end, order in enumerate(("ASC", "DESC")):
        try:
            for row in source.execute(f"{query} {order}", (first, last)):
                if isinstance(row[0], int) and first <= row[0] <= last:
                    reached[end] = row[0]
                    yield row
            return
        except sqlite3.DatabaseError:
            continue
    first, last = reached
    if first < last:
        middle = (first + last) // 2
        yield from _read_rows(source, table, first, middle)
        yield from _read_rows(source, table, middle + 1, last)


def _remove_misfits(target: sqlite3.Connection, wrong: dict[sa.Table, list[int]]) -> None:
    """Remove the records of these ids, timings that cannot be, and what refers to a row that is not
    there. A timing needs no run."""
    for table, ids in wrong.items():
        target.executemany(f"DELETE FROM {table.name} WHERE id = ?", ((i,) for i in ids))
    known = ", ".join(f"'{reason}'" for reason in Failure)
    target.execute(f"DELETE FROM failures WHERE reason NOT IN ({known})")
    target.execute(f"DELETE FROM timings WHERE {_IMPOSSIBLE}")
    for table in _TABLES:
        for reference in table.foreign_keys:
            if (parent := reference.column.table) is not schema.runs:
                target.execute(
                    f"DELETE FROM {table.name} WHERE {reference.parent.name} NOT IN"
                    f" (SELECT id FROM {parent.name})"
                )
