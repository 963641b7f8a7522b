"""Writes and reads many rows, in the fastest way of each database.

For SQLite that is the driver itself, without SQLAlchemy; for PostgreSQL it is COPY in its binary
form, and a cursor on the server that sends binary values. In arrays NaN stands for NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.store import schema

# A row of `timings` in an array: NaN stands for NULL in times, 0 in `failure`.
TIMING_ROW = np.dtype(
    [
        (column.name, np.float64 if column.name.endswith("_us") else np.int64)
        for column in schema.timings.columns
    ]
)
_TIMINGS = tuple(column.name for column in schema.timings.columns)
_AT_ONCE = 200_000  # rows that are fetched together
_IN_FLIGHT = 10_000  # rows that are sent while the next ones are converted to bytes
_COPY_BEGINS = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_ENDS = b"\xff\xff"
# A row of PostgreSQL's binary COPY: the number of values, and then each value after its length.
_COPIED = np.dtype(
    [("values", ">i2")]
    + [
        field
        for name in _TIMINGS
        for field in ((f"{name} bytes", ">i4"), (name, ">f8" if name.endswith("_us") else ">i4"))
    ]
)


LOW = 2**32 - 1  # the lower half of what `packed` makes


def packed(high: Any, low: Any) -> sa.ColumnElement[int]:
    """Two integers of 32 bits as one of 64, the first in the upper half: so a query has one column
    fewer to read."""
    found: sa.ColumnElement[int] = high * sa.literal_column(str(2**32), sa.BigInteger()) + low
    return found


def is_postgresql(connection: sa.Connection) -> bool:
    return connection.dialect.name == "postgresql"


def rows(
    connection: sa.Connection, query: sa.Select[Any] | sa.TextClause, dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """[n] the rows that a query finds. `dtype` has a field for each column of the query, in its
    order."""
    with _found(connection, query) as found:
        return np.fromiter(found, dtype=dtype)


def pieces(
    connection: sa.Connection, query: sa.Select[Any] | sa.TextClause, dtype: npt.DTypeLike
) -> Iterator[npt.NDArray[Any]]:
    """What `rows` returns, in arrays of at most _AT_ONCE rows, for results that may not fit in
    memory."""
    with _found(connection, query) as found:
        while len(some := np.fromiter(islice(found, _AT_ONCE), dtype=dtype)):
            yield some


@contextmanager
def _found(
    connection: sa.Connection, query: sa.Select[Any] | sa.TextClause
) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The rows that a query finds, directly from the driver: through SQLAlchemy it takes twice as
    long."""
    if not is_postgresql(connection):
        cursor: Any = connection.execute(query).cursor
        yield iter(cursor)
        return
    compiled = query.compile(
        dialect=connection.dialect, compile_kwargs={"render_postcompile": True}
    )
    with _driver(connection).cursor("diode_rows", binary=True) as cursor:
        cursor.itersize = _AT_ONCE
        yield iter(cursor.execute(str(compiled), compiled.params))


def insert_statement(table: sa.Table) -> str:
    """Return the SQL statement that inserts a row into the table, for `execute_many`."""
    names = [column.name for column in table.columns]
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def execute_many(connection: sa.Connection, statement: str, each: Iterable[Sequence[Any]]) -> None:
    """Executes an SQL statement, with a question mark for each value, once for each row of
    `each`."""
    if not is_postgresql(connection):
        _driver(connection).executemany(statement, each)  # it binds NaN as NULL
        return
    nulls = ([None if value != value else value for value in values] for values in each)
    with _driver(connection).cursor() as cursor:
        cursor.executemany(statement.replace("?", "%s"), nulls)


def insert_timings(connection: sa.Connection, rows: npt.NDArray[Any]) -> None:
    """Writes rows of `timings`, [n] of TIMING_ROW."""
    driver = _driver(connection)
    if is_postgresql(connection):
        with driver.cursor().copy(
            f"COPY timings ({', '.join(_TIMINGS)}) FROM STDIN (FORMAT BINARY)"
        ) as copy:
            copy.write(_COPY_BEGINS)
            for start in range(0, len(rows), _IN_FLIGHT):
                copy.write(_copied(rows[start : start + _IN_FLIGHT]))
            copy.write(_COPY_ENDS)
        return
    *values, failure = (rows[name].tolist() for name in _TIMINGS)
    driver.executemany(
        insert_statement(schema.timings),
        zip(*values, [code or None for code in failure], strict=True),
    )


def _copied(rows: npt.NDArray[Any]) -> bytes:
    """Rows of `timings` in the binary form of COPY."""
    made = np.zeros(len(rows), dtype=_COPIED)
    made["values"] = len(_TIMINGS)
    data = made.view(np.uint8).reshape(len(made), _COPIED.itemsize)
    kept = np.ones_like(data, dtype=np.bool_)  # NULL has a length of -1 and no bytes
    for name in _TIMINGS:
        column = rows[name]
        kind, offset = _COPIED[name], _COPIED.fields[name][1]  # type: ignore[index]
        made[name] = column + 0.0 if kind.kind == "f" else column  # never -0.0, as in SQLite
        made[f"{name} bytes"] = kind.itemsize
        if kind.kind == "f" or name == "failure":
            null = np.isnan(column) if kind.kind == "f" else column == 0
            made[f"{name} bytes"][null] = -1
            kept[null, offset : offset + kind.itemsize] = False
    return data[kept].tobytes()


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
