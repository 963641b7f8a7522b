"""diode-engine tune: a model for this machine's GPU in minutes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress as Display

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.options import READ_FILE, WRITTEN_FILE, FiniteRange, check_cluster, option
from diode_engine.cli.results import Result, result_command
from diode_engine.collect import capture, local
from diode_engine.collect.executor import Executor, environment_of
from diode_engine.core.hardware import Environment, detect, environment
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError
from diode_engine.location import Location
from diode_engine.paths import beside, binaries_dir
from diode_engine.problems.sources import problems_in
from diode_engine.store import Store
from diode_engine.tuning import run as tuning
from diode_engine.tuning.rounds import TuneRequest


@click.command(context_settings={"allow_interspersed_args": False})
@options.store
@option(
    "--minutes", type=FiniteRange(0, min_open=True), default=10.0,
    help="About how long it takes: 70 % for timing, the rest for training and validating.",
)  # fmt: skip
@option(
    "--from", "base", metavar="MODEL|none",
    help="Start from this model, or from none. [default: the model that the GPU takes now]",
)  # fmt: skip
@option(
    "--shapes", type=READ_FILE, multiple=True,
    help="Tune to the problems of this shapeset (see capture) or dataset; may be repeated.",
)  # fmt: skip
@options.name("gemm")
@options.seed()
@options.gpus("All must be of the same kind.", "the first")
@options.ray("Time on the GPUs, and train")
@options.accelerator
@option(
    "-o", "--output", metavar="FILE", type=WRITTEN_FILE,
    help="Write the result's page to this file. [default: tune-RUN.md in a folder beside the "
    "store]",
)  # fmt: skip
@result_command
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def tune(
    store: Location, minutes: float, base: str | None, shapes: tuple[Path, ...], name: str | None,
    seed: int, gpus: tuple[int, ...], ray: str | None, accelerator: str | None,
    output: Path | None, command: tuple[str, ...],
) -> Result:  # fmt: skip
    """Make a model for this machine's GPU, or a cluster's: time the problems that teach the most,
    train, validate the model on problems held out from the start, and make it the default if it is
    no worse than the present one.

    \b
    diode-engine tune --minutes 10
    diode-engine tune --shapes shapes.json
    diode-engine tune -- python train.py --steps 1

    With --shapes, or with a program (which is run first, as `capture` does), the products of that
    program are timed first, with more candidates. Ctrl-C keeps what was timed; run the command
    again to resume. The result goes to stdout as a page of Markdown.
    """
    if output is not None:
        check_output(output, FileKind.TUNING, sources=shapes)
    check_cluster(ray, accelerator, gpus)
    own = tuple(dict.fromkeys(p for file in shapes for p in problems_in(file, seed)))
    asked: Mapping[str, Any] = {
        "shapes": [str(file) for file in shapes] or None,
        "command": shlex.join(command) or None,
        **({} if ray is None else {"ray": ray, "accelerator": accelerator}),
    }
    with options.fits_on(ray) as fits:
        used, where, executor = _find_executor(gpus, ray, accelerator)
        request = TuneRequest(minutes, base, own, name, seed, used, asked)
        with Store.open(store) as opened, diagnostics.progress() as display:
            tuned = tuning.tune(
                opened, request, where.hardware, where.torch, executor=executor,
                capture=partial(_capture_products, command) if command else None,
                note=diagnostics.note, report=_reporter(display), fits=fits,
            )  # fmt: skip
    page = tuned.document["page"]
    if output is None:
        output = beside(store, "-pages") / f"tune-{tuned.run}.md"
        output.parent.mkdir(parents=True, exist_ok=True)
    write_output(output, page, kept="The page is in the run as well.", kind=FileKind.TUNING)
    diagnostics.note(f"The page is in {output}, and in run {tuned.run} of {store}.")
    return Result(tuned.document, page)


def _find_executor(
    gpus: tuple[int, ...], ray: str | None, accelerator: str | None
) -> tuple[tuple[int, ...], Environment, Callable[[], Executor]]:
    """Return the GPUs of this machine to use (none with a cluster), the hardware and software that
    times, and a function that makes an executor there. Raises CollectionError where there is no
    GPU."""
    setup = local.direct_setup(binaries_dir())
    if ray is None:
        used = local.devices(gpus) if gpus else local.devices()[:1]
        here = replace(environment(), hardware=detect(used[0]))
        return used, here, partial(local.LocalExecutor, used, setup=setup)
    from diode_engine.collect.cluster.executor import RayExecutor

    diagnostics.note(f"Asking the Ray cluster at {ray} which GPU it has ...")
    on_cluster = partial(RayExecutor, ray, kind=accelerator, setup=setup)
    return (), environment_of(on_cluster()), on_cluster


def _capture_products(command: Sequence[str]) -> Sequence[Problem]:
    """The products that the program compiles. Raises CollectionError where there are none."""
    captured = capture.run(command)
    if captured.interrupted:
        raise KeyboardInterrupt
    if not captured.problems:
        raise CollectionError(f"{captured.why_nothing} There is nothing of it to tune to.")
    if captured.exit_code:
        diagnostics.warn(f"The program ended with exit code {captured.exit_code}.")
    return captured.problems


def _reporter(display: Display) -> Callable[[Mapping[str, Any]], None]:
    task = display.add_task("tune", total=1000)

    def report(progress: Mapping[str, Any]) -> None:
        display.update(
            task, completed=round(1000 * progress["fraction"]),
            description=f"{progress['doing']}: {progress['timings']:,} timings",
        )  # fmt: skip

    return report
