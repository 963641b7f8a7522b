"""diode-engine demo: the whole of Diode on the shipped timings, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from diode_engine import paths
from diode_engine.cli import diagnostics
from diode_engine.cli.options import WRITTEN_FILE, option
from diode_engine.cli.train import fit_report
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.demo import tables
from diode_engine.demo.child import ask
from diode_engine.errors import DatasetError, StoreError
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import split
from diode_engine.registry import ModelVersion
from diode_engine.store import Store, import_dataset
from diode_engine.training.run import train_from_store
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.trainable_rows import one_environment
from diode_engine.validation import Report, evaluate, render
from diode_engine.validation.choosers import ATEN, DEFAULT

FOLDER = Path(".demo")
HARDWARE = "NVIDIA H200"  # what the shipped timings were taken on
# Commands to go on with, and what each is for.
NEXT = {
    "report -- python PROGRAM.py": "your program's matrix products, and what Diode gains on them",
    "explain mm 64 4096 4096 --hardware nvidia-h200": "what the shipped model takes, and why",
    "tune": "on a machine with an NVIDIA GPU: a model for it, in ten minutes",
    "train --store {store} --hardware nvidia-h200": "a better model of these timings, in minutes",
    "doctor": "what works on this machine, and what to do about the rest",
}


@click.command()
@option(
    "--store", "--db", "store", metavar="PATH", type=WRITTEN_FILE, default=FOLDER / "diode.db",
    help="The database that the demonstration makes or continues with.",
)  # fmt: skip
def demo(store: Path) -> None:
    """Import, train, validate, register and choose, in one run.

    It uses the timings that Diode ships, and a database and a registry of its own (.demo). The
    tables go to stdout. Without a GPU it asks the real Inductor which kernels it would take; with a
    GPU it also compiles them, and times them beside eager's and stock max-autotune's.
    """
    for folder in (FOLDER, store.parent):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The demonstration keeps what it makes in {folder}, which cannot be made here: "
                f"{error.strerror}; run it in a folder that you can write to."
            ) from error
    with _home(FOLDER.resolve()), Store.open(store) as opened:
        _import(opened)
        model = _train(opened)
        report, held_out = _validate(opened, model)
        problems = _choose(model, held_out)
        _measure(model, problems)
        click.echo(_closing(report, store))


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """While the block runs, models are registered in this folder, not in the user's registry."""
    before = os.environ.get("DIODE_HOME")
    os.environ["DIODE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["DIODE_HOME"]
        else:
            os.environ["DIODE_HOME"] = before


def _import(store: Store) -> None:
    folder = paths.shipped_dir() / "datasets"
    files = sorted(folder.glob("*/*.msgpack.zst"))
    if not files:
        raise DatasetError(
            f"There are no shipped timings in {folder}. They are in a clone of the repository; run "
            "the demonstration there."
        )
    for file in files:
        diagnostics.note(f"1. Importing {file.name} into {store.location} ...")
        done = import_dataset(store, file)
        diagnostics.note(
            f"   {done.timings} timings." if done.new else "   Its timings are there already."
        )


def _train(store: Store) -> ModelVersion:
    # Smaller than `train` makes them, and no networks, so that the demonstration is quick.
    settings = TrainingSettings().but("trees", rounds=600, max_depth=8)
    diagnostics.note(f"2. Training trees for the {HARDWARE} ...")
    with diagnostics.progress() as display:
        trained = train_from_store(
            store,
            TrainingRequest(
                family="trees", hardware=HARDWARE, name="demo", default=True, settings=settings
            ),
            report=fit_report(display),
        )
    diagnostics.note(
        f"   {trained.timings} timings of {trained.problems} problems, in {trained.seconds:.0f} s; "
        f"registered as {trained.model.reference} in {trained.model.folder}."
    )
    return trained.model


def _validate(store: Store, model: ModelVersion) -> tuple[Report, TimingTable]:
    diagnostics.note("3. Validating it on the problems that were held out ...")
    held_out = split(one_environment(store.read(hardware=HARDWARE), HARDWARE))[1]
    report = evaluate(held_out, Predictor.load(model.folder), name=model.reference, unseen=True)
    click.echo(render(report))
    click.echo()
    return report, held_out


def _choose(model: ModelVersion, held_out: TimingTable) -> list[Problem]:
    problems = tables.pick_problems(held_out)
    diagnostics.note(
        f"4. Asking the real Inductor, with {model.reference} installed and an {HARDWARE} "
        f"pretended, for {len(problems)} of them ..."
    )
    # Without its GPU, if there is one: the process pretends to have the model's.
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    question = {"model": str(model.folder)}
    answers = list(_ask("choose", question, problems, "choose.log", environment))
    click.echo(f"{tables.describe_choices(problems, answers, held_out)}\n")
    return problems


def _measure(model: ModelVersion, problems: list[Problem]) -> None:
    def measured(folder: str | None) -> tuple[str | None, list[dict[str, Any]]]:
        """The GPU's name (None where there is none), and an answer for each problem."""
        question = {"model": folder, "hardware": model.manifest.hardware.to_dict()}
        log = f"measure-{'diode' if folder else 'stock'}.log"
        answers = list(_ask("measure", question, problems, log, {}))
        return answers[0]["gpu"], answers

    diagnostics.note("5. Compiling and timing them with stock Inductor, where there is a GPU ...")
    gpu, stock = measured(None)
    if gpu is None:
        diagnostics.note(f"   There is no GPU like the {HARDWARE} here: nothing to time.")
        return
    diagnostics.note("   and with the model's choices ...")
    _, diode = measured(str(model.folder))
    click.echo(tables.describe_timings(gpu, problems, stock, diode))


def _ask(
    function: str, question: Mapping[str, Any], problems: Sequence[Problem], log: str,
    environment: Mapping[str, str],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The answers of a function of `demo.answers` about the problems."""
    question = {**question, "problems": [problem.to_dict() for problem in problems]}
    with diagnostics.progress() as display:
        answers = ask(
            f"diode_engine.demo.answers:{function}", question, log=FOLDER / log,
            environment=environment,
        )  # fmt: skip
        yield from display.track(answers, total=len(problems), description="problems")


def _closing(report: Report, store: Path) -> str:
    """What was found, in a sentence, and what to do next."""
    others = [
        f"{row.chooser}'s at {row.top[1].geomean:.3f}"
        + (f", after timing {row.timed:.0f} kernels for each" if row.timed else "")
        for row in (report.row(ATEN), report.row(DEFAULT))
        if row is not None
    ]
    program = "diode-engine" if shutil.which("diode-engine") else sys.argv[0]
    todo = [f"  {why}:\n    {program} {words.format(store=store)}" for words, why in NEXT.items()]
    return (
        f"\nOn {report.problems} problems that it has not seen, {report.model}'s choices are at "
        f"{report.efficiency:.3f} of the best measured kernel; {'; '.join(others)}.\n\n"
        "What to do next:\n" + "\n".join(todo)
    )
