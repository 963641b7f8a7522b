"""diode-engine collect-and-train: from no timings to a validated model, in one command."""

from __future__ import annotations

from dataclasses import asdict

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.collect import collect
from diode_engine.cli.drawing import DrawnProblems, drawn_options
from diode_engine.cli.options import json_anyway_option, seed_option, store_option
from diode_engine.cli.train import train
from diode_engine.cli.validate import validate
from diode_engine.location import Location
from diode_engine.models.families import ENSEMBLE, trainable


@click.command("collect-and-train")
@store_option
@click.option("--problems", "--num-shapes", type=click.IntRange(1), default=300, show_default=True,
              help="How many distinct problems to draw.")  # fmt: skip
@drawn_options
@click.option(
    "--budget", type=click.IntRange(1), help="At most this many candidates for each problem."
)
@click.option(
    "--family",
    type=click.Choice(trainable()),
    default=ENSEMBLE,
    show_default=True,
    help="What kind of model.",
)
@click.option("--name", help="Register the model as the next version of this name.")
@seed_option("Another seed draws other problems and makes another model.")
@click.option("--skip-collection", is_flag=True, help="Train on the timings in the store.")
@click.option("--skip-training", is_flag=True, help="Only collect, and judge the present model.")
@click.option("--skip-validation", is_flag=True, help="Do not judge the model.")
@json_anyway_option
@click.pass_context
def collect_and_train(
    ctx: click.Context, store: Location, problems: int, drawn: DrawnProblems,
    budget: int | None, family: str, name: str | None, seed: int, skip_collection: bool,
    skip_training: bool, skip_validation: bool,
) -> None:  # fmt: skip
    """Collect timings, train a model on them and judge it: `collect`, `train` and `validate`.

    Each writes one JSON line to stdout. The same command continues what was interrupted. For longer
    sequences, with all options, see `workflow`.
    """
    if not skip_collection:
        diagnostics.note("Collecting ...")
        ctx.invoke(
            collect, store=store, problems=problems, budget=budget, seed=seed, **asdict(drawn)
        )  # fmt: skip
    if not skip_training:
        ctx.invoke(train, store=store, family=family, name=name, seed=seed)
    if not skip_validation:
        reference = name or family if not skip_training else name
        ctx.invoke(validate, store=store, reference=reference, as_json=True)
