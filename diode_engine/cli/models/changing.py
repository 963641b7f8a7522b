"""diode-engine models register, import, export, alias, tag, note and remove."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from diode_engine import registry
from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output
from diode_engine.cli.models.looking import note_default
from diode_engine.cli.options import FILE_OR_FOLDER, WRITTEN_FILE, option
from diode_engine.cli.results import Result, result_command
from diode_engine.registry import ModelFacts, ModelVersion


@click.command()
@click.argument("path", type=FILE_OR_FOLDER)
@options.name("its own")
@option(
    "--default", is_flag=True,
    help="Make it the default of its GPU without the gate of `promote`.",
)  # fmt: skip
@result_command
def register(path: Path, name: str | None, default: bool) -> Result:
    """Copy the model in the folder or file PATH into your registry; its name goes to stdout."""
    model = registry.register(path, name, default=default)
    diagnostics.note(f"Registered in {model.folder}.")
    note_default(model)
    return Result({"model": model.reference, "folder": str(model.folder)}, model.reference)


@click.command()
@click.argument("alias")
@click.argument("model", required=False)
@option("--remove", is_flag=True, help="Remove the alias.")
@options.hardware
@options.reason
@result_command
def alias(
    alias: str, model: str | None, remove: bool, hardware: str | None, reason: str
) -> Result | ExitCode:
    """Make ALIAS point to MODEL on its hardware, or show what it points to.

    The alias default is changed by `models promote` and `models rollback`.
    """
    if remove and model is not None:
        raise click.UsageError("--remove removes an alias: give no model with it.")
    if alias == registry.DEFAULT and model is not None:
        raise click.UsageError(
            "The alias default is set by `diode-engine models promote`, which validates the "
            "model first; --force overrules it."
        )
    found = registry.resolve_here(model or alias, hardware)
    slug = found.slug_named(hardware)
    if remove:
        registry.remove_alias(alias, slug)
        diagnostics.note(f"{alias} no longer points to {found.reference}.")
        return ExitCode.OK
    code = ExitCode.OK
    if model is not None and not registry.set_alias(alias, found, slug, reason=reason):
        diagnostics.note("It pointed to this model already.")
        code = ExitCode.NOTHING
    line = {"alias": alias, "hardware": slug, "model": found.reference}
    return Result(line, f"{alias}: {found.reference} ({slug})", code)


@click.command()
@options.model_argument
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@option("--remove", metavar="TAG", multiple=True, help="Remove this tag; may be repeated.")
@options.hardware
@result_command
def tag(model: str, tags: tuple[str, ...], remove: tuple[str, ...], hardware: str | None) -> Result:
    """Add tags to MODEL, or remove some; without any, show its tags."""
    found = registry.resolve_here(model, hardware)
    changed = tags or remove
    facts = registry.tag(found, tags, remove) if changed else registry.facts_of(found)
    return _facts_result(found, facts)


@click.command()
@options.model_argument
@click.argument("text")
@options.hardware
@result_command
def note(model: str, text: str, hardware: str | None) -> Result:
    """Write a note on MODEL, in place of the earlier one."""
    found = registry.resolve_here(model, hardware)
    return _facts_result(found, registry.set_note(found, text))


def _facts_result(model: ModelVersion, facts: ModelFacts) -> Result:
    text = " ".join([f"{model.reference}:", *facts.tags, facts.note]).rstrip()
    return Result({"model": model.reference, **asdict(facts)}, text)


@click.command()
@options.model_argument
@option("--yes", is_flag=True, help="Do not ask.")
@option("--with-aliases", is_flag=True, help="Remove its aliases too.")
@options.hardware
@options.reason
@result_command
def remove(
    model: str, yes: bool, with_aliases: bool, hardware: str | None, reason: str
) -> Result | ExitCode:
    """Delete MODEL from your registry. Its number is not used again."""
    found = registry.resolve_here(model, hardware)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("There is no terminal to ask on; give --yes to remove it.")
        if not click.confirm(f"Delete {found.reference} in {found.folder}?", err=True):
            diagnostics.note("It stays.")
            return ExitCode.NOTHING
    registry.remove(found, aliases=with_aliases, reason=reason)
    diagnostics.note(f"{found.reference} is removed.")
    return Result({"removed": found.reference}, found.reference)


@click.command()
@options.model_argument
@click.argument("file", type=WRITTEN_FILE)
@option("--replace", is_flag=True, help="Replace FILE if it is an archive of a model.")
@options.hardware
@result_command
def export(model: str, file: Path, replace: bool, hardware: str | None) -> Result:
    """Write MODEL to the archive FILE, to be passed on; its SHA-256 goes to stdout.

    The same model makes the same bytes on every machine.
    """
    check_output(file, FileKind.MODEL)
    found = registry.resolve_here(model, hardware)
    digest = registry.export_model(found, file, replace=replace)
    size = file.stat().st_size
    diagnostics.note(f"{found.reference} exported to {file} ({size:,} bytes).")
    line = {"model": found.reference, "file": str(file), "sha256": digest, "bytes": size}
    return Result(line, f"{digest}  {file}")


@click.command("import")
@click.argument("source", metavar="FILE|NAME")
@options.name("its own")
@option(
    "--index", metavar="FILE", type=FILE_OR_FOLDER,
    help="Take the model NAME, or NAME@VERSION, that this index offers; `models list --index` "
    "shows them.",
)  # fmt: skip
@option("--sha256", metavar="HASH", help="Refuse an archive FILE that has another hash.")
@options.hardware
@result_command
def import_(
    source: str, name: str | None, index: Path | None, sha256: str | None, hardware: str | None
) -> Result:
    """Register the model in an archive that `models export` wrote; its name goes to stdout.

    All of it is checked before anything is registered, and nothing in it is ever executed.
    """
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
