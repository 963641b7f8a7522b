"""diode-engine freeze: a program's choices as a file, for a review and for compiles without a
model."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.options import WRITTEN_FILE, option


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@option(
    "-o", "--output", type=WRITTEN_FILE, default=Path("frozen-choices.toml"),
    help="The file to write.",
)  # fmt: skip
@click.option(
    "--check", is_flag=True,
    help="Write nothing; exit with 1 where the file is not what would be written, and say why.",
)  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def freeze(output: Path, check: bool, command: tuple[str, ...]) -> int:
    """Run a program with Diode on, and write the kernel of each product that it compiles to a file
    that can be reviewed and put under version control.

    \b
    diode-engine freeze -o frozen-choices.toml -- python serve.py --warm-up
    DIODE_FROZEN_CHOICES=frozen-choices.toml python serve.py

    A program with this file takes exactly these kernels, and needs no model. It fails, and says
    why, where it would differ: for a product that is not in the file, and on another GPU, torch or
    Triton. Nothing is benchmarked: each product gets one kernel. Caches of compiled graphs are off.
    The program's output goes to stderr.
    """
    from diode_engine.choosing import frozen
    from diode_engine.reports.freezing import freeze as freeze_notes
    from diode_engine.reports.watching import watch_program

    before = frozen.read(output) if check else None
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
    made = freeze_notes(watched.processes, shlex.join(command))
    if before is None:
        write_output(output, frozen.render(made), kind=FileKind.FROZEN)
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
