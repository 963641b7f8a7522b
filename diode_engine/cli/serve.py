"""diode-engine serve: the dashboard in a browser."""

from __future__ import annotations

import shlex
import sys
from urllib.parse import urlsplit

import click

from diode_engine.cli import diagnostics, options
from diode_engine.cli.options import option
from diode_engine.location import Location

_HERE = ("localhost", "127.0.0.1", "::1")


def _check_url(_ctx: click.Context, _param: click.Parameter, given: str | None) -> str | None:
    try:
        url = urlsplit(given or "http://localhost")
        right = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        right = False
    if not right or url.username is not None or url.query or url.fragment:
        raise click.BadParameter(
            f"{given!r} is not http:// or https://, a host, and perhaps a port and a path."
        )
    return given


@click.command()
@options.store
@option("--read-only", is_flag=True, help="Serve a dashboard that cannot change anything.")
@option("--host", default="localhost", help="The address to serve at.")
@option("--port", type=click.IntRange(1, 65535), default=8000, help="The port.")
@option(
    "--public-url", metavar="URL", callback=_check_url,
    help="The dashboard's address behind a proxy. The proxy must pass on the path and the Origin.",
)  # fmt: skip
def serve(store: Location, read_only: bool, host: str, port: int, public_url: str | None) -> None:
    """Show the dashboard, diode-tui, in a browser, until Ctrl-C.

    The address to open is printed. It has a token, which is new at each start. Whoever has the
    address can do what you can with the store and its runs (with --read-only: see them). Other
    requests are refused, also those that another web page makes in your browser. The address is
    http: on a network, put a proxy with TLS in front of it and give the proxy's address with
    --public-url.

    Each page that is opened has its own dashboard.
    """
    from diode_engine.cli.dashboard_server import DashboardServer

    if host not in _HERE:
        diagnostics.warn(
            f"Others can reach {host}:{port}. Everybody who gets the address can use this "
            "dashboard" + (", but change nothing." if read_only else ", and start and stop runs.")
        )
    # -P: else Python would import modules from the current folder, which may be somebody else's.
    words = [sys.executable, "-P", "-m", "diode_app", "--store", str(store.absolute())]
    command = shlex.join([*words, *(["--read-only"] if read_only else [])])
    listens = False

    def say(address: str) -> None:
        nonlocal listens
        listens = True
        diagnostics.note(f"The dashboard of {store}, until Ctrl-C, is at")
        click.echo(address)

    server = DashboardServer(command, host=host, port=port, public_url=public_url, listening=say)
    server.console = diagnostics.console()
    try:
        server.serve()
    except OSError as error:
        if listens:
            raise
        raise click.ClickException(
            f"The dashboard cannot be served at {host}:{port}: {error.strerror or error}. Give "
            "another --port, or another --host."
        ) from error
