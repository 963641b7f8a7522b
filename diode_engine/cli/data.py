"""diode-engine data: import, export, merge, verify and count timings. `problems` shows what was
measured on each problem."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output
from diode_engine.cli.options import option
from diode_engine.cli.queries import QueryCommand, form_options, query_argument, write
from diode_engine.core.hardware import find_name
from diode_engine.core.table import TimingTable
from diode_engine.errors import DatasetError, NothingError, SchemaTooOldError, StoreError
from diode_engine.location import Location
from diode_engine.plain_text import format_records
from diode_engine.runs import import_as_run, look_at_all
from diode_engine.store import (
    Imported,
    Store,
    StoreStats,
    dataset_key,
    export_dataset,
    import_dataset,
    read_dataset,
)
from diode_engine.store.backends import backend_of
from diode_engine.store.datasets.format import suffix_of
from diode_engine.store.problem_counts import GROUPS, Statistic, statistics
from diode_engine.store.salvage import salvage
from diode_engine.store.soundness import LOST, check_counts
from diode_engine.store.summaries import count_timings

_FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
_LAST_RUNS = 10  # in `stats`


@click.group()
def data() -> None:
    """Import, export, list and count timings."""


@data.command("import")
@_FILES
@options.store
@options.json_anyway
def import_(files: tuple[str, ...], store: Location) -> None:
    """Import dataset files, Diode's own or torch-diode's, into the store.

    Each file is imported whole or not at all. Timings that the store has already, from another file
    or from a run of its own, are not added again. For each file one JSON line goes to stdout: its
    name, the run, whether it is new, the timings added, how many were in the store before, and how
    many of torch-diode's were left out (those without a time, or of an operation that Diode does
    not know). The first bad file ends the command; what was imported before stays.
    """
    with Store.open(store) as opened:
        for file in files:
            done = _import(opened, file)
            if done.new:
                before = f"; {done.there:,} were in the store already" if done.there else ""
                diagnostics.note(f"{file}: {done.timings} timings imported into {store}{before}.")
            else:
                diagnostics.note(
                    f"{file}: all its timings were in the store already, from run {done.run}."
                )
            if done.left_out:
                diagnostics.warn(
                    f"{file}: {done.left_out:,} of its timings were left out: they have no time, "
                    "or are of an operator that Diode does not know."
                )
            told = ("run", "new", "timings", "there", "left_out")
            click.echo(json.dumps({"file": file, **{name: getattr(done, name) for name in told}}))


def _import(store: Store, file: str) -> Imported:
    with diagnostics.progress() as display:
        task = display.add_task(f"Importing {Path(file).name}", total=None)
        return import_as_run(
            store, file, lambda done, total: display.update(task, completed=done, total=total)
        )


@data.command()
@click.argument("file", type=click.Path())
@options.store
@option("--hardware", metavar="NAME", help="Only the timings of the GPU of this name.")
@option(
    "--damaged", is_flag=True, help="Export what can be read of a damaged store, to a new FILE."
)
@options.json_anyway
def export(file: str, store: Location, hardware: str | None, damaged: bool) -> ExitCode:
    """Export the store's timings to a dataset file, which is replaced if it exists.

    The suffix says how: .json or .msgpack, and .zst after either to compress it; .packed.zst is
    the smallest, with times in whole nanoseconds. The counts go to stdout as JSON.
    """
    check_output(Path(file), FileKind.DATASET)
    with (
        salvage(store)
        if damaged and isinstance(store, Path) and store.is_file()
        else open_existing(store)
    ) as source:
        with source.reads() as connection:
            counted = count_timings(connection).by_environment
        names = sorted({environment.hardware.name for environment, _ in counted})
        meant = None if hardware is None else find_name(hardware, names)
        if hardware is not None and meant is None:
            raise NothingError(
                f"{store} has no timings of a GPU named {hardware!r}; it has some of: "
                f"{', '.join(names) or 'none'}."
            )
        timings = export_dataset(source, file, hardware=meant, damaged=damaged)
    if damaged:
        there = sum(n for environment, n in counted if meant in (None, environment.hardware.name))
        diagnostics.warn(
            f"{file} holds what could be read of {store}, which is damaged; "
            f"{max(0, there - timings):,} timings that it counts were left out."
        )
    diagnostics.note(f"{file}: {timings} timings exported.")
    click.echo(json.dumps({"file": file, "timings": timings}))
    return ExitCode.NOTHING if damaged and not timings else ExitCode.OK


@data.command(cls=QueryCommand)
@query_argument
@options.store
@option(
    "--by", type=click.Choice(GROUPS), multiple=True,
    help="Count the problems in groups; may be repeated.",
)  # fmt: skip
@form_options
def stats(query: str, store: Location, by: tuple[str, ...], form: str) -> int:
    """Count what the store holds.

    With --by or a QUERY, as in `data problems`, the problems are counted in groups (by default by
    GPU, op and type), with the share of them where ATen is within 5 % of the best candidate.
    """
    if by or query or form == "csv":
        by = by or ("gpu", "op", "dtype")
        with _readable(store) as opened:
            groups = statistics(opened, query, by=by)
        if form != "text":
            rows = [{**dict(zip(by, g.values, strict=True)), **_counts(g)} for g in groups]
            write(form, rows, (*by, *_COUNTS))
        elif groups:
            click.echo(_groups_text(by, groups))
        else:
            diagnostics.note(describe_no_match(store, query))
        return _report_damage(store)
    with _readable(store) as opened:
        counted = opened.stats()
        states = {status.run.id: str(status.state) for status in look_at_all(opened)}
    if form == "json":
        click.echo(json.dumps(_dict(counted, states)))
    else:
        click.echo(_text(store, counted, states))
    return _report_damage(store)


@data.command()
@_FILES
@option(
    "--output", metavar="FILE", required=True, type=click.Path(),
    help="The file to write, replaced if it exists; its suffix says how, as for `data export`.",
)  # fmt: skip
@options.json_anyway
def merge(files: tuple[str, ...], output: str) -> None:
    """Write the timings of several dataset files to one; timings that are in several are written
    once.

    All files are read and checked before anything is written. The counts go to stdout as JSON.
    """
    check_output(Path(output), FileKind.DATASET, sources=map(Path, files))
    suffix_of(Path(output))  # raises DatasetError before the files are read
    there = 0
    with (
        tempfile.TemporaryDirectory(prefix="diode-merge-") as folder,
        Store.open(Path(folder, "merged.db")) as store,
    ):
        for file in files:
            done = import_dataset(store, file)
            there += done.there
            diagnostics.note(f"{file}: {done.timings} timings, {done.there} were there before.")
        timings = export_dataset(store, output)
    diagnostics.note(f"{output}: {timings} timings.")
    click.echo(json.dumps({"file": output, "timings": timings, "repeated": there}))


@data.command()
@_FILES
@options.as_json
def verify(files: tuple[str, ...], as_json: bool) -> int:
    """Read dataset files, Diode's or torch-diode's, and say what is in each or what is wrong.

    Two files with the same key hold the same timings, in whatever order and form. Exit code 1 if
    one is not good.
    """
    found = [_verify(file) for file in files]
    for line in found:
        if as_json:
            click.echo(json.dumps(line))
        elif line["error"] is not None:
            click.echo(line["error"])
        else:
            click.echo(
                f"{line['file']}: {line['timings']:,} timings ({line['failed']:,} failed) of "
                f"{line['candidates']:,} candidates on {line['problems']:,} problems, of "
                f"{', '.join(line['hardware']) or 'no GPU'}; key {line['key']}"
            )
    return ExitCode.FAILURE if any(line["error"] for line in found) else ExitCode.OK


def _verify(file: str) -> dict[str, Any]:
    try:
        table = read_dataset(file, times_required=False)
    except DatasetError as error:
        return {"file": file, "error": str(error)}
    return {
        "file": file,
        "error": None,
        "key": dataset_key(table),
        "timings": len(table),
        "failed": int(np.count_nonzero(table.failure)),
        "problems": table.count_problems(),
        "candidates": len(np.unique(table.candidate)),
        "hardware": table.gpu_names,
    }


def _report_damage(store: Location) -> int:
    """Says on stderr whether the store is so damaged that its counts may be wrong; returns the exit
    code."""
    try:
        check_counts(store)
    except StoreError as error:
        diagnostics.error(str(error))
        return ExitCode.FAILURE
    return ExitCode.OK


def describe_no_match(store: Location, query: str) -> str:
    """A sentence where a query finds no problem."""
    if not query:
        return f"The store {store} has no timings; collect or import some."
    return (
        f"The query {query!r} finds no problem in {store}; `diode-engine data stats` says what "
        "there is."
    )


def read_matching(store: Store, query: str) -> TimingTable:
    """The timings that a query finds. Raises NothingError where there is a query, and it finds
    none."""
    table = store.read(query)
    if query and not len(table):
        raise NothingError(describe_no_match(store.location, query))
    return table


def open_existing(store: Location) -> Store:
    """The store, migrated if needed; read-only where it cannot be written. Raises StoreError where
    there is no store, or an empty file."""
    backend = backend_of(store)
    if isinstance(store, Path) and backend.revision() is None:
        raise StoreError(f"The store {store} is damaged. {LOST}")
    return Store.open(store, read_only=not backend.is_writable())


def _readable(store: Location) -> Store:
    """The store, opened for reading only, unless it must be migrated first. Raises StoreError where
    there is no store."""
    try:
        return Store.open(store, read_only=True)
    except SchemaTooOldError:
        return open_existing(store)


_COUNTS = ("problems", "candidates", "failed", "timings", "aten", "aten_near_best")


def _counts(g: Statistic) -> dict[str, int]:
    return dict(
        zip(_COUNTS, (g.problems, g.candidates, g.failed, g.timings, g.aten, g.near), strict=True)
    )


def _groups_text(by: tuple[str, ...], groups: list[Statistic]) -> str:
    return format_records(
        [
            {
                **dict(zip(by, map(str, g.values), strict=True)),
                **{name: f"{n:,}" for name, n in _counts(g).items() if not name.startswith("aten")},
                "ATen near best": f"{100 * g.near / g.aten:.0f} %" if g.aten else "",
            }
            for g in groups
        ]
    )


def _dict(s: StoreStats, states: Mapping[int, str]) -> dict[str, Any]:
    counts = ("size_bytes", "problems", "candidates", "timings")
    return {
        **{name: getattr(s, name) for name in counts},
        **{name: dict(getattr(s, name)) for name in ("failures", "by_op", "by_dtype")},
        "by_environment": [
            {"environment": environment.to_dict(), "timings": n}
            for environment, n in s.by_environment
        ],
        "runs": [
            {
                "id": run.id,
                "kind": run.kind,
                "state": states.get(run.id, str(run.state)),
                "started": run.started.isoformat(),
                "timings": s.by_run.get(run.id, 0),
                "message": run.message,
            }
            for run in s.runs
        ],
    }


def _text(store: Location, s: StoreStats, states: Mapping[int, str]) -> str:
    failed = sum(s.failures.values())
    parts = [
        f"{store}: {s.timings:,} timings ({failed:,} failed) of {s.candidates:,} candidates on "
        f"{s.problems:,} problems, {s.size_bytes / 1e6:.1f} MB"
    ]
    by_name = [
        {"by": what, "": name, "timings": f"{n:,}"}
        for what, by in (("op", s.by_op), ("type", s.by_dtype), ("failure", s.failures))
        for name, n in by.items()
    ]
    by_environment = [
        {
            "hardware": e.hardware.name, "torch": e.torch or "?", "triton": e.triton or "?",
            "driver": e.driver or "?", "timings": f"{n:,}",
        }
        for e, n in s.by_environment
    ]  # fmt: skip
    last_runs = [
        {
            "run": str(run.id), "kind": run.kind, "state": states.get(run.id, str(run.state)),
            "started (UTC)": f"{run.started:%Y-%m-%d %H:%M}",
            "timings": f"{s.by_run.get(run.id, 0):,}", "message": run.message or "",
        }
        for run in s.runs[: -_LAST_RUNS - 1 : -1]
    ]  # fmt: skip
    if by_name:
        parts.append(format_records(by_name))
    if by_environment:
        parts.append(format_records(by_environment, spare=("driver", "triton"), cut="hardware"))
    if last_runs:
        parts.append(format_records(last_runs, cut="message"))
    if len(s.runs) > _LAST_RUNS:
        parts.append(f"{len(s.runs)} runs in all; `diode-engine runs list` shows them.")
    return "\n\n".join(parts)
