"""A table in pages: the query and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_ROWS = 500  # on a page: a DataTable of 50,000 rows takes seconds to paint


@dataclass(frozen=True)
class PageQuery:
    """Rows `page * rows` to `(page + 1) * rows` of those that the filter matches, in this order.
    `sort` is a column's key; None keeps the reader's own order."""

    filter: str = ""
    sort: str | None = None
    descending: bool = False
    page: int = 0
    rows: int = 100


@dataclass(frozen=True)
class Row:
    """`key` is unique in the table. `cells` are texts by column key; `record` has the same as
    values, for an export."""

    key: str
    cells: Mapping[str, str]
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """`total` counts the rows of all pages."""

    rows: tuple[Row, ...] = ()
    total: int = 0


def page_in_memory(rows: Sequence[Row], query: PageQuery) -> Page:
    """Return a page of rows that are in memory. Each word of the filter must occur in a row's
    cells, in any case; a word with a minus must not. Rows are sorted by the values in their
    records; rows without the value come last."""
    words = query.filter.lower().split()
    if words:
        rows = [row for row in rows if _holds(" ".join(row.cells.values()).lower(), words)]
    if query.sort is not None:
        key = query.sort
        known = [row for row in rows if row.record.get(key) is not None]
        # A column of an answer in SQL may have texts and numbers.
        known.sort(
            key=lambda row: (isinstance(row.record[key], str), row.record[key]),
            reverse=query.descending,
        )
        rows = [*known, *(row for row in rows if row.record.get(key) is None)]
    first = query.page * query.rows
    return Page(tuple(rows[first : first + query.rows]), len(rows))


def _holds(text: str, words: Sequence[str]) -> bool:
    return all(word[1:] not in text if word[0] == "-" and word[1:] else word in text
               for word in words)  # fmt: skip


def as_text(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the columns as text, with spaces between them, for a mail or a screen reader."""
    table = [names, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(names))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def as_json(records: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps([dict(record) for record in records], indent=1, default=str) + "\n"


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """As CSV, with a header of all names in the order in which they occur; values that are not
    plain are written as JSON."""
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for record in records:
        writer.writerow([_plain(record.get(name)) for name in names])
    return out.getvalue()


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=str)
