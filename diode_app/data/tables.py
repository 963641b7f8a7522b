"""Tables: their columns, rows and pages, and how they are written to a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
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
    if (key := query.sort) is not None:
        rows = sort_by(rows, lambda row: row.record.get(key), descending=query.descending)
    first = query.page * query.rows
    return Page(tuple(rows[first : first + query.rows]), len(rows))


_MISSING = (None, "", ())


def sort_by(things: Iterable[T], value_of: Callable[[T], Any], *, descending: bool) -> list[T]:
    """Return the things sorted by this value; those without one (None or empty) come last."""
    valued = [(value_of(thing), thing) for thing in things]
    known = [each for each in valued if each[0] not in _MISSING]
    # A column of an answer in SQL may have texts and numbers.
    known.sort(key=lambda each: (isinstance(each[0], str), each[0]), reverse=descending)
    return [thing for _, thing in (*known, *(each for each in valued if each[0] in _MISSING))]


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
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in r.items()} for r in records)
    return out.getvalue()


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=str)


# Columns


def _write(value: Any) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Column:
    """`key` is the name of the cell in a row and, where `sortable`, what the reader sorts by.
    `meaning` says what the column means, with its unit. `show` makes a cell of the column's value:
    the one in a row's record or, with `of`, what that returns of the thing that the row is about.
    `state` cells hold a run's state as `text.state` writes it; a `sign` makes the text and the
    style of a cell. Where there is no room for all columns, those with the highest `rank` are left
    out first; one of rank 0 never is."""

    key: str
    label: str
    meaning: str = ""
    show: Callable[[Any], str] = _write
    sortable: bool = True
    right: bool = False
    state: bool = False
    sign: Callable[[str], tuple[str, str]] | None = None
    rank: int = 0
    of: Callable[[Any], Any] | None = None

    def value_of(self, thing: Any) -> Any:
        """Return the column's value of a thing, or of a record."""
        return thing.get(self.key) if self.of is None else self.of(thing)


C = TypeVar("C", bound=Column)


def make_row(
    key: str, record: Mapping[str, Any], columns: Sequence[Column], shown: Mapping[str, str]
) -> Row:
    """Return the row of a record, with a cell for each column; `shown` has cells that are not made
    of one value of the record."""
    return Row(key, {**make_cells(record, columns), **shown}, record)


def make_cells(thing: object, columns: Sequence[Column]) -> dict[str, str]:
    """Return the cells of the row that is about this thing, or has this record."""
    return {column.key: column.show(column.value_of(thing)) for column in columns}


def pick(columns: Sequence[C], keys: Sequence[str]) -> list[C]:
    """Return the columns with these keys, in the order of the keys."""
    by_key = {column.key: column for column in columns}
    return [by_key[key] for key in keys]


def fit_columns(
    columns: Sequence[C],
    widths: Sequence[int],
    room: int,
    edge: int | None = None,
    *,
    skip: int = 0,
) -> tuple[C, ...]:
    """Return the columns that fit, in their order. The one with the highest rank is left out first;
    of several with this rank, the last one. Where `skip` is not 0, this number of columns after the
    first one with a heading are left out instead, and then those at the end. A column of texts may
    be cut at the `edge` (by default where the room ends), a column of numbers may not."""
    left = list(zip(columns, widths, strict=True))
    if skip:
        fixed = 1 + (not columns[0].label)
        del left[fixed : min(fixed + skip, len(left) - 1)]
    while not skip and sum(width for _, width in left) > room:
        rank = max(column.rank for column, _ in left)
        if rank == 0:
            break
        del left[max(place for place, (column, _) in enumerate(left) if column.rank == rank)]
    room = room if edge is None else edge
    for place, (column, width) in enumerate(left):
        room -= width
        if room < 0:
            del left[place if column.right and place else place + 1 :]
            break
    return tuple(column for column, _ in left)


def share_width(wanted: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that want these widths: all of it, where there is room; else the
    widest ones share what the others leave."""
    given = list(wanted)
    open_places = sorted(range(len(given)), key=lambda place: given[place])
    for done, place in enumerate(open_places):
        fair = max(1, room) // (len(open_places) - done)
        given[place] = max(1, min(given[place], fair))
        room -= given[place]
    return given
