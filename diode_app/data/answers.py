"""The answers to statements in SQL, and the groups of any table, as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from diode_app import text
from diode_app.data.tables import Column, Row, make_row
from diode_engine.store import console
from diode_engine.store.console import Answer

SCHEMA = (
    Column("column", "column", "A table, or below it one of its columns."),
    Column("type", "type", "The type of the column's values.", rank=1),
    Column("of", "of", "The column of another table whose values it has.", rank=2),
)


def answer_table(answer: Answer) -> tuple[list[Column], list[Row]]:
    """Return the columns and the rows of an answer."""
    values = dict(zip(answer.columns, zip(*answer.rows, strict=True), strict=bool(answer.rows)))
    columns = [
        Column(name, name, show=_show, right=is_numeric(values.get(name, ())))
        for name in answer.columns
    ]
    records = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    return columns, [make_row(str(n), record, columns, {}) for n, record in enumerate(records)]


def schema_rows() -> list[Row]:
    """Return a row for each table of the store and for each of its columns. The key is the text to
    put into a statement."""
    rows = []
    columns = console.store_columns()
    for table, meaning in console.TABLES.items():
        rows.append(Row(table, {"column": table.upper(), "type": "", "of": meaning}))
        for column in columns:
            if column.table == table:
                cells = {"column": f"  {column.name}", "type": column.type, "of": column.refers_to}
                rows.append(Row(f"{table}.{column.name}", cells))
    return rows


def group_of(row: Row, by: Column) -> str:
    """Return the group that a row belongs to: what its cell shows."""
    return row.cells.get(by.key) or text.NONE


def group_rows(
    rows: Sequence[Row], by: Column, columns: Sequence[Column]
) -> tuple[list[Column], list[Row]]:
    """Return the columns and rows of a table that counts `rows` by their cells of one of their
    columns, the most frequent cell first, with the medians of the other columns of numbers. The
    first column names a row, so it has no median."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_of(row, by), []).append(row)
    numbers = [column for column in columns[1:] if column.right and column.key != by.key]
    counted = [
        Column("value", by.label),
        Column("rows", "rows", right=True),
        Column("share", "share", show=text.percent, right=True),
        *(
            Column(f"median {c.key}", f"median {c.label}", show=text.number, right=True, rank=place)
            for place, c in enumerate(numbers, 1)
        ),
    ]
    found = []
    for value, members in sorted(groups.items(), key=lambda each: -len(each[1])):
        record: dict[str, Any] = {"value": value, "rows": len(members)}
        record["share"] = len(members) / len(rows)
        for column in numbers:
            known = [n for row in members if (n := _number(row.cells.get(column.key))) is not None]
            record[f"median {column.key}"] = median(known) if known else None
        found.append(make_row(value, record, counted, {}))
    return counted, found


def _number(cell: str | None) -> float | None:
    """Return the number that a cell shows; None where it shows none."""
    try:
        return float((cell or "").removesuffix(" %").replace(",", "").replace("−", "-"))
    except ValueError:
        return None


def is_numeric(values: Sequence[object]) -> bool:
    """Whether there are numbers and, besides what is not known, nothing else."""
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _show(value: object) -> str:
    if value is None:
        return text.NONE
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
