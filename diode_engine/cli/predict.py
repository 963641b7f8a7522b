"""diode-engine predict: microseconds for every candidate of a dataset file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from diode_engine import registry
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.models.looking import model_for, named_hardware, warn_unlike
from diode_engine.core.table import TimingTable
from diode_engine.models.predictor import Predictor
from diode_engine.store import Group, read_groups

_ROWS = 1 << 15  # predicted at a time, so that the first lines come while the rest is computed


@click.command()
@click.argument("dataset", type=click.Path(path_type=Path))
@options.model("the one for each environment's GPU")
@click.option("--hardware", metavar="NAME", help="Take the model for this GPU instead.")
@options.json_anyway
def predict(dataset: Path, reference: str | None, hardware: str | None) -> int:
    """Predict the time of every candidate in the file DATASET.

    Its rows may have times or not. To stdout goes one JSON line for each group of the file, in
    the file's order:

    \b
        {"problem": {"op": "mm", "M": …}, "predicted_us": [31.2, null, …], "model": "name@1"}

    predicted_us has one number of microseconds for each candidate of the group, in its order. It is
    null where the model has no prediction: for a type or a kind of kernel that it was not trained
    on. Where there is no model for the group's GPU, all numbers and the model are null. If there is
    none for any group, the exit code is 3.
    """
    if reference is not None and hardware is not None:
        raise click.UsageError("--model and --hardware both say which model to take; give one.")
    table, groups = read_groups(dataset)
    models = _load_models(groups, reference, hardware)
    for group, predicted, model in _predict_groups(table, groups, models):
        line = {"problem": group.problem.to_dict(), "predicted_us": predicted, "model": model}
        click.echo(json.dumps(line, allow_nan=False))
    if models and not any(models.values()):
        diagnostics.warn(
            "No model is for these GPUs, so nothing was predicted; train or import "
            "one, or name one with --model."
        )
        return ExitCode.NOTHING
    return ExitCode.OK


Loaded = tuple[str, Predictor]


def _load_models(
    groups: Sequence[Group], reference: str | None, hardware: str | None
) -> dict[str, Loaded | None]:
    """Return the model's name and the model, by the key of the groups' hardware."""
    there = {g.environment.hardware.key: g.environment.hardware for g in groups}
    only = None if hardware is None else named_hardware(hardware, there.values())
    found: dict[str, Loaded | None] = {}
    for device in there.values() if only is None else (only,):
        if reference is None:
            model = model_for(device)
        else:
            model = registry.resolve_for(reference, device.slug)
            warn_unlike(model, device)
        found[device.key] = None
        if model is None:
            diagnostics.warn(f"There is no model for {device.name} or a similar GPU.")
        else:
            found[device.key] = model.reference, Predictor.load(model.folder, device)
    return found if only is None else dict.fromkeys(there, found[only.key])


def _predict_groups(
    table: TimingTable, groups: Sequence[Group], models: dict[str, Loaded | None]
) -> Iterator[tuple[Group, list[float | None], str | None]]:
    """Groups of one model are predicted together, some thousand rows at a time."""
    start = 0
    while start < len(groups):
        model = models[groups[start].environment.hardware.key]
        first = groups[start].rows.start
        end = start
        while (
            end < len(groups)
            and models[groups[end].environment.hardware.key] is model
            and (end == start or groups[end].rows.stop - first <= _ROWS)
        ):
            end += 1
        rows = slice(first, groups[end - 1].rows.stop)
        microseconds: list[float | None] = [None] * (rows.stop - rows.start)
        if model is not None:
            us = model[1].predict_table(table.take(np.arange(rows.start, rows.stop)))
            microseconds = [None if x != x else float(f"{x:.7g}") for x in us.tolist()]
        for group in groups[start:end]:
            mine = microseconds[group.rows.start - first : group.rows.stop - first]
            yield group, mine, None if model is None else model[0]
        start = end
