"""diode-engine train: a model from timings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.progress import Progress as Display
from rich.progress import TaskID

from diode_engine import registry
from diode_engine import runs as jobs
from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.data import open_existing
from diode_engine.cli.files import check_output, datasets_in
from diode_engine.cli.models.looking import note_default
from diode_engine.cli.options import WRITTEN_FILE, F, FiniteRange, Option, WordsCommand, option
from diode_engine.core.operators import OPERATORS
from diode_engine.errors import NothingError, TrainingError
from diode_engine.features import VERSION
from diode_engine.location import Location
from diode_engine.models.artifact import load_artifact
from diode_engine.models.fitting import FitProgress
from diode_engine.models.manifest import check_name
from diode_engine.models.model_types import TUNED, member_types
from diode_engine.store import Store
from diode_engine.training import run as training
from diode_engine.training.fit_pool import FitCallback
from diode_engine.training.search import Trial
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.train import Trained
from diode_engine.training.training_progress import FitNodes, NodeFitProgress

_COUNT = click.IntRange(1)
_FEW = 50  # problems
# torch-diode's names of its models: the family, and how many times the default number of layers.
_TYPES = {"base": ("network", 1), "deep": ("network", 2), "boosted": ("trees", 1)}
_RATE = FiniteRange(0, min_open=True)


def _has_members(family: str) -> Callable[[Mapping[str, str]], bool]:
    """The condition that the model to train has members of this family."""

    def applies(values: Mapping[str, str]) -> bool:
        if values["fine_tune"].strip():
            return family == "network"
        return family in member_types(values["family"])

    return applies


def _setting(*spellings: str, of: str, **attributes: Any) -> Callable[[F], F]:
    """Adds an option for a setting of the fits of a family of models."""
    return option(*spellings, heading="Settings", applies=_has_members(of), **attributes)


def _makes_new(values: Mapping[str, str]) -> bool:
    return not values["fine_tune"].strip()


@click.command(cls=WordsCommand)
@options.store
@option("--op-name", metavar="OP", help="The same as op:OP in the query.")
@options.query(
    "Learn from the problems that this filter query finds", "Data", label="Problems",
    applies=lambda values: not values["dataset"].strip(),
)  # fmt: skip
@option(
    "--dataset", "datasets", metavar="FILE", type=WRITTEN_FILE, multiple=True, heading="Data",
    label="Files", default_text="none: from the store",
    help="Learn from this file's timings instead of the store's (the store only keeps the run).",
    details="May be repeated.",
)  # fmt: skip
@option(
    "--data-dir", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The same with all dataset files in this folder and its subfolders.",
)  # fmt: skip
@option(
    "--file-extensions", metavar="NAME,...", default="",
    help="With --data-dir: only files with these suffixes, such as json,msgpack, compressed or "
    "not.",
    default_text="all suffixes of datasets",
)  # fmt: skip
@option(
    "--hardware", "--hardware-name", metavar="NAME", heading="Data", label="GPU",
    help="Train for the GPU of this name.", default_text="the only one with timings",
)  # fmt: skip
@options.family(
    applies=_makes_new,
    help="The type of the model. An ensemble is trees and three networks, a large one trees and "
    "six; distilled is a small network that learns from an ensemble, answers in a millisecond and "
    "needs neither torch nor XGBoost; a cascade adds four networks of a large one to it.",
)  # fmt: skip
@option(
    "--model-type", type=click.Choice(tuple(_TYPES)),
    help="Another name of --family: base is a network, deep a network with twice the layers, and "
    "boosted is trees.",
)  # fmt: skip
@option(
    "--fine-tune", metavar="MODEL", heading="Model", label="Tune",
    default_text="none: a model from nothing",
    help="Tune this model to the timings instead of making a new one. Its predictions for other "
    "problems are kept as far as possible. The result is a distilled model.",
)  # fmt: skip
@option(
    "--resume", is_flag=True,
    help="Continue the store's last training, which was interrupted, with the options that it had.",
)  # fmt: skip
@options.name("that of the type, or of the tuned model")
@option(
    "--model", "file", metavar="FILE", type=WRITTEN_FILE,
    help="Write the model to this file too, which replaces an earlier model's. Its name is then "
    "--name's default.",
)  # fmt: skip
@option(
    "--all", "everything", is_flag=True, heading="Model", label="All problems",
    help="Train on the held-out problems too, for a model that is shipped; the metrics are then "
    "those of a model that was made in the same way without them.",
)  # fmt: skip
@option(
    "--default", is_flag=True, heading="Model",
    help="Make it the model that its GPU takes from now on.",
)  # fmt: skip
@option(
    "--features", type=click.Choice([str(VERSION)]), default_text=str(VERSION),
    help="The version of the features that the model uses.",
)  # fmt: skip
@option(
    "--search", "trials", metavar="N", type=_COUNT, heading="Settings", applies=_makes_new,
    help="First search for better settings in N trials on folds of the training problems. Run "
    "the command again to resume after the finished trials.",
    default_text="no trials",
)  # fmt: skip
@options.seed("Another seed makes another model.", heading="Settings")
@options.ray("The fits of a search, of members and of the confidence are made")
@_setting("--hidden", "--hidden-dim", type=_COUNT, of="network", label="Width",
          help="Networks: the width of a layer.")  # fmt: skip
@_setting("--layers", "--num-layers", type=click.IntRange(1, 8), of="network",
          help="Networks: the number of hidden layers.")  # fmt: skip
@_setting("--epochs", "--num-epochs", type=_COUNT, of="network",
          help="Networks: the largest number of epochs.")  # fmt: skip
@_setting("--batch-size", type=_COUNT, of="network", help="Networks: candidates per step.")
@_setting("--learning-rate", type=_RATE, of="network",
          help="Networks: the largest learning rate of the schedule.")  # fmt: skip
@_setting("--weight-decay", type=FiniteRange(0), of="network",
          help="Networks: the weight decay of AdamW.")  # fmt: skip
@_setting("--patience", type=_COUNT, of="network",
          help="Networks: the fit ends after this many epochs without a better one.")  # fmt: skip
@_setting("--ranking", type=click.Choice(("listwise", "regret", "pairwise", "none")), of="network",
          help="Networks: the ranking loss within a problem, which is added to that of the times.",
          default_text="listwise")  # fmt: skip
@_setting("--rounds", type=_COUNT, of="trees", help="Trees: the largest number of rounds.")
@_setting("--depth", type=click.IntRange(1, 16), of="trees", help="Trees: the largest depth.")
@options.unused("--log-dir", instead="the store keeps the curves, which diode-tui shows")
@options.json_anyway
def train(
    store: Location, op_name: str | None, query: str, datasets: tuple[Path, ...],
    data_dir: Path | None, file_extensions: str, hardware: str | None, family: str,
    model_type: str | None, fine_tune: str | None, resume: bool, name: str | None,
    file: Path | None, default: bool, seed: int, everything: bool, trials: int | None,
    ray: str | None, **values: Any,
) -> None:  # fmt: skip
    """Train a model on timings, and register it.

    About a fifth of the problems is held out, always the same ones, and the model is judged on
    them. After a training was cancelled or killed, run the command again to resume, or --resume, or
    `diode-engine runs resume`. The result goes to stdout as JSON.
    """
    if resume:
        _resume_last(store)
        return
    deeper = 1
    given = click.get_current_context().get_parameter_source("family")
    has_type = model_type is not None or (family != TUNED and given is ParameterSource.COMMANDLINE)
    if model_type is not None:
        if given is ParameterSource.COMMANDLINE and family != _TYPES[model_type][0]:
            raise click.UsageError(f"--model-type {model_type} is not of --family {family}.")
        family, deeper = _TYPES[model_type]
    if op_name is not None:
        _check_ops(op_name)
        query = f"op:{op_name} {query}".strip()
    if file_extensions and data_dir is None:
        raise click.UsageError("--file-extensions goes with --data-dir.")
    if data_dir is not None:
        datasets += datasets_in(data_dir, options.split_names(file_extensions))
    if file is not None:
        check_output(file, FileKind.MODEL, sources=datasets)
        name = name or _name_of(file)
    if name is not None:
        check_name(name)  # before there is a run, which --resume would take for the last training
    _check_settings(family, fine_tune)
    for refused, why in (
        (values.pop("features"), "keeps the model's features: leave out --features"),
        (ray is not None, "is one fit, which is made here: leave out --ray"),
        (has_type, "makes a network: leave out --family and --model-type"),
    ):
        if fine_tune is not None and refused:
            raise click.UsageError(f"--fine-tune {why}.")
    base = None
    if fine_tune is not None:
        base = load_artifact(registry.resolve_for(fine_tune, hardware).folder)
    request = TrainingRequest(
        family=family, base=base, hardware=hardware, name=name, seed=seed, everything=everything,
        default=default, query=query, datasets=datasets, trials=trials or 0,
        settings=_settings(tuned=base is not None, deeper=deeper, **values),
    )  # fmt: skip
    opened = Store.open(store) if datasets else open_existing(store)
    with opened, options.fits_on(ray) as fits, diagnostics.progress() as display:
        what = f"the model {fine_tune}" if fine_tune is not None else family
        source = ", ".join(map(str, datasets[:3])) or f"the store {store}"
        source += f" and {len(datasets) - 3} more files" if len(datasets) > 3 else ""
        diagnostics.note(f"Training {what} on the timings in {source} ...")
        try:
            trained = training.train_from_store(
                opened, request, report=fit_report(display),
                report_trial=_trial_report(display), fits=fits,
            )  # fmt: skip
        except KeyboardInterrupt:
            diagnostics.note(
                "Finished fits and checkpoints are kept: run the command again to resume, or "
                "`diode-engine train --resume`."
            )
            raise
    _say(trained)
    written = {}
    if file is not None:
        registry.export_model(trained.model, file, replace=True)
        diagnostics.note(f"The model is in {file} too.")
        written = {"file": str(file)}
    click.echo(json.dumps({**trained.to_dict(), **written}))


def _resume_last(store: Location) -> None:
    """Resumes the store's last training in a process of its own and follows it to its end: its
    messages go to stderr, its result to stdout. Ctrl-C stops the training too.

    Raises NothingError where there is no training to resume, RunError where it cannot be started
    and TrainingError where it ends without a model.
    """
    context = click.get_current_context()
    for name in context.params.keys() - {"store", "resume"}:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--resume uses the options of the training that it continues: give no others."
            )
    with open_existing(store) as opened:
        last = next(iter(jobs.find(opened, "kind:train", limit=1)), None)
        if last is None:
            raise NothingError(f"{store} has no training to continue.")
        if last.state == "done":
            raise NothingError(
                f"The last training, run {last.run.id}, is done; `diode-engine runs resume` "
                "continues an earlier one."
            )
        run = jobs.resume(opened, last.run.id).id
        diagnostics.note(f"Run {run} continues run {last.run.id}.")
        try:
            for tick in jobs.follow(opened, run):
                status = tick.status
                for line in tick.log.splitlines():
                    if not line.startswith("{"):  # its stdout, which is ours below
                        diagnostics.note(line)
        except KeyboardInterrupt:
            jobs.cancel(opened, run, tell=diagnostics.note)
            raise
        result = opened.result(run)
    if status.state != "done" or result is None:
        raise TrainingError(
            f"Run {run} is {status.state}: {status.why or status.run.message or 'unknown reason'}"
        )
    click.echo(json.dumps({k: v for k, v in result.items() if k != "settings"}))


def _check_settings(family: str, fine_tune: str | None) -> None:
    """Raises UsageError for a given setting that the model to train does not have."""
    context, form = click.get_current_context(), {"family": family, "fine_tune": fine_tune or ""}
    what = f"--family {family}" if fine_tune is None else "--fine-tune"
    every = [each for each in context.command.params if isinstance(each, Option)]
    for each in (each for each in every if each.heading == "Settings"):
        given = context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
        if given and not each.applies(form):
            raise click.UsageError(f"{what} has no use for {each.opts[0]}: leave it out.")


def _check_ops(given: str) -> None:
    if unknown := [name for name in options.split_names(given) if name not in OPERATORS]:
        raise click.BadParameter(
            f"{unknown[0]} is not an operator that Diode knows; they are {', '.join(OPERATORS)}.",
            param_hint="--op-name",
        )


def _name_of(file: Path) -> str | None:
    """The file's name as a model can be called; None where nothing is left of it."""
    return re.sub(r"[^a-z0-9._-]+", "-", file.stem.lower()).strip("._-")[:64] or None


def _settings(
    *, tuned: bool, deeper: int, hidden: int | None, layers: int | None,
    batch_size: int | None, rounds: int | None, depth: int | None, **of_networks: Any,
) -> TrainingSettings:  # fmt: skip
    """The default settings, changed as the options say."""
    settings = TrainingSettings()
    family = TUNED if tuned else "network"
    network = settings.find(family)
    changes = {name: value for name, value in of_networks.items() if value is not None}
    if hidden is not None or layers is not None or deeper > 1:
        default_layers = deeper * len(network.hidden)
        changes["hidden"] = (hidden or network.hidden[0],) * (layers or default_layers)
    if batch_size is not None:
        rows = min(network.rows, batch_size)
        changes |= {"rows": rows, "problems": max(1, batch_size // rows)}
    settings = settings.but(family, **changes)
    of_trees = {"rounds": rounds, "max_depth": depth}
    return settings.but("trees", **{k: v for k, v in of_trees.items() if v is not None})


def _say(trained: Trained) -> None:
    """Prints what the model was made of, and which model is taken now."""
    for what, timings in trained.left_out.items():
        diagnostics.warn(
            f"{timings} timings were left out: they are of {what}, and a model is made for one "
            "GPU, torch and Triton."
        )
    model = trained.model
    if trained.problems < _FEW:
        diagnostics.warn(
            f"A model of {trained.problems} problems is good for trying the steps only; time some "
            "hundred for one that chooses well."
        )
    if not model.manifest.metrics:
        diagnostics.warn(model.manifest.notes)
    diagnostics.note(
        f"Registered {model.reference}, trained on {trained.timings} timings of "
        f"{trained.problems} problems."
    )
    note_default(model)


def fit_report(display: Display) -> FitCallback:
    """Shows a progress bar for each fit; of those on a cluster, a line for each machine."""
    nodes = FitNodes()
    tasks: dict[str, TaskID] = {}

    def report(label: str, progress: FitProgress | None) -> None:
        if progress is None:
            return
        if isinstance(progress, NodeFitProgress):
            nodes.record(label, progress)
            for node, said, last in nodes.lines():
                if tasks.get(node) not in display.task_ids:  # they are removed after each trial
                    tasks[node] = display.add_task(node)
                display.update(
                    tasks[node],
                    completed=last.step,
                    total=last.steps,
                    description=f"{node}: {said}",
                )
            return
        if label not in tasks:
            tasks[label] = display.add_task(label, total=progress.steps)
        display.update(
            tasks[label],
            completed=progress.step,
            description=f"{label}: efficiency {progress.efficiency:.3f}, "
            f"error {progress.rmse:.3f} (log)",
        )

    return report


def _trial_report(display: Display) -> Callable[[Trial], None]:
    """Prints a line for each trial of a search, and removes its progress bars."""

    def report(trial: Trial) -> None:
        for task in list(display.task_ids):
            display.remove_task(task)
        result = "given up" if trial.efficiency is None else f"efficiency {trial.efficiency:.4f}"
        tried = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in trial.parameters.items()
        )
        diagnostics.note(f"Trial {trial.number}: {result} with {tried}")

    return report
