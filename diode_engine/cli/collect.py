"""diode-engine collect: times Inductor's candidates on this machine's GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.options import store_option

SOURCES = ("transformers", "zoo", "log-normal", "attention")


@click.command()
@store_option
@click.option(
    "--problems",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="How many distinct problems to time.",
)
@click.option(
    "--source",
    "sources",
    type=click.Choice(SOURCES),
    multiple=True,
    help="Where problems come from; may be repeated. [default: all]",
)
@click.option(
    "--dataset",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Time the problems of this dataset file instead.",
)
@click.option(
    "--budget",
    type=click.IntRange(1),
    help="At most so many candidates a problem: ATen, decompose_k and the DEFAULT "
    "space first, then a spread and the neighbours of the best. [default: all]",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Another seed draws other problems."
)
@click.option(
    "--gpu",
    "gpus",
    type=click.IntRange(0),
    multiple=True,
    help="Use this GPU; may be repeated. [default: all]",
)
@click.option(
    "--workers", type=click.IntRange(1), help="Worker processes a GPU. [default: one a core]"
)
def collect(
    store: Path, problems: int, sources: tuple[str, ...], dataset: Path | None,
    budget: int | None, seed: int, gpus: tuple[int, ...], workers: int | None,
) -> None:  # fmt: skip
    """Time Inductor's candidates on this machine's GPUs, into the store.

    Ctrl-C keeps what is there, and the same command goes on from there. The counts go to
    stdout as JSON.
    """
    from diode_engine.collect.run import Progress, devices
    from diode_engine.collect.run import collect as run
    from diode_engine.collect.sources import mixed
    from diode_engine.store import Store
    from diode_engine.store.transfer import read_dataset

    if dataset is not None:
        todo = list(read_dataset(dataset).problems)
    else:
        todo = mixed(problems, seed, sources or SOURCES)
    found = devices()
    with Store.open(store) as opened, diagnostics.progress() as display:
        diagnostics.note(
            f"Timing {len(todo)} problems on {len(gpus or found)} GPU(s) into {store}; "
            "Ctrl-C stops, the same command goes on."
        )
        task = display.add_task("problems", total=len(todo))

        def report(progress: Progress) -> None:
            failed = sum(progress.failures.values())
            rate = progress.timings / max(progress.seconds, 1e-9)
            display.update(
                task,
                completed=progress.problems_done + progress.problems_refused,
                description=f"{progress.timings} timings, {rate:.0f} a second, {failed} failed",
            )

        progress = run(
            opened, todo, gpus=gpus or found, workers_per_gpu=workers, budget=budget, seed=seed,
            report=report,
        )  # fmt: skip
    click.echo(json.dumps(progress.to_dict()))
