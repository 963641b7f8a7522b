"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from diode_engine import paths

F = TypeVar("F", bound=Callable[..., object])


def store_option(command: F) -> F:
    """Adds --store (or --db); the command gets `store: Path`, the default already filled in."""
    return click.option(
        "--store",
        "--db",
        "store",
        metavar="PATH",
        envvar="DIODE_STORE",
        type=click.Path(dir_okay=False),
        callback=_store,
        help="The database of timings. [default: $DIODE_STORE, else diode.db in Diode's data "
        "directory]",
    )(command)


def _store(_ctx: click.Context, _param: click.Parameter, given: str | None) -> Path:
    return paths.store_path(given)


as_json_option = click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
# So that a script can ask every command for it.
json_anyway_option = click.option(
    "--json", is_flag=True, expose_value=False, help="What it writes is JSON anyway."
)


def names(listed: str) -> tuple[str, ...]:
    """Of an option that lists names with commas."""
    return tuple(filter(None, listed.split(",")))
