"""diode-engine models list, show, compare and verify: commands that change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diode_engine import registry
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.options import FILE_OR_FOLDER, option
from diode_engine.cli.results import Result, result_command
from diode_engine.core.hardware import KNOWN, Hardware, detect, find_name
from diode_engine.errors import ModelError, NoSuchModelError, NothingError
from diode_engine.plain_text import format_fields, format_records, format_table
from diode_engine.registry import ModelEntry, ModelVersion

if TYPE_CHECKING:
    from diode_engine.models.manifest import GpuRecord

_NVIDIA = Path("/dev/nvidiactl")  # where there is none, there is no GPU that Diode chooses for


@click.command("list")
@result_command
@option("--hardware", metavar="NAME", help="Only the models for this GPU.")
@option(
    "--index", metavar="FILE", type=FILE_OR_FOLDER,
    help="List the models that this index offers for `models import` instead.",
)  # fmt: skip
def list_(hardware: str | None, index: Path | None) -> Result:
    """List the registered models: yours, those that Diode ships, and those of installed packages.

    The column `taken` shows which model is taken for a GPU, as its default or as the newest one;
    for a model of several GPUs, for how many of them.
    """
    if index is not None:
        return _list_index(index, hardware)
    seen = registry.overview()
    gpus = {slug for entry in seen.entries for slug in entry.model.slugs}
    meant = None if hardware is None else find_name(hardware, gpus)
    entries = [e for e in seen.entries if hardware is None or meant in e.model.slugs]
    taken = find_model_here()
    here = None if taken is None else taken.model
    if not seen.entries:
        diagnostics.note(
            "There are no models; `diode-engine train` makes one, `diode-engine models register` "
            "takes one from a folder, `models import` from an archive."
        )
    elif not entries:
        known = ", ".join(sorted(gpus))
        raise NothingError(f"No model is for {hardware!r}; there are models for {known}.")
    if here is not None:
        diagnostics.note(f"On this machine's GPU {here.reference} is taken.")
    for e in entries:
        if e.error is not None:
            warn_unusable(e.model, e.error)
    for problem in seen.problems:
        diagnostics.warn(problem)
    rows = [_row(e) for e in entries if e.manifest is not None]
    tables = [format_records(rows)] if rows else []
    if hardware is None:
        of = [
            [gpu.name, match.model.reference, match.describe_basis(gpu)]
            if match
            else [gpu.name, "", "no model"]
            for gpu, match in registry.taken_for_all()
        ]
        tables.append(format_table(["for the GPU", "model", "known"], of))
    document = [{**e.to_dict(), "taken_here": e.model == here} for e in entries]
    return Result(document, "\n\n".join(tables))


def _list_index(index: Path, hardware: str | None) -> Result:
    from diode_engine.registry.index import read_index

    offers = list(read_index(index))
    if hardware is not None:
        meant = find_name(hardware, {o.hardware for o in offers})
        offers = [o for o in offers if o.hardware == meant]
    if not offers:
        diagnostics.note(f"{index} offers nothing.")
    header = ["reference", "hardware", "about", "bytes"]
    rows = [[str(getattr(offer, name)) for name in header] for offer in offers]
    return Result([asdict(offer) for offer in offers], format_table(header, rows) if rows else "")


def _row(e: ModelEntry) -> dict[str, str]:
    d = e.to_dict()
    return {
        "model": d["model"], "hardware": ", ".join(d["gpus"]), "family": d["family"],
        "status": d["status"], "aliases": ", ".join(d["aliases"]),
        "taken": _describe_taken(e), "timings": f"{d['timings']:,}",
        "efficiency": "" if d["efficiency"] is None else f"{d['efficiency']:.3f}",
        "created": d["created"][:10], "from": d["from"],
    }  # fmt: skip


def _describe_taken(e: ModelEntry) -> str:
    how = dict.fromkeys("default" if m.default_of else "newest" for m in e.taken.values())
    share = f" ({len(e.taken)} of {len(e.manifest.gpus)})" if e.manifest and e.manifest.gpus else ""
    return ", ".join(how) + share if how else ""


def find_model_here() -> registry.Match | None:
    """The model that is taken on this machine's GPU; None where there is none. torch, which takes
    seconds to import, is imported only where there is an NVIDIA GPU."""
    return registry.best_for(detect()) if _NVIDIA.exists() else None


@click.command()
@options.model_argument
@options.hardware
@result_command
@option("--card", "as_card", is_flag=True, help="Write its model card, as Markdown.")
def show(model: str, hardware: str | None, as_card: bool) -> Result | ExitCode:
    """Show what MODEL is: what it was trained on, its metrics, its files, and what was done with
    it. With --hardware, its status, aliases and history are those for this GPU."""
    found = registry.resolve_here(model, hardware)
    slug = found.slug if found.source is None else found.slug_named(hardware)
    known = registry.facts_of(found, slug)
    if as_card:
        click.echo(registry.card(found, known), nl=False)
        return ExitCode.OK
    m = found.manifest
    reference = found.reference_on(slug)
    aliases = [a for a, r in registry.aliases_for(slug).items() if r == reference]
    history = [e for e in registry.history(slug) if reference in (e.model, e.before)]
    document = {
        "model": found.reference,
        "folder": str(found.folder),
        "source": None if found.source is None else str(found.source.kind),
        "status": str(registry.status_of(found, known=known)),
        "aliases": aliases,
        "tags": list(known.tags),
        "note": known.note,
        "gate": known.gate,
        "differences": list(registry.differences(m)),
        "history": [asdict(event) for event in history],
        "lineage": registry.lineage(found, known),
        **m.to_dict(),
        "identity": m.identity,
    }
    lines = {
        "model": found.reference,
        "status": document["status"],
        "aliases": ", ".join(aliases),
        "tags": ", ".join(known.tags),
        "note": known.note,
        "folder": str(found.folder),
        "identity": m.identity,
        "family": m.family,
        "purpose": m.purpose,
        "hardware": ", ".join(
            f"{r.hardware.name} ({r.hardware.backend} {r.hardware.arch})" for r in m.records
        ),
        "torch": ", ".join(m.torch),
        "triton": ", ".join(m.triton),
        "here": ", ".join(f"other {text}" for text in registry.differences(m)),
        "types": ", ".join(m.coverage.types),
        "kernels": ", ".join(m.coverage.kernels),
        "trained on": f"{m.data.timings} timings of {m.data.problems} problems",
        "datasets": ", ".join(m.data.datasets),
        "runs": ", ".join(m.data.runs),
        "imported from": "" if known.origin is None else str(known.origin.get("archive", "")),
        "features": f"version {m.features['version']} ({m.features['names']})",
        "created": f"{m.created} by Diode {m.diode}",
        "notes": m.notes,
        **{f"metric {key}": _value(value) for key, value in m.metrics.items()},
        **{f"on {r.hardware.name}": _describe_record(r) for r in m.gpus},
        **{f"file {e['file']}": f"{e['bytes']} bytes, sha256 {e['sha256']}" for e in m.files},
    }
    told = [*lines.items(), *((f"{e.at[:10]} {e.at[11:16]}", e.describe()) for e in history)]
    return Result(document, format_fields(told))


def _describe_record(r: GpuRecord) -> str:
    """What a model of several GPUs has of one of them."""
    learned = f"{r.timings} timings of {r.problems} problems"
    return "; ".join([learned, *(f"{key} {_value(value)}" for key, value in r.metrics.items())])


@click.command()
@click.argument("models", metavar="MODEL MODEL...", nargs=-1, required=True)
@options.hardware
@result_command
def compare(models: tuple[str, ...], hardware: str | None) -> Result:
    """Show models side by side: what each was made of, and its own metrics.

    Metrics of models that were judged on different problems cannot be compared; `diode-engine
    validate` compares models on your problems.
    """
    if len(models) < 2:
        raise click.UsageError("Name two models or more to compare.")
    found = [registry.resolve_here(model, hardware) for model in models]
    columns = [registry.side_by_side(model) for model in found]
    names = list(dict.fromkeys(name for column in columns for name in column))
    if len({column.get("problems") for column in columns}) > 1:
        diagnostics.warn("The models were judged on different problems.")
    rows = [[name, *(_value(c[name]) if name in c else "" for c in columns)] for name in names]
    lines = [
        {"model": model.reference, **{name: column.get(name) for name in names}}
        for model, column in zip(found, columns, strict=True)
    ]
    return Result(lines, format_table(["", *(model.reference for model in found)], rows))


@click.command()
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@options.hardware
@result_command
def verify(models: tuple[str, ...], hardware: str | None) -> Result:
    """Load each MODEL (by default all registered ones), check the hashes of its files, and check
    that aliases point to a model."""
    found = [registry.resolve_here(model, hardware) for model in models] or registry.list_models()
    problems = () if models else registry.overview().problems
    lines = []
    for model in found:
        error = None
        try:
            registry.verify(model)
        except ModelError as refused:
            error = str(refused)
        lines.append({"model": model.reference, "folder": str(model.folder), "error": error})
    said = [f"{line['model']}: {line['error'] or 'its files are whole'}" for line in lines]
    broken = bool(problems) or any(line["error"] for line in lines)
    return Result(
        {"models": lines, "problems": list(problems)}, "\n".join([*said, *problems]),
        ExitCode.FAILURE if broken else ExitCode.OK,
    )  # fmt: skip


def note_default(model: ModelVersion) -> None:
    """Says which model the GPU of this one takes, now that this one is registered."""
    hardware = model.manifest.hardware
    match = registry.best_for(hardware, model.manifest.purpose)
    if match is not None and match.model == model:
        diagnostics.note(f"It is the model that is taken for {hardware.name} from now on.")
    elif match is not None:
        diagnostics.note(
            f"{hardware.name} still takes {match.model.reference}; `diode-engine models promote "
            f"{model.reference}` compares both, and makes {model.reference} the default if it is "
            "no worse."
        )


def warn_unlike(model: ModelVersion, device: Hardware) -> None:
    """Warns where none of the model's GPUs is much like the device."""
    likeness = model.manifest.likeness(device)
    if likeness < registry.MIN_LIKENESS:
        trained_on = model.manifest.record_for(device).hardware.name
        diagnostics.warn(
            f"{model.reference} was trained on {trained_on}; its predictions for {device.name} "
            f"may be wrong (likeness {likeness:.2f})."
        )


def warn_unusable(model: ModelVersion, error: object) -> None:
    """Warns that a registered model cannot be used."""
    diagnostics.warn(f"{model.folder} cannot be used: {error}")


def model_for(hardware: Hardware) -> ModelVersion | None:
    """The registry's model for this hardware, or None. Warns where it is another GPU's model."""
    match = registry.best_for(hardware)
    if match is None:
        return None
    if match.hardware.name != hardware.name:  # devices of one name may differ in a clock
        diagnostics.warn(
            f"There is no model for {hardware.name}: {match.model.reference}, trained on "
            f"{match.hardware.name}, is taken (likeness {match.likeness:.2f})."
        )
    return match.model


def named_hardware(name: str, these: Iterable[Hardware] = ()) -> Hardware:
    """The hardware of this name (or slug): one of these, one that a model was trained on, or one
    that Diode knows."""
    own = {hardware.name: hardware for hardware in these}
    by_name = {**registry.gpus_of_models(warn_unusable), **KNOWN, **own}
    if (meant := find_name(name, by_name)) is not None:
        return by_name[meant]
    names = ", ".join(sorted(by_name))
    raise NoSuchModelError(f"{name!r} is none, or several, of the GPUs that Diode knows: {names}.")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items())
    return "" if value is None else str(value)
