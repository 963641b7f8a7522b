"""diode-engine capture: which GEMMs a program compiles."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.cli.files import check_output
from diode_engine.cli.options import WRITTEN_FILE, option


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[-o FILE] --",
)
@option(
    "-o", "--output", type=WRITTEN_FILE, default=Path("captured.json"),
    help="The shapeset to write.",
)  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def capture(output: Path, command: tuple[str, ...]) -> int:
    """Run a program and write the GEMMs that it compiles, forward and backward, as a shapeset
    for `collect --file`.

    \b
    diode-engine capture -o shapes.json -- python train.py --steps 1

    Nothing is benchmarked: each GEMM is left to ATen, and caches of compiled graphs are off.
    The exit code is the program's.
    """
    from diode_engine.collect.capture import run
    from diode_engine.problems.sources import write_shapeset

    check_output(output, FileKind.SHAPESET)
    captured = run(command)
    if captured.problems:
        write_shapeset(captured.problems, output, f"captured from: {shlex.join(command)}")
        diagnostics.note(f"{len(captured.problems)} distinct problems are in {output}.")
        if captured.left_out:
            diagnostics.note(
                f"{len(captured.left_out)} more are products that Diode does not know, such as "
                f"{captured.left_out[0]}."
            )
    else:
        diagnostics.warn(f"{captured.why_nothing} {output} was not written.")
    if captured.interrupted:
        return ExitCode.INTERRUPTED
    return captured.exit_code
