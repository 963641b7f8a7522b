"""Converts records to the columns of their tables, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment, Hardware
from diode_engine.core.problem import Problem
from diode_engine.store import schema

_HARDWARE = tuple(field.name for field in fields(Hardware))


def columns_of(record: Problem | Candidate | Environment) -> dict[str, Any]:
    """The record as its table's columns."""
    if isinstance(record, Candidate):
        return {"template": record.template, "kwargs": _json(dict(record.kwargs))}
    if isinstance(record, Environment):
        columns = record.to_dict()
        return {**columns.pop("hardware"), **columns}
    own = dict(record.attributes)
    columns = {name: value for name, value in record.to_dict().items() if name not in own}
    return {**columns, "allow_tf32": int(record.allow_tf32), "attributes": _json(own)}


def _json(value: dict[str, Any]) -> str:
    """Canonical JSON: equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _problem(row: Any) -> Problem:
    columns = dict(row._mapping)
    del columns["id"], columns["key"]
    own = json.loads(columns.pop("attributes"))
    return Problem.from_dict({**columns, "allow_tf32": bool(columns["allow_tf32"]), **own})


def _candidate(row: Any) -> Candidate:
    return Candidate.from_dict({"template": row.template, "kwargs": json.loads(row.kwargs)})


def _environment(row: Any) -> Environment:
    hardware = Hardware(**{name: row._mapping[name] for name in _HARDWARE})
    return Environment(hardware, row.driver, row.torch, row.triton)


# The tables of records, and what makes a record of a row.
RECORDS: dict[sa.Table, Callable[[Any], Any]] = {
    schema.problems: _problem,
    schema.candidates: _candidate,
    schema.environments: _environment,
}


def records_of(
    connection: sa.Connection, table: sa.Table, ids: npt.NDArray[np.int64]
) -> tuple[tuple[Any, ...], npt.NDArray[np.int32]]:
    """The records of a table of RECORDS with these ids [n], ascending, and [n] the index of each
    id's record. Raises LookupError where one is missing, and what makes a record may raise."""
    last = connection.scalar(sa.select(sa.func.max(table.c.id))) or 0
    # An impossible id must be noticed before an array of its size is allocated.
    if len(ids) and not 0 <= ids.min() <= ids.max() <= last:
        raise LookupError(f"there are timings of {table.name} that are not there")
    wanted = np.zeros(last + 1, dtype=np.bool_)
    wanted[ids] = True
    rows = connection.execute(sa.select(table).order_by(table.c.id))
    found = tuple(RECORDS[table](row) for row in rows if wanted[row.id])
    if missing := int(wanted.sum()) - len(found):
        raise LookupError(f"there are timings of {missing} {table.name} that are not there")
    return found, (np.cumsum(wanted, dtype=np.int32) - np.int32(1))[ids]


def few_records(connection: sa.Connection, table: sa.Table, ids: Iterable[int]) -> dict[int, Any]:
    """The records with these ids, by id. For a few ids it is faster than `records_of`; missing
    records are left out."""
    rows = connection.execute(sa.select(table).where(table.c.id.in_(set(ids))))
    return {row.id: RECORDS[table](row) for row in rows}


def pairs_of(
    connection: sa.Connection, key: sa.ColumnElement[Any], value: sa.Column[Any], *where: Any
) -> dict[Any, Any]:
    """A mapping of one column's values to another's, in the rows of a table that satisfy
    `where`."""
    return dict(map(tuple, connection.execute(sa.select(key, value).where(*where))))
