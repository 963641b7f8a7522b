"""diode-engine validate and validate-max-autotune: a model compared with what it is to replace, or
with kernels that max-autotune found, on the same problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from diode_engine import registry
from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.data import open_existing, read_matching
from diode_engine.cli.files import check_output, datasets_in, write_output
from diode_engine.cli.models.looking import model_for
from diode_engine.cli.options import (
    FILE_OR_FOLDER,
    ONE_MODEL,
    READ_FILE,
    WRITTEN_FILE,
    add_options,
    fits_on,
    option,
)
from diode_engine.cli.results import record_as_run
from diode_engine.cli.train import fit_report
from diode_engine.core.hardware import slug_of
from diode_engine.core.table import TimingTable
from diode_engine.errors import NoSuchModelError, RegistryError, TrainingError
from diode_engine.location import Location
from diode_engine.models.fitting import FitProgress
from diode_engine.models.model_types import ENSEMBLE
from diode_engine.models.predictor import Predictor
from diode_engine.plain_text import format_table
from diode_engine.problems.splits import split
from diode_engine.registry import ModelVersion
from diode_engine.store import dataset_key
from diode_engine.store.transfer import read_datasets
from diode_engine.training.cross_validation import cross_validate
from diode_engine.training.trainable_rows import learnable
from diode_engine.training.training_progress import TrainingProgress, planned_fits_of_parts
from diode_engine.validation import Report, evaluate, render
from diode_engine.validation.cross_validation import CrossValidation
from diode_engine.validation.figure import check as check_figure
from diode_engine.validation.figure import draw
from diode_engine.validation.gate import comparable_rows
from diode_engine.validation.solution import against_solution, read_solution

# The command gets `reference`, `store`, `query`, `op_name`, `hardware_name`, `dataset` and
# `only_held_out`.
validation_options = add_options(
    options.model("the one for the timings' GPU"),
    options.store,
    option(
        "--held-out/--all", "only_held_out", default=True, heading="On which problems",
        label="Problems",
        help="Validate on the problems that training holds out, about a fifth, or on all, also "
        "those that the model may have learned from.",
    ),
    options.query("Validate on the problems that this filter query finds", "On which problems"),
    option("--op-name", metavar="OP", help="The same as op:OP in the query."),
    option("--hardware-name", metavar="NAME", help='The same as gpu:"NAME" in the query.'),
    option(
        "--dataset", metavar="FILE|FOLDER", type=FILE_OR_FOLDER,
        help="Take the timings from this dataset file, or from those in a folder, not from the "
        "store.",
    ),
    options.unused("--batch-size", instead="all predictions are made at once"),
)  # fmt: skip


def build_query(query: str, op_name: str | None, hardware_name: str | None) -> str:
    """The query with what --op-name and --hardware-name add to it."""
    words = (op_name and f"op:{op_name}", hardware_name and f'gpu:"{hardware_name}"', query)
    return " ".join(filter(None, words))


def read_timings(dataset: Path | None, store: Location, query: str) -> TimingTable:
    """The timings on the problems that the query finds: in a dataset file, or in those of a folder;
    in the store where there is no `dataset`. Raises DatasetError, StoreError, QueryError where the
    query has a mistake, and NothingError where it finds none."""
    if dataset is None:
        with open_existing(store) as opened:
            return read_matching(opened, query)
    return read_datasets(datasets_in(dataset) if dataset.is_dir() else (dataset,), query)


def find_model_and_timings(
    table: TimingTable, reference: str | None, *, only_held_out: bool
) -> tuple[ModelVersion, TimingTable, TimingTable | None]:
    """The model, the timings to judge it on, and, where these are held out, the timings that it may
    have learned from. Raises RegistryError and TrainingError where there is no such model or no
    timings."""
    if reference is None:
        model = _only_model(table)
    else:
        names = table.gpu_names
        model = registry.resolve_for(reference, names[0] if len(names) == 1 else None)
    table, seen = _comparable(table, model), None
    everything = model.manifest.everything
    if only_held_out:
        seen, table = split(table, model.manifest.held_out_by)
        if not len(table):
            raise TrainingError(
                "No problem with timings is held out from training; validate on all of them with "
                "--all, or collect more."
            )
        if everything is None:
            diagnostics.warn(
                f"It is not known whether {model.reference} was trained on these problems."
            )
        elif everything:
            diagnostics.warn(
                f"{model.reference} was trained on the held-out problems too: these figures say "
                "nothing about new problems. Its notes have figures that do."
            )
    diagnostics.note(f"Judging {model.reference} on {len(table)} timings ...")
    return model, table, seen


def _only_model(table: TimingTable) -> ModelVersion:
    """The model for the GPU that the timings are of."""
    names = table.gpu_names
    if not names:
        raise TrainingError("There are no timings to validate a model on; collect or import some.")
    if len(names) > 1:
        raise RegistryError(
            f"There are timings of several GPUs ({', '.join(names)}); name the model with --model."
        )
    hardware = table.first_environment.hardware
    model = model_for(hardware)
    if model is None:
        raise NoSuchModelError(
            f"There is no model for {hardware.name}; train one, or name one with --model."
        )
    return model


def _comparable(table: TimingTable, model: ModelVersion) -> TimingTable:
    """The timings of one of the model's GPUs, its first that there are timings of; of these only
    the ones with the model's Triton, where there are any."""
    manifest = model.manifest
    names = table.gpu_names
    gpu = next((name for name in manifest.gpu_names if name in names), None)
    if gpu is None:
        made_for = " and ".join(manifest.gpu_names)
        if len(names) != 1:
            raise TrainingError(
                f"There are no timings of {made_for}, which {model.reference} was trained on, but "
                f"of: {', '.join(names) or 'none'}."
            )
        diagnostics.warn(
            f"{model.reference} was trained on {made_for}, these are timings of {names[0]}."
        )
        return table
    if len(names) > 1:
        diagnostics.note(f"Only the timings of {gpu} are used; there are others, of other GPUs.")
    rows, same = comparable_rows(table, manifest, slug_of(gpu))
    if manifest.triton and not same:
        diagnostics.warn(
            f"{model.reference} was trained on timings with Triton {', '.join(manifest.triton)}; "
            "these timings are with other versions."
        )
    return rows


@click.command()
@option(
    "--cross-validate", "kind", type=click.Choice(("folds", "llm", "sizes")),
    heading="What is judged", label="Judge", default_text=ONE_MODEL,
    help="Validate a way of making models instead of one model, in minutes: for each part of the "
    "problems, train a model on the others and validate it on this part.",
    details="The parts are folds of the problems, the problems of each named transformer (llm), or "
    "the tenth of the problems with the most work (sizes).",
)  # fmt: skip
@validation_options
@options.family(
    default=None, default_text=ENSEMBLE, heading="What is judged",
    applies=lambda values: values["cross_validate"] != ONE_MODEL,
    help="What --cross-validate trains.",
)  # fmt: skip
@options.ray("With --cross-validate: the fits are made")
@options.as_json
@option(
    "--figure", metavar="FILE", type=WRITTEN_FILE,
    help="Draw the report into this file too, an .svg, .png or .pdf.",
)  # fmt: skip
@option(
    "--top-n-worst", "worst", metavar="N", type=click.IntRange(0), default=5,
    help="How many of the worst choices to list.",
)  # fmt: skip
def validate(
    reference: str | None, store: Location, query: str, op_name: str | None,
    hardware_name: str | None, dataset: Path | None, only_held_out: bool, kind: str | None,
    family: str | None, ray: str | None, as_json: bool, figure: Path | None, worst: int,
) -> None:  # fmt: skip
    """Compare a model with others, on held-out data.

    The report goes to stdout. It says how near the model's choices are to the best measured kernel,
    and the same for ATen, max-autotune, nvMatmulHeuristics and others on the same problems. It also
    says how sure the model is of its choices, and whether that is justified. For the store's
    timings, a run of kind validate in the store keeps the report.
    """
    query = build_query(query, op_name, hardware_name)
    if kind is None and family is not None:
        raise click.UsageError("--family belongs to --cross-validate; name a model with --model.")
    if kind is not None and (reference is not None or figure is not None):
        raise click.UsageError("--cross-validate trains models: it takes no --model or --figure.")
    if kind is None and ray is not None:
        raise click.UsageError("--ray is for the fits of --cross-validate.")
    if figure is not None:
        check_figure(figure)

    def make_report(
        table: TimingTable,
        check: Callable[[], None] = lambda: None,
        tell: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> Report | CrossValidation:
        if kind is not None:
            if only_held_out:
                diagnostics.note("The problems that training holds out take no part.")
                table = split(table)[0]
            return _cross_validate(table, kind, family or ENSEMBLE, ray, check, tell)
        report = _validate(table, reference, only_held_out=only_held_out)
        check()
        return report

    if dataset is not None:
        report = make_report(read_timings(dataset, store, query))
    else:
        with open_existing(store) as opened:
            spec = {
                "model": reference, "query": query or None, "held_out": only_held_out,
                "cross_validate": kind, "family": family, "ray": ray,
            }  # fmt: skip
            report = record_as_run(
                opened,
                "validate",
                spec,
                lambda check, tell: make_report(read_matching(opened, query), check, tell),
                _main_figures,
            )
    if as_json:
        click.echo(json.dumps(report.to_dict(), allow_nan=False))
    elif isinstance(report, Report):
        click.echo(render(report, worst))
    else:
        click.echo(report.render())
    if figure is not None and isinstance(report, Report):
        draw(report, figure)
        diagnostics.note(f"Drawn into {figure}.")


validate_model = validate


def _cross_validate(
    table: TimingTable,
    kind: str,
    family: str,
    ray: str | None,
    check: Callable[[], None],
    tell: Callable[[Mapping[str, Any]], None],
) -> CrossValidation:
    """The cross-validation of this kind. `check` may raise to stop it; `tell` is called with its
    progress."""
    whole = TrainingProgress({})

    def begins(parts: Sequence[str]) -> None:
        whole.fits = planned_fits_of_parts(family, parts)

    with fits_on(ray) as fits, diagnostics.progress() as display:
        shown = fit_report(display)

        def report(label: str, progress: FitProgress | None) -> None:
            check()
            shown(label, progress)
            whole.record(label, progress)
            tell({"member": label, **whole.to_dict()})

        return cross_validate(table, kind, family=family, report=report, begins=begins, fits=fits)


def _validate(table: TimingTable, reference: str | None, *, only_held_out: bool) -> Report:
    model, table, seen = find_model_and_timings(table, reference, only_held_out=only_held_out)
    everything = model.manifest.everything
    predictor = Predictor.load(model.folder, table.first_environment.hardware)
    unseen = None if everything is None else not everything
    if everything is not None and not only_held_out:
        # Known only where the model has learned from exactly these timings; else not known.
        usable = learnable(table)
        learned = split(usable, model.manifest.held_out_by)[0]
        judged = {dataset_key(part) for part in (table, usable, learned)}
        unseen = None if judged.isdisjoint(model.manifest.data.datasets) else False
    report = evaluate(table, predictor, name=model.reference, unseen=unseen, seen=seen)
    notes = f"{model.reference} says: {model.manifest.notes}" if model.manifest.notes else ""
    return replace(report, notes=(*report.notes, notes)) if notes else report


def _main_figures(report: Report | CrossValidation) -> tuple[dict[str, float | str], str]:
    """The figures that a list of runs shows, and a sentence with them."""
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


@click.command("validate-max-autotune")
@option(
    "--max-autotune-solution", "file", metavar="FILE", type=READ_FILE, required=True,
    help="The kernels: a JSON object with `name` and `configs`, each with block_m, block_n and "
    "block_k, and, if it is for one problem only, M, N, K and op.",
)  # fmt: skip
@validation_options
@option(
    "--top-n", "ns", metavar="N", type=click.IntRange(1, 100), multiple=True, default=(1, 3, 5, 10),
    help="Compare the best of the model's first N kernels; may be repeated.",
)  # fmt: skip
@option(
    "--output", metavar="FILE", type=WRITTEN_FILE,
    default=Path("model_performance_analysis_by_op.json"),
    help="The file for the comparison as JSON.",
)  # fmt: skip
@options.as_json
def validate_max_autotune(
    file: Path, reference: str | None, store: Location, query: str, op_name: str | None,
    hardware_name: str | None, dataset: Path | None, only_held_out: bool, ns: tuple[int, ...],
    output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Compare the best of a model's first N kernels with a solution that max-autotune found, and
    with the best kernel that was measured.

    Measured times are compared, on the problems for which a kernel of the solution was timed. Speed
    above 1: the model's kernels are faster than the solution's.
    """
    check_output(
        output, FileKind.COMPARISON, sources=(file, *([] if dataset is None else [dataset]))
    )
    solution = read_solution(file)
    query = build_query(query, op_name, hardware_name)
    table = read_timings(dataset, store, query)
    model, timings, _ = find_model_and_timings(table, reference, only_held_out=only_held_out)
    found = against_solution(
        timings,
        Predictor.load(model.folder, timings.first_environment.hardware),
        solution,
        name=model.reference,
        ns=sorted(set(ns)),
    )
    if found["sizes_left_out"]:
        diagnostics.note(
            f"None of the sizes in {file} was timed: its kernels are compared on all problems."
        )
    click.echo(json.dumps(found, allow_nan=False) if as_json else _solution_text(found))
    text = json.dumps(found, indent=1) + "\n"
    write_output(output, text, kept="The comparison is above.", kind=FileKind.COMPARISON)
    diagnostics.note(f"Statistics for each operator are in {output}.")


def _solution_text(found: Mapping[str, Any]) -> str:
    rows = []
    for op, group in (*found["by_op"].items(), ("all", found["all"])):
        if not group["compared"]:
            rows.append([op, "", "0", *[""] * 4])
        for n, top in group["top"].items():
            rows.append(
                [op, f"first {n}", str(group["compared"]), f"{group['efficiency']:.3f}",
                 f"{top['efficiency']:.3f}", f"{top['speed']:.3f}", f"{top['no_slower']:.0%}"]
            )  # fmt: skip
    header = ["op", "best of", "problems", "solution", "model", "speed", "no slower"]
    return (
        f"{found['model']} against {found['solution']} ({found['configs']} configs), as shares of "
        f"the best measured:\n{format_table(header, rows)}"
    )
