"""diode-engine db: looking after the store's file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.options import as_json_option, store_option


@click.group()
def db() -> None:
    """Upgrade, back up, check and compact the store."""


@db.command()
@store_option
@as_json_option
def upgrade(store: Path, as_json: bool) -> None:
    """Bring the store to this Diode's schema, as opening it for writing does.

    The store as it was stays beside it, in a file that ends in .bak.
    """
    from diode_engine.store import maintenance

    before, now = maintenance.upgrade(store)
    if as_json:
        click.echo(json.dumps({"store": str(store), "before": before, "now": now}))
    elif before == now:
        click.echo(f"{store} has schema {now}, the newest one.")
    else:
        click.echo(f"{store} was brought from schema {before or 'none'} to {now}.")


@db.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@store_option
@click.option("--replace", is_flag=True, help="Replace FILE if it is there.")
@as_json_option
def backup(file: Path, store: Path, replace: bool, as_json: bool) -> None:
    """Copy the store to FILE, complete or not at all, also while others write it.

    FILE is a store itself: `--store FILE` reads it.
    """
    from diode_engine.store import maintenance

    size = maintenance.back_up(store, file, replace=replace)
    if as_json:
        click.echo(json.dumps({"store": str(store), "file": str(file), "bytes": size}))
    else:
        click.echo(f"{store} was copied to {file}, {size / 1e6:.1f} MB.")


@db.command()
@store_option
@as_json_option
def check(store: Path, as_json: bool) -> int:
    """Read the whole store and say whether it is sound; exit code 1 if not.

    It is sound where SQLite finds its pages and references whole, every problem, candidate and
    environment fits its key, the timings are those that were written, and what is kept beside
    them (counts, the fastest of each problem) is what they say.
    """
    from diode_engine.store import soundness

    found = soundness.check(store)
    if as_json:
        click.echo(json.dumps({"store": str(store), "sound": not found.problems, **asdict(found)}))
    elif not found.problems:
        click.echo(f"{store} is sound; its schema is {found.revision}.")
    else:
        click.echo("\n".join(found.problems))
    if found.problems:
        diagnostics.note(
            f"{store} is damaged: put a backup in its place, or export what can be read with "
            "`diode-engine data export` and import it into a new store."
        )
    elif found.revision != found.newest:
        diagnostics.note(
            f"`diode-engine db upgrade` brings it to schema {found.newest}, whose checksums a "
            "check looks at too; of an earlier one it sees the pages and the references only."
        )
    return ExitCode.FAILURE if found.problems else ExitCode.OK


@db.command()
@store_option
@as_json_option
def vacuum(store: Path, as_json: bool) -> None:
    """Give the space of what was deleted back; needs as much room again while it works."""
    from diode_engine.store import maintenance

    before, after = maintenance.vacuum(store)
    if as_json:
        click.echo(json.dumps({"store": str(store), "before": before, "after": after}))
    else:
        click.echo(f"{store}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now.")
