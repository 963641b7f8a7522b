"""diode-engine data: timings into the store, out of it, and how many there are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.options import store_option
from diode_engine.errors import StoreError

if TYPE_CHECKING:
    from diode_engine.store import Stats, Store


@click.group()
def data() -> None:
    """Import, export and count timings."""


@data.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@store_option
def import_(files: tuple[str, ...], store: Path) -> None:
    """Import dataset files into the store.

    Each file is read whole or not at all, and one that was imported before adds nothing. To
    stdout goes one JSON line a file: its name, the run, whether it is new, and the timings
    added. The first bad file ends it; what was imported before stays.
    """
    from diode_engine.store import Store, import_dataset

    with Store.open(store) as opened:
        for file in files:
            done = import_dataset(opened, file)
            diagnostics.note(
                f"{file}: {done.timings} timings imported into {store}."
                if done.new
                else f"{file}: its timings were imported before, by run {done.run}."
            )
            line = {"file": file, "run": done.run, "new": done.new, "timings": done.timings}
            click.echo(json.dumps(line))


@data.command()
@click.argument("file", type=click.Path())
@store_option
@click.option("--hardware", metavar="NAME", help="Only the timings of the GPU of this name.")
def export(file: str, store: Path, hardware: str | None) -> None:
    """Export the store's timings to a dataset file, which is replaced if it exists.

    The suffix says how: .json or .msgpack, and .zst after either to compress it. The counts
    go to stdout as JSON.
    """
    from diode_engine.store import export_dataset

    with existing(store) as opened:
        names = sorted({e.hardware.name for e, _ in opened.stats().by_environment})
        if hardware is not None and hardware not in names:
            raise StoreError(
                f"{store} has no timings of a GPU named {hardware!r}; it has some of: "
                f"{', '.join(names) or 'none'}."
            )
        timings = export_dataset(opened, file, hardware=hardware)
    diagnostics.note(f"{file}: {timings} timings exported.")
    click.echo(json.dumps({"file": file, "timings": timings}))


@data.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
def stats(store: Path, as_json: bool) -> None:
    """Count what the store holds."""
    with existing(store) as opened:
        counted = opened.stats()
    click.echo(json.dumps(_dict(counted)) if as_json else _text(store, counted))


def existing(path: Path) -> Store:
    """The store, migrated where it has to be; read-only where its file cannot be written.
    Raises StoreError where there is none."""
    from diode_engine.store import Store

    return Store.open(path, read_only=not os.access(path, os.W_OK))


def _dict(s: Stats) -> dict[str, Any]:
    return {
        "size_bytes": s.size_bytes,
        "problems": s.problems,
        "candidates": s.candidates,
        "timings": s.timings,
        "failures": dict(s.failures),
        "by_op": dict(s.by_op),
        "by_dtype": dict(s.by_dtype),
        "by_environment": [
            {"environment": environment.to_dict(), "timings": n}
            for environment, n in s.by_environment
        ],
        "runs": [
            {
                "id": run.id,
                "kind": run.kind,
                "state": str(run.state),
                "started": run.started.isoformat(),
                "timings": s.by_run.get(run.id, 0),
                "message": run.message,
            }
            for run in s.runs
        ],
    }


def _text(store: Path, s: Stats) -> str:
    from diode_engine.validation.text import aligned

    failed = sum(s.failures.values())
    parts = [
        f"{store}: {s.timings:,} timings ({failed:,} failed) of {s.candidates:,} candidates on "
        f"{s.problems:,} problems, {s.size_bytes / 1e6:.1f} MB"
    ]
    counts = [
        [what, name, f"{n:,}"]
        for what, by in (("op", s.by_op), ("type", s.by_dtype), ("failure", s.failures))
        for name, n in by.items()
    ]
    if counts:
        parts.append(aligned(["by", "", "timings"], counts, left=2))
    if s.by_environment:
        rows = [
            [e.hardware.name, e.driver or "?", e.torch or "?", e.triton or "?", f"{n:,}"]
            for e, n in s.by_environment
        ]
        parts.append(aligned(["hardware", "driver", "torch", "triton", "timings"], rows, left=4))
    if s.runs:
        rows = [
            [
                str(run.id),
                run.kind,
                str(run.state),
                f"{run.started:%Y-%m-%d %H:%M}",
                run.message or "",
                f"{s.by_run.get(run.id, 0):,}",
            ]
            for run in s.runs
        ]
        header = ["run", "kind", "state", "started (UTC)", "message", "timings"]
        parts.append(aligned(header, rows, left=5))
    return "\n\n".join(parts)
