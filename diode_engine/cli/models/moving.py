"""diode-engine models export and import: one file for each model."""

from __future__ import annotations

from pathlib import Path

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output
from diode_engine.cli.options import (
    FILE_OR_FOLDER,
    WRITTEN_FILE,
    hardware_option,
    model_argument,
    name_option,
    option,
)
from diode_engine.cli.results import Result, result_command


@click.command()
@model_argument
@click.argument("file", type=WRITTEN_FILE)
@option("--replace", is_flag=True, help="Replace FILE if it is an archive of a model.")
@hardware_option
@result_command
def export(model: str, file: Path, replace: bool, hardware: str | None) -> Result:
    """Write MODEL to the archive FILE, to be passed on; its SHA-256 goes to stdout.

    The same model makes the same bytes on every machine.
    """
    from diode_engine import registry

    check_output(file, FileKind.MODEL)
    found = registry.resolve_here(model, hardware)
    digest = registry.export_model(found, file, replace=replace)
    size = file.stat().st_size
    diagnostics.note(f"{found.reference} exported to {file} ({size:,} bytes).")
    line = {"model": found.reference, "file": str(file), "sha256": digest, "bytes": size}
    return Result(line, f"{digest}  {file}")


@click.command("import")
@click.argument("source", metavar="FILE|NAME")
@name_option("its own")
@option(
    "--index", metavar="FILE", type=FILE_OR_FOLDER,
    help="Take the model NAME, or NAME@VERSION, that this index offers; `models list --index` "
    "shows them.",
)  # fmt: skip
@option("--sha256", metavar="HASH", help="Refuse an archive FILE that has another hash.")
@hardware_option
@result_command
def import_(
    source: str, name: str | None, index: Path | None, sha256: str | None, hardware: str | None
) -> Result:
    """Register the model in an archive that `models export` wrote; its name goes to stdout.

    All of it is checked before anything is registered, and nothing in it is ever executed.
    """
    from diode_engine import registry

    if index is None:
        if hardware is not None:
            raise click.UsageError("--hardware chooses among an index's models; give --index.")
        model, new = registry.import_model(
            Path(source), name, sha256=None if sha256 is None else sha256.lower()
        )
    else:
        from diode_engine.registry.index import import_offer, offered, read_index

        if sha256 is not None:
            raise click.UsageError("The index has the hash; give --sha256 with a FILE only.")
        offer = offered(read_index(index), source, hardware)
        with diagnostics.progress() as display:
            task = display.add_task(f"Fetching {offer.reference}", total=offer.bytes)
            model, new = import_offer(
                offer, name, report=lambda done, total: display.update(task, completed=done)
            )
    if new:
        diagnostics.note(f"Registered in {model.folder}.")
    else:
        diagnostics.note(f"{model.reference} is the same model; nothing was imported.")
    line = {"model": model.reference, "folder": str(model.folder), "new": new}
    return Result(line, model.reference, ExitCode.OK if new else ExitCode.NOTHING)
