"""diode-engine db: looking after the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.options import WRITTEN_FILE, FiniteRange, StoreType, option
from diode_engine.cli.queries import form_options, write
from diode_engine.cli.results import Result, result_command
from diode_engine.location import Location
from diode_engine.plain_text import format_records
from diode_engine.store import console, maintenance, soundness


@click.group()
def db() -> None:
    """Upgrade, back up, copy, check, compact and query the store."""


@db.command()
@options.store
@result_command
def upgrade(store: Location) -> Result:
    """Bring the store to this Diode's schema, as opening it for writing does.

    A copy of a store in a file, as it was before, stays beside it; its name ends in .bak. On a
    server everything happens in one transaction.
    """
    before, now = maintenance.upgrade(store)
    text = f"{store} was upgraded from schema {before or 'none'} to {now}."
    if before == now:
        text = f"{store} has schema {now}, the newest one."
    return Result({"store": str(store), "before": before, "now": now}, text)


@db.command()
@click.argument("file", type=WRITTEN_FILE)
@options.store
@option("--replace", is_flag=True, help="Replace FILE if it is a store.")
@result_command
def backup(file: Path, store: Location, replace: bool) -> Result:
    """Copy the store to FILE, whole or not at all, also while others write to it.

    FILE is itself a store: `--store FILE` reads it. A store on a server is copied as `db copy` does
    it. Before anything is written the store is checked, as `db check` does. With --replace, FILE
    may be a store that nobody uses, sound or not; what SQLite keeps beside it goes with it.
    """
    size = maintenance.back_up(store, file, replace=replace)
    text = f"{store} was copied to {file}, {size / 1e6:.1f} MB."
    return Result({"store": str(store), "file": str(file), "bytes": size}, text)


@db.command()
@click.argument("source", metavar="FROM", type=StoreType())
@click.argument("target", metavar="TO", type=StoreType())
@result_command
def copy(source: Location, target: Location) -> Result:
    """Copy the store at FROM to TO, each a file or the URL of a database on a PostgreSQL server.

    TO must not exist yet, or be empty. Everything is copied as it is at one moment, also while
    others write to FROM: timings, runs and what belongs to them, with their numbers. Then each row
    is compared, and the timings with their checksums; if anything differs, nothing is copied.
    """
    copied = maintenance.copy(source, target)
    return Result(
        {"from": str(source), "to": str(target), **copied},
        f"{source} was copied to {target} and compared: {copied['timings']:,} timings "
        f"of {copied['problems']:,} problems, {copied['runs']:,} runs.",
    )


@db.command()
@options.store
@result_command
def check(store: Location) -> Result:
    """Read the whole store and say whether it is sound; exit code 1 if not.

    In a sound store, the pages (of a file) and references are whole; every problem, candidate and
    environment fits its key; the timings are those that were written; and what is computed from
    them and stored too (counts, the fastest candidate of each problem) is right.
    """
    found = soundness.check(store)
    if found.problems:
        diagnostics.note(
            f"{store} is damaged: put a backup in its place with `diode-engine db backup --store "
            f"BACKUP {store} --replace`, or export what can be read with `diode-engine data export "
            f"--damaged --store {store} FILE` and import it into a new store."
        )
    elif found.revision != found.newest:
        diagnostics.note(
            "In a store of an earlier schema only the pages and references are checked. "
            f"`diode-engine db upgrade` brings it to schema {found.newest}, which has checksums "
            "that are checked too."
        )
    text = "\n".join(found.problems) or f"{store} is sound; its schema is {found.revision}."
    document = {"store": str(store), "sound": not found.problems, **asdict(found)}
    return Result(document, text, ExitCode.FAILURE if found.problems else ExitCode.OK)


@db.command()
@options.store
@result_command
def vacuum(store: Location) -> Result:
    """Give back the space of what was deleted. While it works, it needs as much free space as the
    store takes."""
    before, after = maintenance.vacuum(store)
    text = f"{store}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now."
    return Result({"store": str(store), "before": before, "after": after}, text)


@db.command()
@click.argument("statement", required=False)
@options.store
@option("--rows", type=click.IntRange(1, 1_000_000), default=1000, help="The most rows to show.")
@option(
    "--seconds", type=FiniteRange(0.1, 86_400), default=10.0,
    help="End the statement after so many seconds.",
)  # fmt: skip
@form_options
def query(statement: str | None, store: Location, rows: int, seconds: float, form: str) -> None:
    """Answer one SQL STATEMENT that reads; without one, list the tables and their columns.

    The statement is in the language of the store's database, SQLite or PostgreSQL, and begins with
    SELECT, WITH or VALUES. It runs on a connection that can write nothing. Long texts and blobs are
    cut.
    """
    if statement is None:
        columns = [asdict(column) for column in console.store_columns()]
        if form == "text":
            click.echo(_describe_tables(console.TABLES, columns))
        else:
            write(form, columns, list(columns[0]))
        return
    answer = console.ask(store, statement, rows=rows, seconds=seconds)
    records = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    if form != "text":
        write(form, records, answer.columns)
    elif records:
        click.echo(format_records([{name: _cell(v) for name, v in r.items()} for r in records]))
    else:
        diagnostics.note("The answer has no rows.")
    if answer.more:
        diagnostics.note(f"There are more than {rows:,} rows; --rows shows more of them.")


def _describe_tables(tables: Mapping[str, str], columns: Sequence[Mapping[str, str]]) -> str:
    lines = []
    for table, meaning in tables.items():
        lines += [f"{table}: {meaning}"]
        for column in columns:
            if column["table"] == table:
                refers = f", of {column['refers_to']}" if column["refers_to"] else ""
                lines.append(f"    {column['name']} ({column['type']}{refers})")
    return "\n".join(lines)


def _cell(value: str | float | None) -> str:
    return "" if value is None else " ".join(str(value).split())
