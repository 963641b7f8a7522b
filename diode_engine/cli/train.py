"""diode-engine train: a model from the timings in the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.data import existing
from diode_engine.cli.options import store_option

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

    from diode_engine.models.fitting import Progress


@click.command()
@store_option
@click.option(
    "--hardware",
    metavar="NAME",
    help="Train for the GPU of this name. [default: the only one with timings]",
)
@click.option(
    "--family",
    type=click.Choice(("trees", "network", "ensemble")),
    default="ensemble",
    show_default=True,
    help="What kind of model; an ensemble is one of each.",
)
@click.option(
    "--name", help="Register it as the next version of this name. [default: the family's]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another model.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Train on the held-out problems too, for a model that is shipped; the metrics are then "
    "those of a model made the same way without them.",
)
def train(
    store: Path, hardware: str | None, family: str, name: str | None, seed: int, everything: bool
) -> None:
    """Train a model on the timings in the store, and register it.

    A fifth of the problems is held out, always the same ones, and the model is judged on them.
    What came of it goes to stdout as JSON.
    """
    from diode_engine.training.train import train_from_store

    with existing(store) as opened, diagnostics.progress() as display:
        diagnostics.note(f"Training {family} on the timings in {store} ...")
        trained = train_from_store(
            opened, family=family, hardware=hardware, name=name, seed=seed, everything=everything,
            report=fit_report(display),
        )  # fmt: skip
    diagnostics.note(
        f"Registered {trained.model.reference}, trained on {trained.timings} timings of "
        f"{trained.problems} problems."
    )
    click.echo(json.dumps(trained.to_dict()))


def fit_report(display: Display) -> Callable[[str, Progress], None]:
    """Shows each fit as a bar; one that follows another of the same member has its own."""
    tasks: dict[str, tuple[TaskID, int]] = {}

    def report(member: str, progress: Progress) -> None:
        known = tasks.get(member)
        if known is None or progress.step <= known[1]:
            task = display.add_task(member, total=progress.steps)
        else:
            task = known[0]
        tasks[member] = task, progress.step
        display.update(
            task,
            completed=progress.step,
            description=f"{member}: efficiency {progress.efficiency:.3f}, "
            f"error {progress.rmse:.3f} (log)",
        )

    return report
