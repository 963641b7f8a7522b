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
    values = zip(*(_with_nulls(name, rows[name]) for name in _TIMINGS), strict=True)
    driver = _driver(connection)
    if not is_postgresql(connection):
        driver.executemany(insert_statement(schema.timings), values)
        return
    statement = f"COPY timings ({', '.join(_TIMINGS)}) FROM STDIN (FORMAT BINARY)"
    with driver.cursor().copy(statement) as copy:
        copy.set_types(["float8" if name.endswith("_us") else "int4" for name in _TIMINGS])
        for row in values:
            copy.write_row(row)


def _with_nulls(name: str, column: npt.NDArray[Any]) -> list[Any]:
    """The values of a column of `timings`, with None for NULL."""
    values = (column + 0).astype(np.object_)  # never -0.0, as in SQLite
    if name.endswith("_us"):
        values[np.isnan(column)] = None
    elif name == "failure":
        values[column == 0] = None
    return values.tolist()  # type: ignore[no-any-return]


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
