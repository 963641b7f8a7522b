"""diode-engine serve: the dashboard in a browser."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from diode_engine.cli import diagnostics
from diode_engine.cli.options import store_option

_MISSING = (
    "The dashboard in a browser needs {}, which is not installed: install diode-engine with its "
    "extra, serve."
)
_HERE = ("localhost", "127.0.0.1", "::1")


@click.command()
@store_option
@click.option("--read-only", is_flag=True, help="Let nobody change anything by it.")
@click.option("--host", default="localhost", show_default=True, help="The address to serve at.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Its port."
)
@click.option("--public-url", metavar="URL", help="Where browsers find it, behind a proxy.")
def serve(store: Path, read_only: bool, host: str, port: int, public_url: str | None) -> None:
    """Show the dashboard, diode-tui, in a browser, until Ctrl-C.

    Each page that is opened has a dashboard of its own. There is no password: whoever reaches
    the address can do what you can with the store and its runs, or see it with --read-only.
    """
    try:
        from textual_serve.server import Server
    except ModuleNotFoundError as error:
        raise click.ClickException(_MISSING.format(error.name)) from error
    if host not in _HERE:
        diagnostics.warn(
            f"Whoever reaches {host}:{port} can use this dashboard"
            + (", to look only." if read_only else ", and start and stop runs by it.")
        )
    words = [sys.executable, "-m", "diode_app", "--store", str(store.absolute())]
    command = shlex.join([*words, *(["--read-only"] if read_only else [])])
    server = Server(command, host=host, port=port, title="Diode", public_url=public_url)
    server.console = diagnostics.console()
    server.serve()
