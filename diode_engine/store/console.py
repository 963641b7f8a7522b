"""Answers SQL statements that only read, and lists the tables that they can name."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any

from diode_engine.location import Location
from diode_engine.store import schema
from diode_engine.store.backends import backend_of
from diode_engine.store.backends.backend import no_answer

ROWS, SECONDS = 1000, 10.0  # the usual limits of an answer
LONGEST = 2000  # characters of a value
_BLOB_BYTES = 16  # so many of a blob are shown

# The first word of a statement, after its comments.
_FIRST = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", re.DOTALL)

Value = str | int | float | None

# What a row of each of the store's tables is.
TABLES = {
    "problems": "one matrix product with its sizes, types and layouts",
    "candidates": "one kernel configuration",
    "environments": "a GPU with its driver, torch and Triton",
    "summaries": "one problem in one environment, with its best time",
    "sweeps": "what one run timed on one problem in one environment",
    "timings": "one timing of a candidate in a sweep, in microseconds",
    "failures": "why a candidate has no time",
    "kernels": "what the compiler made of a candidate",
    "runs": "imports, collections, trainings and validations",
    "curves": "values of a run over its steps",
    "results": "what a run found, as compressed JSON",
    "tags": "the tags of runs",
    "tallies": "how many timings of each kind a run has",
}


@dataclass(frozen=True)
class Answer:
    """The answer to a statement. The columns have different names. `more` says that there are more
    rows, which were not read."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    more: bool = False


@dataclass(frozen=True)
class StoreColumn:
    """A column of one of the store's tables; `refers_to` is the column of another table whose
    values it has, such as `problems.id`."""

    table: str
    name: str
    type: str
    refers_to: str = ""


def ask(
    location: Location, statement: str, *, rows: int = ROWS, seconds: float = SECONDS
) -> Answer:
    """Return the answer to one SQL statement, in the language of the store's database. It can write
    nothing: it runs on a connection of its own that only reads, and a statement that is not a query
    is refused. After `rows` rows the reading ends.

    Text of more than LONGEST characters is cut, and of a blob only the size and the beginning are
    returned. Raises StoreMissingError where there is no store, and StoreError where the statement
    has a mistake, is no query, or is not answered after `seconds`.
    """
    _check_statement(statement)
    backend = backend_of(location)
    names, found = backend.answer(
        statement, rows=rows + 1, seconds=seconds, shorten=lambda row: tuple(map(_plain, row))
    )
    return Answer(_different(names), tuple(found[:rows]), len(found) > rows)


def store_columns() -> tuple[StoreColumn, ...]:
    """Return the columns of all tables that a statement can name."""
    return tuple(
        StoreColumn(
            table, column.name, str(column.type).lower().partition(" ")[0],
            next((key.target_fullname for key in column.foreign_keys), ""),
        )
        for table in TABLES
        for column in schema.metadata.tables[table].columns
    )  # fmt: skip


def _check_statement(statement: str) -> None:
    """Raise StoreError for what no database takes for a query; the database refuses the rest."""
    if re.search("[\0\ud800-\udfff]", statement):
        raise no_answer("it has characters that are no text")
    begin = _FIRST.match(statement)
    assert begin is not None
    if (first := begin[1].lower()) not in ("", "select", "with", "values"):
        raise no_answer(
            f"it begins with {first[:20].upper()}; only a query (SELECT, WITH, VALUES) is"
        )
    if not statement[begin.start(1) :].strip():
        raise no_answer("it is empty")


def _plain(value: Any) -> Value:
    """Return a value that JSON has, of a length that a table can show."""
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and abs(value) < 2**63 and value % 1 == 0
        value = int(value) if is_whole else float(value)
    if isinstance(value, bytes | memoryview):
        value = bytes(value)
        more = "…" if len(value) > _BLOB_BYTES else ""
        return f"{len(value):,} bytes: {value[:_BLOB_BYTES].hex()}{more}"
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def _different(names: list[str]) -> tuple[str, ...]:
    """Return the names, with numbers behind those that others have already."""
    found: list[str] = []
    for name in names:
        others = (f"{name} {number}" for number in count(2))
        found.append(name if name not in found else next(o for o in others if o not in found))
    return tuple(found)
