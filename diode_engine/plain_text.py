"""Tables, fields, numbers and durations as plain text, for a terminal, a file or a README."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

_NUMBER = re.compile(r"([-+]?[\d,]+(\.\d+)?(e[-+]\d+)?( ?%)?)?")


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[str] = (),
    cut: str = "", width: int | None = None,
) -> str:  # fmt: skip
    """Return the rows as columns with two spaces between them and a rule below the header. Columns
    of numbers are aligned to the right, and empty columns are left out.

    They fit into `width` characters (by default the terminal's; unlimited where stdout is no
    terminal) as far as possible: the columns in `spare` are left out one by one, then those of
    `cut` are shortened.
    """
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    columns = list(zip(header, *rows, strict=True))
    widths = {
        i: max(map(len, column)) for i, column in enumerate(columns) if any(column[1:]) or not rows
    }
    left_over = iter([i for name in spare for i in widths if header[i] == name])
    while (over := sum(widths.values()) + 2 * len(widths) - 2 - width) > 0:
        if (spared := next(left_over, None)) is None:
            break
        del widths[spared]
    for i in widths:
        if over > 0 and header[i] == cut:
            widths[i] = max(len(cut), widths[i] - over)
    numbers = {i for i in widths if all(map(_NUMBER.fullmatch, columns[i][1:]))}

    def line(cells: Sequence[str]) -> str:
        shown = []
        for i, room in widths.items():
            cell = cells[i] if len(cells[i]) <= room else f"{cells[i][: room - 1]}…"
            shown.append(cell.rjust(room) if i in numbers else cell.ljust(room))
        return "  ".join(shown).rstrip()

    rule = "  ".join("─" * room for room in widths.values())
    return "\n".join([line(header), rule, *map(line, rows)])


def format_records(
    records: Sequence[Mapping[str, str]], *, spare: Sequence[str] = (), cut: str = "",
    width: int | None = None,
) -> str:  # fmt: skip
    """Return a table (see `format_table`) of records, of which there is at least one, all with the
    same fields."""
    rows = [list(record.values()) for record in records]
    return format_table(list(records[0]), rows, spare=spare, cut=cut, width=width)


def format_fields(fields: Iterable[tuple[str, str | None]]) -> str:
    """Return a line for each field that has a value: its name, and the value in a column."""
    filled = [(name, value) for name, value in fields if value]
    width = max(len(name) for name, _ in filled)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in filled)


def format_number(value: float | None, form: str = ".3g") -> str:
    """Return a number of a table; "" where it is unknown."""
    return "" if value is None else format(value, form)


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as `3 min 20 s`."""
    rest = round(seconds)
    words = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words[:2]) or "0 s"
