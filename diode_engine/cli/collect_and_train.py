"""diode-engine collect-and-train: from no timings to a validated model, in one command."""

from __future__ import annotations

from typing import Any

import click

from diode_engine.cli import diagnostics, options
from diode_engine.cli.collect import collect, drawn_options
from diode_engine.cli.options import option
from diode_engine.cli.train import train
from diode_engine.cli.validate import validate
from diode_engine.location import Location


@click.command("collect-and-train")
@options.store
@options.problems(300)
@drawn_options
@options.budget
@options.family()
@options.name("the family's name")
@options.seed("Another seed draws other problems and makes another model.")
@option("--skip-collection", is_flag=True, help="Train on the timings in the store.")
@option("--skip-training", is_flag=True, help="Collect, and validate the present model.")
@option("--skip-validation", is_flag=True, help="Do not validate the model.")
@options.json_anyway
@click.pass_context
def collect_and_train(
    ctx: click.Context, /, store: Location, family: str, name: str | None, seed: int,
    skip_collection: bool, skip_training: bool, skip_validation: bool, **drawing: Any,
) -> None:  # fmt: skip
    """Collect timings, train a model on them and judge it: `collect`, `train` and `validate`.

    Each writes one JSON line to stdout. After an interruption run the command again. For longer
    sequences, with all options, see `workflow`.
    """
    if not skip_collection:
        diagnostics.note("Collecting ...")
        ctx.invoke(collect, store=store, seed=seed, **drawing)
    if not skip_training:
        ctx.invoke(train, store=store, family=family, name=name, seed=seed)
    if not skip_validation:
        reference = name or family if not skip_training else name
        ctx.invoke(validate, store=store, reference=reference, as_json=True)
