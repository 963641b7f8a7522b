"""diode-engine models: which trained models there are, and what each came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diode_engine.cli import diagnostics

if TYPE_CHECKING:
    from diode_engine.hardware import Hardware
    from diode_engine.registry import ModelVersion

as_json_option = click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")


@click.group()
def models() -> None:
    """List, show and register trained models."""


@models.command("list")
@as_json_option
def list_(as_json: bool) -> None:
    """List the registered models, those that Diode ships and your own."""
    from diode_engine import registry
    from diode_engine.validation.text import aligned

    found = [_described(model) for model in registry.list_models()]
    if as_json:
        click.echo(json.dumps(found, allow_nan=False))
        return
    if not found:
        diagnostics.note(
            "There are no models; `diode-engine train` makes one, `diode-engine models register` "
            "takes one from a folder."
        )
        return
    rows = [
        [
            f"{m['model']}{' (default)' if m['default'] else ''}",
            m["hardware"],
            m["family"],
            str(m["problems"]),
            str(m["timings"]),
            "" if m["efficiency"] is None else f"{m['efficiency']:.3f}",
            m["created"][:10],
            "shipped" if m["shipped"] else "yours",
        ]
        for m in found
        if m["error"] is None
    ]
    header = ["model", "hardware", "family", "problems", "timings", "efficiency", "created", "from"]
    if rows:
        click.echo(aligned(header, rows, left=3))
    for m in found:
        if m["error"] is not None:
            diagnostics.warn(f"{m['folder']} cannot be used: {m['error']}")


@models.command()
@click.argument("name")
@as_json_option
def show(name: str, as_json: bool) -> None:
    """Show what the model NAME (NAME@VERSION, or its folder) says about itself: its hardware,
    what it was trained on, its metrics and its files."""
    from diode_engine import registry

    model = registry.resolve(name)
    described = {**_described(model), **model.manifest.to_dict()}
    described["identity"] = model.manifest.identity
    if as_json:
        click.echo(json.dumps(described, allow_nan=False))
        return
    m = model.manifest
    lines = {
        "model": described["model"] + (" (default)" if described["default"] else ""),
        "folder": str(model.folder),
        "identity": m.identity,
        "family": m.family,
        "purpose": m.purpose,
        "hardware": f"{m.hardware.name} ({m.hardware.backend} {m.hardware.arch})",
        "torch": ", ".join(m.torch),
        "triton": ", ".join(m.triton),
        "types": ", ".join(m.coverage.types),
        "kernels": ", ".join(m.coverage.kernels),
        "trained on": f"{m.data.timings} timings of {m.data.problems} problems",
        "datasets": ", ".join(m.data.datasets),
        "runs": ", ".join(m.data.runs),
        "features": f"version {m.feature_version} ({m.feature_names})",
        "created": f"{m.created} by Diode {m.diode}",
        "notes": m.notes,
        **{f"metric {key}": _value(value) for key, value in m.metrics.items()},
        **{f"file {e['file']}": f"{e['bytes']} bytes, sha256 {e['sha256']}" for e in m.files},
    }
    width = max(map(len, lines))
    click.echo("\n".join(f"{key:<{width}}  {value}" for key, value in lines.items() if value))


@models.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--name", help="Register it as the next version of this name. [default: its own]")
@click.option("--default", is_flag=True, help="Make it the one that is taken for its hardware.")
def register(path: Path, name: str | None, default: bool) -> None:
    """Copy the model in the folder PATH into your registry; its name goes to stdout."""
    from diode_engine import registry

    model = registry.register(path, name, default=default)
    diagnostics.note(f"Registered in {model.folder}.")
    click.echo(model.reference)


def model_for(hardware: Hardware) -> ModelVersion | None:
    """The registry's model for this hardware, or None; says so where it is another one's."""
    from diode_engine import registry

    match = registry.best_for(hardware)
    if match is None:
        return None
    trained_on = match.model.manifest.hardware.name
    if trained_on != hardware.name:  # devices of one name may differ in a clock
        diagnostics.warn(
            f"There is no model for {hardware.name}: {match.model.reference}, trained on "
            f"{trained_on}, is taken (likeness {match.likeness:.2f})."
        )
    return match.model


def _described(model: ModelVersion) -> dict[str, Any]:
    """A line of the list; where the model cannot be read, `error` says why."""
    from diode_engine import registry
    from diode_engine.errors import DiodeError

    out: dict[str, Any] = {
        "model": model.reference,
        "folder": str(model.folder),
        "shipped": model.shipped,
        "default": False,
        "error": None,
    }
    try:
        manifest = model.manifest
        out["default"] = registry.default_for(model.slug) == model
    except DiodeError as error:
        return {**out, "error": str(error)}
    efficiency = manifest.metrics.get("efficiency")
    return {
        **out,
        "hardware": manifest.hardware.name,
        "family": manifest.family,
        "problems": manifest.data.problems,
        "timings": manifest.data.timings,
        "efficiency": efficiency if isinstance(efficiency, float) else None,
        "created": manifest.created,
    }


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items())
    return str(value)
