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
    from diode_engine.models.fitting import Progress
    from diode_engine.registry import ModelVersion
    from diode_engine.store import Store
    from diode_engine.table import TimingTable
    from diode_engine.training.cross_validation import CrossValidation
    from diode_engine.validation import Report


@click.command()
@click.option(
    "--model",
    "reference",
    metavar="NAME|PATH",
    help="NAME, NAME@VERSION or a model's folder. [default: the one for the timings' GPU]",
)
@store_option
@click.option("--query", default="", help="Judge on the problems that this filter query finds.")
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
@click.option(
    "--cross-validate",
    "kind",
    type=click.Choice(("folds", "llm", "sizes")),
    help="Judge no model but a way of making them: train one anew for each fold of the problems, "
    "each named transformer left out, or the tenth of the problems with the most work.",
)
@click.option(
    "--family",
    type=click.Choice(("trees", "network", "ensemble", "distilled")),
    help="What --cross-validate trains.  [default: ensemble]",
)
@click.option("--json", "as_json", is_flag=True, help="Write the report as JSON.")
@click.option(
    "--figure",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw it into this file too, an .svg, .png or .pdf.",
)
@click.option(
    "--top-n-worst",
    "worst",
    metavar="N",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How many of the worst choices to list.",
)
def validate(
    reference: str | None,
    store: Path,
    query: str,
    dataset: Path | None,
    only_held_out: bool,
    kind: str | None,
    family: str | None,
    as_json: bool,
    figure: Path | None,
    worst: int,
) -> None:
    """Judge a model on problems that it has not seen.

    The report goes to stdout: how near to the best measured kernel the model's choices are, and
    those of ATen, max-autotune, nvMatmulHeuristics and others on the same problems; how sure it
    is and whether that is so. Where the timings are the store's, a run of kind validate in it
    keeps the report.
    """
    from diode_engine.store import read_dataset
    from diode_engine.training.splits import split
    from diode_engine.validation import Report

    if dataset is not None and query:
        raise click.UsageError("--query asks the store, --dataset reads a file: give one of them.")
    if kind is None and family is not None:
        raise click.UsageError("--family belongs to --cross-validate; name a model with --model.")
    if kind is not None and (reference is not None or figure is not None):
        raise click.UsageError("--cross-validate trains models: it takes no --model or --figure.")
    if figure is not None:
        from diode_engine.validation.figure import check

        check(figure)

    def judge(
        table: TimingTable, check: Callable[[], None] = lambda: None
    ) -> Report | CrossValidation:
        if kind is not None:
            if only_held_out:
                diagnostics.note("The problems that training holds out take no part.")
                table = split(table)[0]
            return _cross_validated(table, kind, family or "ensemble", check)
        return _judge(table, reference, only_held_out=only_held_out)

    if dataset is not None:
        report = judge(read_dataset(dataset))
    else:
        with existing(store) as opened:
            spec = {
                "model": reference, "query": query or None, "held_out": only_held_out,
                "cross_validate": kind, "family": family,
            }  # fmt: skip
            report = _as_run(opened, spec, lambda check: judge(opened.read(query), check))
    if as_json:
        click.echo(json.dumps(report.to_dict(), allow_nan=False))
    elif isinstance(report, Report):
        click.echo(report.render(worst))
    else:
        click.echo(report.render())
    if figure is not None and isinstance(report, Report):
        from diode_engine.validation.figure import draw

        draw(report, figure)
        diagnostics.note(f"Drawn into {figure}.")


def _cross_validated(
    table: TimingTable, kind: str, family: str, check: Callable[[], None]
) -> CrossValidation:
    """`check` ends it by an exception, where somebody wants that."""
    from diode_engine.cli.train import fit_report
    from diode_engine.training.cross_validation import cross_validate

    with diagnostics.progress() as display:
        shown = fit_report(display)

        def report(member: str, progress: Progress) -> None:
            check()
            shown(member, progress)

        return cross_validate(table, kind, family=family, report=report)


def to_judge(
    table: TimingTable, reference: str | None, *, only_held_out: bool
) -> tuple[ModelVersion, TimingTable, TimingTable | None]:
    """The model, the timings to judge it on, and, where these are held out, those that it may
    have learned from. Raises RegistryError and TrainingError where there is none."""
    from diode_engine import registry
    from diode_engine.training.splits import split

    model = _only_model(table) if reference is None else registry.resolve(reference)
    table, seen = _comparable(table, model), None
    everything = model.manifest.everything
    if only_held_out:
        seen, table = split(table)
        if not len(table):
            raise TrainingError(
                "None of the problems with timings is one that training holds out; judge the "
                "model on all of them with --all, or collect more."
            )
        if everything is None:
            diagnostics.warn(f"Nobody knows whether {model.reference} has seen these problems.")
        elif everything:
            diagnostics.warn(
                f"{model.reference} was trained on the held-out problems too: these figures are "
                "not those of problems that it has not seen; its notes tell those."
            )
    diagnostics.note(f"Judging {model.reference} on {len(table)} timings ...")
    return model, table, seen


def _judge(table: TimingTable, reference: str | None, *, only_held_out: bool) -> Report:
    from diode_engine.models.predictor import Predictor
    from diode_engine.validation import evaluate

    model, table, seen = to_judge(table, reference, only_held_out=only_held_out)
    everything = model.manifest.everything
    predictor = Predictor.load(model.folder)
    unseen = None if everything is None else only_held_out and not everything
    report = evaluate(table, predictor, name=model.reference, unseen=unseen, seen=seen)
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


def _as_run(
    store: Store,
    spec: Mapping[str, object],
    work: Callable[[Callable[[], None]], Report | CrossValidation],
) -> Report | CrossValidation:
    """The report, and a run of kind validate that keeps it and says how it ended. `work` is
    given what raises KeyboardInterrupt where somebody has asked the run to stop."""
    from diode_engine.runs import Heartbeat, begin

    if store.read_only:
        diagnostics.warn(f"{store.path} cannot be written, so it keeps no record of this.")
        return work(lambda: None)
    run = begin(store, "validate", spec)
    state, message = "failed", None
    try:
        with Heartbeat(store, run) as heartbeat:
            report = work(heartbeat.check)
            heartbeat.check()
        store.set_result(run, report.to_dict())
        figures, message = _main_figures(report)
        store.update_run(run, progress=figures)
        state = "done"
        return report
    except KeyboardInterrupt:
        state, message = "cancelled", "stopped by the user"
        raise
    except Exception as error:
        message = str(error)
        raise
    finally:
        store.finish_run(run, state, message)


def _main_figures(report: Report | CrossValidation) -> tuple[dict[str, float | str], str]:
    """What a list of runs shows, and as a sentence."""
    from diode_engine.validation import Report

    if not isinstance(report, Report):
        together = report.together()
        assert together is not None  # a part without an answer is an error before
        judged = f"{report.family}, {report.kind}"
        figures: dict[str, float | str] = {
            "judged": judged, "problems": together.problems, "efficiency": together.geomean
        }  # fmt: skip
        return figures, f"{judged}: {together.geomean:.3f} of the best"
    figures = {
        "judged": report.model, "problems": report.problems, "efficiency": report.efficiency
    }  # fmt: skip
    if report.errors is not None:
        figures["log_rmse"] = report.errors.rmse_log
    if report.calibration is not None:
        figures["calibration_error"] = report.calibration.error
    return figures, f"{report.model}: {report.efficiency:.3f} of the best"
