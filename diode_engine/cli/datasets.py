"""diode-engine data merge and verify: dataset files, without the user's store."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output
from diode_engine.cli.options import as_json_option, json_anyway_option, option
from diode_engine.cli.problems import data
from diode_engine.errors import DatasetError

_FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())


@data.command()
@_FILES
@option(
    "--output", metavar="FILE", required=True, type=click.Path(),
    help="The file to write, replaced if it exists; its suffix says how, as for `data export`.",
)  # fmt: skip
@json_anyway_option
def merge(files: tuple[str, ...], output: str) -> None:
    """Write the timings of several dataset files to one; timings that are in several are written
    once.

    All files are read and checked before anything is written. The counts go to stdout as JSON.
    """
    from diode_engine.store import Store, export_dataset, import_dataset

    check_output(Path(output), FileKind.DATASET, sources=map(Path, files))
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
@as_json_option
def verify(files: tuple[str, ...], as_json: bool) -> int:
    """Read dataset files, Diode's or torch-diode's, and say what is in each or what is wrong.

    Two files with the same key hold the same timings, in whatever order and form. Exit code 1 if
    one is not good.
    """
    found = [_verified(file) for file in files]
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


def _verified(file: str) -> dict[str, Any]:
    import numpy as np

    from diode_engine.store import dataset_key, read_dataset

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
        "problems": len(np.unique(table.problem)),
        "candidates": len(np.unique(table.candidate)),
        "hardware": sorted(
            {table.environments[i].hardware.name for i in np.unique(table.environment)}
        ),
    }
