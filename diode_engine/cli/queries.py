"""What the commands that answer a query share: its argument, and the output formats of a table."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from diode_engine.cli.options import option

F = TypeVar("F", bound=Callable[..., object])

_NUMBER = re.compile(r"(-?[\d,]+(\.\d+)?( %)?)?")
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


def table_text(
    rows: Sequence[Mapping[str, str]], *, spare: Sequence[str] = (), cut: str = "",
    width: int | None = None,
) -> str:  # fmt: skip
    """The rows (at least one) as columns with two spaces between them and a rule below the header.
    Columns of numbers are aligned to the right, and empty columns are left out.

    They fit into `width` characters (by default the terminal's; unlimited where stdout is no
    terminal) as far as possible: the columns in `spare` are left out one by one, then those of
    `cut` are shortened.
    """
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    widths = {name: max(map(len, (name, *(row[name] for row in rows)))) for name in rows[0]
              if any(row[name] for row in rows)}  # fmt: skip
    left_over = iter([name for name in spare if name in widths])
    while (over := sum(widths.values()) + 2 * len(widths) - 2 - width) > 0:
        if (name := next(left_over, None)) is None:
            break
        del widths[name]
    if over > 0 and cut in widths:
        widths[cut] = max(len(cut), widths[cut] - over)
    numbers = {name for name in widths if all(_NUMBER.fullmatch(row[name]) for row in rows)}

    def line(cells: Mapping[str, str]) -> str:
        shown = []
        for name, room in widths.items():
            cell = cells[name] if len(cells[name]) <= room else f"{cells[name][: room - 1]}…"
            shown.append(cell.rjust(room) if name in numbers else cell.ljust(room))
        return "  ".join(shown).rstrip()

    rule = "  ".join("─" * room for room in widths.values())
    return "\n".join([line({name: name for name in widths}), rule, *map(line, rows)])


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
