"""diode-engine validate: a model beside those it wants to replace, on the same problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.data import existing
from diode_engine.cli.models import model_for
from diode_engine.cli.options import store_option
from diode_engine.errors import RegistryError, TrainingError

if TYPE_CHECKING:
    from diode_engine.registry import ModelVersion
    from diode_engine.store import Store
    from diode_engine.table import TimingTable
    from diode_engine.validation import Report


@click.command()
@click.option(
    "--model",
    "reference",
    metavar="NAME|PATH",
    help="NAME, NAME@VERSION or a model's folder. [default: the one for the timings' GPU]",
)
@store_option
@click.option(
    "--dataset",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Take the timings from this dataset file, not from the store.",
)
@click.option(
    "--held-out/--all",
    "only_held_out",
    default=True,
    help="Judge on the problems that training holds out, or on all.  [default: held-out]",
)
@click.option("--json", "as_json", is_flag=True, help="Write the report as JSON.")
@click.option(
    "--worst",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How many of the worst choices to list.",
)
def validate(
    reference: str | None,
    store: Path,
    dataset: Path | None,
    only_held_out: bool,
    as_json: bool,
    worst: int,
) -> None:
    """Judge a model on problems that it has not seen.

    The report goes to stdout: how near to the best measured kernel the model's choices are, and
    those of ATen, max-autotune, nvMatmulHeuristics and others on the same problems. Where the
    timings are the store's, a run of kind validate in it keeps the main figures.
    """
    from diode_engine.store import read_dataset

    def judge(table: TimingTable) -> Report:
        return _judge(table, reference, only_held_out=only_held_out, worst=worst)

    if dataset is not None:
        report = judge(read_dataset(dataset))
    else:
        with existing(store) as opened:
            spec = {"model": reference, "held_out": only_held_out}
            report = _as_run(opened, spec, lambda: judge(opened.read()))
    click.echo(json.dumps(report.to_dict(), allow_nan=False) if as_json else report.render())


def _judge(table: TimingTable, reference: str | None, *, only_held_out: bool, worst: int) -> Report:
    from diode_engine import registry
    from diode_engine.models.predictor import Predictor
    from diode_engine.training.splits import split
    from diode_engine.validation import evaluate

    model = _only_model(table) if reference is None else registry.resolve(reference)
    table = _comparable(table, model)
    if only_held_out:
        table = split(table)[1]
        if not len(table):
            raise TrainingError(
                "None of the problems with timings is one that training holds out; judge the "
                "model on all of them with --all, or collect more."
            )
    diagnostics.note(f"Judging {model.reference} on {len(table)} timings ...")
    predictor = Predictor.load(model.folder)
    report = evaluate(table, predictor, name=model.reference, worst=worst)
    notes = f"{model.reference} says: {model.manifest.notes}" if model.manifest.notes else ""
    return replace(report, notes=(*report.notes, notes)) if notes else report


def _hardware(table: TimingTable) -> list[str]:
    return sorted({table.environments[i].hardware.name for i in set(table.environment.tolist())})


def _only_model(table: TimingTable) -> ModelVersion:
    """The model for the GPU that the timings are of."""
    names = _hardware(table)
    if not names:
        raise TrainingError("There are no timings to judge a model on; collect or import some.")
    if len(names) > 1:
        raise RegistryError(
            f"There are timings of several GPUs ({', '.join(names)}); name the model to judge "
            "with --model."
        )
    hardware = table.environments[int(table.environment[0])].hardware
    model = model_for(hardware)
    if model is None:
        raise RegistryError(
            f"There is no model for {hardware.name}; train one, or name one with --model."
        )
    return model


def _comparable(table: TimingTable, model: ModelVersion) -> TimingTable:
    """The timings of the model's GPU, and of them those with the model's Triton, where there
    are any."""
    import numpy as np

    manifest = model.manifest
    names = _hardware(table)
    if manifest.hardware.name not in names:
        if len(names) != 1:
            raise TrainingError(
                f"There are no timings of {manifest.hardware.name}, which {model.reference} was "
                f"trained on, but of: {', '.join(names) or 'none'}."
            )
        diagnostics.warn(
            f"{model.reference} was trained on {manifest.hardware.name}, these are timings of "
            f"{names[0]}."
        )
        return table
    device = [e.hardware.name == manifest.hardware.name for e in table.environments]
    rows = np.array(device, np.bool_)[table.environment]
    compiled = [e.triton in manifest.triton for e in table.environments]
    same = rows & np.array(compiled, np.bool_)[table.environment]
    if manifest.triton and not same.any():
        diagnostics.warn(
            f"{model.reference} was trained on timings with Triton {', '.join(manifest.triton)}; "
            "these are of others."
        )
    return table.take(same if same.any() else rows)


def _as_run(store: Store, spec: Mapping[str, object], work: Callable[[], Report]) -> Report:
    """The report, and a run of kind validate that says how it ended."""
    from diode_engine.runs import Heartbeat, begin

    if store.read_only:
        diagnostics.warn(f"{store.path} cannot be written, so it keeps no record of this.")
        return work()
    run = begin(store, "validate", spec)
    state, message = "failed", None
    try:
        with Heartbeat(store, run) as heartbeat:
            report = work()
            heartbeat.check()
        figures = {"problems": report.problems, "efficiency": report.efficiency}
        if report.errors is not None:
            figures["log_rmse"] = report.errors.rmse_log
        store.update_run(run, progress=figures)
        state, message = "done", f"{report.model}: {report.efficiency:.3f} of the best"
        return report
    except KeyboardInterrupt:
        state, message = "cancelled", "stopped by the user"
        raise
    except Exception as error:
        message = str(error)
        raise
    finally:
        store.finish_run(run, state, message)
