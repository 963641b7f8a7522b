"""What the commands that answer a query share: its argument, and the output formats of a table."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from diode_engine.cli.options import option

F = TypeVar("F", bound=Callable[..., object])

_NEGATED = re.compile(r"-[A-Za-z]\w*[%:=!<>]")


class QueryCommand(click.Command):
    """A command whose arguments are a query: -dtype:fp32 is a term of it, not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args:
            terms = [word for word in args if _NEGATED.match(word)]
            args = [*(word for word in args if word not in terms), "--", *terms]
        return super().parse_args(ctx, args)


def query_argument(command: F) -> F:
    """Adds QUERY, as one or several words; the command gets `query: str`."""
    return click.argument("query", nargs=-1, callback=lambda _ctx, _param, words: " ".join(words))(
        command
    )


def form_options(command: F) -> F:
    """Adds --json and --csv; the command gets `form: str`: text, json or csv."""
    for form in ("csv", "json"):
        command = option(
            f"--{form}", "form", flag_value=form, help=f"Write the result as {form.upper()}."
        )(command)
    return option("--text", "form", flag_value="text", default="text", hidden=True)(command)


@dataclass(frozen=True)
class TextColumn:
    """A column of a table for people. Where the terminal is too narrow, the columns with the
    largest `spare` are left out first, then the `cut` column is shortened."""

    name: str
    cells: Sequence[str]
    right: bool = False
    spare: int = 0
    cut: bool = False

    @property
    def width(self) -> int:
        """The number of characters of the widest cell or the name."""
        return max(map(len, (self.name, *self.cells)))


def table_text(columns: Sequence[TextColumn], width: int | None = None) -> str:
    """The columns with two spaces between them and a rule below the header. They fit into `width`
    characters (by default the terminal's; unlimited where stdout is no terminal) as far as `spare`
    and `cut` columns allow."""
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    kept = [column for column in columns if any(column.cells)]
    while (over := _width(kept) - width) > 0 and any(column.spare for column in kept):
        most = max(kept, key=lambda column: column.spare)
        kept = [column for column in kept if column is not most]
    lines: list[list[str]] = [[] for _ in range(len(columns[0].cells) + 2)]
    for column in kept:
        room = column.width
        if column.cut and over > 0:
            room = max(len(column.name), room - over)
        cells = [c if len(c) <= room else f"{c[: room - 1]}…" for c in column.cells]
        for line, cell in zip(lines, (column.name, "─" * room, *cells), strict=True):
            line.append(cell.rjust(room) if column.right else cell.ljust(room))
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _width(columns: Sequence[TextColumn]) -> int:
    return sum(column.width for column in columns) + 2 * (len(columns) - 1)


def write(form: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Writes rows to stdout as a JSON array, or as CSV with these columns."""
    if form == "json":
        click.echo(json.dumps(list(rows)))
        return
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    click.echo(out.getvalue(), nl=False)
