"""What the commands that answer a query share: its argument, and the output formats of a table."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from diode_engine.cli.options import F, option

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
