"""The command diode-tui."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from diode_engine import paths
from diode_engine.cli.options import StoreType
from diode_engine.errors import DiodeError
from diode_engine.location import FORM, Location

_NO_TEXTUAL = (
    "The dashboard needs {}, which is not installed: install diode-engine with its extra, app."
)


@click.command(
    name="diode-tui",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--store",
    "--db",
    "store",
    metavar="PATH|URL",
    envvar="DIODE_STORE",
    type=StoreType(),
    help=f"The database of timings: a file, or {FORM}. [default: $DIODE_STORE, else diode.db in "
    "Diode's data directory]",
)
@click.option("--read-only", is_flag=True, help="Change nothing: for a store that others share.")
@click.option(
    "--plain",
    is_flag=True,
    help="Show text without drawing characters: for a screen reader.",
)
@click.option("--theme", metavar="NAME", help="The colours, for this time.")
@click.option(
    "--open",
    "link",
    metavar="LINK",
    help="What to begin with: a place such as runs, or run/11, problem/501, model/mine@1.",
)
@click.option(
    "--filter",
    "query",
    metavar="QUERY",
    help="The filter of the list to begin with: of problems, or of runs with --open runs.",
)
@click.option("--version", is_flag=True, help="Show the version and exit.")
def _command(
    store: Location | None,
    read_only: bool,
    plain: bool,
    theme: str | None,
    link: str | None,
    query: str | None,
    version: bool,
) -> int:
    """Watch and do all of Diode's work on a screen.

    Runs that it starts go on when it is left. In a browser: textual serve diode-tui.
    """
    if version:
        from diode_engine.version import __version__

        click.echo(f"diode-tui {__version__}")
        return 0
    # A widget is many small objects. With Python's own thresholds the garbage collector takes a
    # third of a key's time; where the second is 10, it stops the screen for 0.1 s every few
    # seconds. A full collection, which may take seconds, is done while no key is pressed (app.py).
    gc.set_threshold(20_000, 4, 750)
    # In ms, how long Textual waits for the rest of a sequence that begins as Escape does.
    os.environ.setdefault("ESCDELAY", "5")
    try:
        from textual import constants

        from diode_app import links
        from diode_app.app import create_app
        from diode_app.terminal_driver import TerminalDriver
        from diode_app.themes import NAMES
    except ModuleNotFoundError as error:
        raise click.ClickException(_NO_TEXTUAL.format(error.name)) from error
    if theme is not None and theme not in NAMES:
        raise click.BadParameter(
            f"there is no theme {theme!r}; there are {', '.join(NAMES)}.",
            param_hint="--theme",
        )
    try:
        wanted = links.link(link, query)
    except DiodeError as error:
        raise click.UsageError(str(error)) from None
    if constants.DRIVER is None and not _has_terminal():
        raise click.UsageError(
            "diode-tui needs a terminal for its screen and its keys; start it in one, or in "
            "a browser by `diode-engine serve`. Every command of `diode-engine` works without."
        )
    app = create_app(
        store or paths.store_location(),
        read_only=read_only,
        theme=theme,
        wanted=wanted,
        plain=plain,
    )
    if not (constants.DRIVER or constants.DISABLE_KITTY_KEY):
        app.driver_class = TerminalDriver
    app.run()
    return app.return_code or 0


def _has_terminal() -> bool:
    """Whether Textual can read keys and write the screen, which it does by stdin and stderr."""
    return all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stderr__))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run diode-tui with these arguments (those of the process by default) and returns its exit
    code: 0, 1 where it failed, 2 where it was called wrongly."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _command.main(args, prog_name="diode-tui", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    return code if isinstance(code, int) else 0


def run() -> NoReturn:
    """Return the process diode-tui. It ends at once: no thread can delay it, and shutting down the
    interpreter takes longer than the rest."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
