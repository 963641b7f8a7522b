"""diode-engine report: a program's products, what Diode chooses for them, and what that gains."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.options import WRITTEN_FILE, as_json_option, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diode_engine.reports.record import Report


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] --",
)
@option(
    "--hardware",
    metavar="NAME",
    help="The GPU to choose for. [default: the program's; where it has none, an NVIDIA H200]",
)
@option("--html", type=WRITTEN_FILE, help="Write the report as a page for a browser, too.")
@option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show the report in this file instead of running a program.",
)
@option("--top", type=click.IntRange(1), default=20, help="How many rows to print.")
@as_json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
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
    report is kept where the dashboard shows it. The exit code is the program's. With --json the
    program's output goes to stderr.
    """
    from diode_engine.reports import record
    from diode_engine.reports.html import render_page
    from diode_engine.reports.text import render_text

    if bool(command) is (file is not None):
        raise click.UsageError("Give a program, or --file FILE.")
    if html is not None:
        check_output(html, FileKind.TEXT)
    code: int = ExitCode.OK
    if file is not None:
        made = record.read(file)
    else:
        found, code = _run(command, hardware, as_json)
        if found is None:
            return code
        made = found
    if html is not None:
        write_output(html, render_page(made))
    text = json.dumps(made.to_dict(), allow_nan=False) if as_json else render_text(made, top)
    click.echo(text.rstrip())
    return code


def _run(command: Sequence[str], hardware: str | None, as_json: bool) -> tuple[Report | None, int]:
    """Return the report of the program, None where it has compiled nothing, and its exit code."""
    from diode_engine.cli.predict import named_hardware
    from diode_engine.reports import record
    from diode_engine.reports.assembling import assemble
    from diode_engine.reports.watching import watch_program

    device = None if hardware is None else named_hardware(hardware, ())
    watched = watch_program(command, sys.stderr.fileno() if as_json else None)
    code = ExitCode.INTERRUPTED if watched.interrupted else watched.exit_code
    if not watched.values("product"):
        diagnostics.warn(f"{watched.why_nothing} There is nothing to report.")
        return None, code or ExitCode.NOTHING
    made = assemble(
        watched.processes, shlex.join(command), hardware=device, exit_code=watched.exit_code
    )
    diagnostics.note(f"The report is kept in {record.write(made)}.")
    return made, code
