"""diode-engine report, freeze and capture: they run a program, and say what it compiles."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from diode_engine.atomic import FileKind
from diode_engine.choosing import frozen_file
from diode_engine.cli import diagnostics, options
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.models.looking import named_hardware
from diode_engine.cli.options import READ_FILE, WRITTEN_FILE, option
from diode_engine.collect import capture as capturing
from diode_engine.errors import ReportError
from diode_engine.problems.sources import write_shapeset
from diode_engine.reports import freezing, record
from diode_engine.reports.assembling import assemble
from diode_engine.reports.html import render_page
from diode_engine.reports.record import Report
from diode_engine.reports.text import render_text
from diode_engine.reports.watching import watch_program


def _program_command(
    options: str = "[OPTIONS] --", *, required: bool = True
) -> Callable[[Callable[..., int]], click.Command]:
    """Makes a command whose arguments are a program with its own options, which it gets as
    `command: tuple[str, ...]`. `options` is how the help writes the command's own ones."""
    argument = click.argument("command", nargs=-1, required=required, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    command = click.command(context_settings=settings, options_metavar=options)
    return lambda function: command(argument(function))


@_program_command(required=False)
@option(
    "--hardware", metavar="NAME", help="The GPU to choose for.",
    default_text="the program's; where it has none, an NVIDIA H200",
)  # fmt: skip
@option("--html", type=WRITTEN_FILE, help="Write the report as a page for a browser, too.")
@option("--file", type=READ_FILE, help="Show the report in this file instead of running a program.")
@option("--top", type=click.IntRange(1), default=20, help="How many rows to print.")
@options.as_json
def report(
    hardware: str | None, html: Path | None, file: Path | None, top: int, as_json: bool,
    command: tuple[str, ...],
) -> int:  # fmt: skip
    """Run a program with Diode on, and report the products that it compiles: how many, where they
    are in the model, the kernel that Diode chooses, the predicted times, and what a search would
    have cost.

    \b
    diode-engine report -- python train.py --steps 1

    The program and the processes that it starts need no change. Products that it compiles without
    asking Diode (in the default mode, or for the CPU) have the kernels that Diode would choose. All
    times are predictions. Caches of compiled graphs are off, so that every graph is there. The
    report is kept where the dashboard shows it. The exit code is the program's, or 3 where it has
    compiled nothing. With --json the program's output goes to stderr.
    """
    if bool(command) is (file is not None):
        raise click.UsageError("Give a program, or --file FILE.")
    if html is not None:
        check_output(html, FileKind.PAGE)
    code: int = ExitCode.OK
    if file is not None:
        made = record.read(file)
    else:
        found, code = _run(command, hardware, as_json)
        if found is None:
            return code
        made = found
    if html is not None:
        write_output(html, render_page(made), kind=FileKind.PAGE)
    text = json.dumps(made.to_dict(), allow_nan=False) if as_json else render_text(made, top)
    click.echo(text.rstrip())
    return code


def _run(command: Sequence[str], hardware: str | None, as_json: bool) -> tuple[Report | None, int]:
    """Return the report of the program, None where it has compiled nothing, and its exit code."""
    device = None if hardware is None else named_hardware(hardware)
    watched = watch_program(command, sys.stderr.fileno() if as_json else None)
    code = ExitCode.INTERRUPTED if watched.interrupted else watched.exit_code
    if not watched.values("product"):
        diagnostics.warn(f"{watched.why_nothing} There is nothing to report.")
        return None, code or ExitCode.NOTHING
    made = assemble(
        watched.processes, shlex.join(command), hardware=device, exit_code=watched.exit_code
    )
    try:
        diagnostics.note(f"The report is kept in {record.write(made)}.")
    except ReportError as error:
        diagnostics.warn(f"The report is not kept: {error}")
    return made, code


@_program_command()
@option(
    "-o", "--output", type=WRITTEN_FILE, default=Path("frozen-choices.toml"),
    help="The file to write.",
)  # fmt: skip
@click.option(
    "--check", is_flag=True,
    help="Write nothing; exit with 1 where the file is not what would be written, and say why.",
)  # fmt: skip
def freeze(output: Path, check: bool, command: tuple[str, ...]) -> int:
    """Run a program with Diode on, and write the kernel of each product that it compiles to a file
    that can be reviewed and put under version control.

    \b
    diode-engine freeze -o frozen-choices.toml -- python serve.py --warm-up
    DIODE_FROZEN_CHOICES=frozen-choices.toml python serve.py

    A program with this file takes exactly these kernels, and needs no model. It fails, and says
    why, where it would differ: for a product that is not in the file, and on another GPU, torch or
    Triton. So freeze on the GPU that the file is for. Nothing is benchmarked: each product gets one
    kernel. Caches of compiled graphs are off. The program's output goes to stderr.
    """
    before = frozen_file.read(output) if check else None
    if before is None:
        check_output(output, FileKind.FROZEN)
    watched = watch_program(command, sys.stderr.fileno(), freezing=True)
    if watched.interrupted:
        return ExitCode.INTERRUPTED
    if watched.exit_code:
        raise click.ClickException(
            f"The program has failed with exit code {watched.exit_code}, so its choices are not "
            "complete. Nothing was written."
        )
    if not watched.values("product"):
        diagnostics.warn(f"{watched.why_nothing} There is nothing to freeze.")
        return ExitCode.NOTHING
    made = freezing.freeze(watched.processes, shlex.join(command))
    if before is None:
        write_output(output, frozen_file.render(made), kind=FileKind.FROZEN)
        click.echo(f"{output}: {len(made.choices)} products, for {made.origin.gpu}.")
        return ExitCode.OK
    differences = before.describe_differences(made)
    for sentence in differences:
        click.echo(sentence)
    if differences:
        raise click.ClickException(
            f"{output} differs in {len(differences)} places. To write it anew, leave --check out."
        )
    click.echo(f"{output} is what would be written.")
    return ExitCode.OK


@_program_command("[-o FILE] --")
@option(
    "-o", "--output", type=WRITTEN_FILE, default=Path("captured.json"),
    help="The shapeset to write.",
)  # fmt: skip
def capture(output: Path, command: tuple[str, ...]) -> int:
    """Run a program and write the products that it compiles, forward and backward, as a shapeset
    for `collect --file`.

    \b
    diode-engine capture -o shapes.json -- python train.py --steps 1

    Nothing is benchmarked: each product gets ATen's kernel, and caches of compiled graphs are off.
    The exit code is the program's, or 3 where it has compiled nothing.
    """
    check_output(output, FileKind.SHAPESET)
    captured = capturing.run(command)
    if captured.problems:
        write_shapeset(captured.problems, output, f"captured from: {shlex.join(command)}")
        diagnostics.note(f"{output}: {len(captured.problems)} distinct problems.")
        if captured.left_out:
            diagnostics.note(
                f"{len(captured.left_out)} products were left out, since Diode does not know "
                f"them, such as {captured.left_out[0]}."
            )
    else:
        diagnostics.warn(f"{captured.why_nothing} {output} was not written.")
    if captured.interrupted:
        return ExitCode.INTERRUPTED
    return captured.exit_code or (ExitCode.OK if captured.problems else ExitCode.NOTHING)
