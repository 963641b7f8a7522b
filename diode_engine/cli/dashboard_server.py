"""The server of `diode-engine serve`: textual-serve's server, but only for people who have its
address.

Three things are checked of every request, for a page, a file or the websocket:

- its path begins with the token, which is random and new at each start;
- its Host is a name that this server has, or an address in numbers. A web page whose own name was
  made to point here ("DNS rebinding") comes with another Host;
- its Origin, where it has one, is this server: browsers say with it to which page a websocket
  belongs.

The token is in the path and in no cookie: browsers send a host's cookies to all of its ports, which
on a shared machine may belong to other people.
"""

from __future__ import annotations

import copy
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web
from textual_serve.server import Server
from yarl import URL

_EVERYWHERE = ("0.0.0.0", "::")  # compared with, not bound to
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")  # as browsers write it
_FOREIGN = re.compile(r'<link\b[^>]*href="https?://fonts\.[^>]*>')
_SECONDS_TO_END = 1  # for open dashboards, when the server ends; aiohttp waits so long twice
_NO_TOKEN = (
    "This is not the whole address: it has a token, which is new at each start. Open the address "
    "that diode-engine serve has printed.\n"
)
_NOT_THIS_HOST = (
    "The dashboard is not served by this name. Open the address that diode-engine serve has "
    "printed, or start it with --public-url and the address that you want to use.\n"
)
_OTHER_PAGE = "Another web page may not use this dashboard.\n"


class DashboardServer(Server):
    """Serves `command`, one process for each page that is opened, at `host` and `port`.

    `public_url` is the address behind a proxy, which may change the Host but must pass on the
    Origin. Without it, a page uses the address that it was asked for at, such as the near end of a
    tunnel. `listening` is called with the address to open, once it can be opened.
    """

    def __init__(
        self, command: str, *, host: str, port: int, public_url: str | None,
        listening: Callable[[str], None],
    ) -> None:  # fmt: skip
        name = socket.gethostname() if host in _EVERYWHERE else host
        here = f"http://{f'[{name}]' if ':' in name else name}:{port}"
        super().__init__(
            command, host=host, port=port, title="Diode",
            public_url=(public_url or here).rstrip("/"),
        )  # fmt: skip
        self._token = secrets.token_urlsafe(32)
        self._proxied = public_url is not None
        self._names = {"localhost", name.lower(), URL(self.public_url).host}
        self._listening = listening

    def serve(self, debug: bool = False) -> None:
        """Serves until SIGINT or SIGTERM. Raises OSError where it cannot be served there."""
        self.debug = debug
        self.initialize_logging()
        web.run_app(
            self._make_app(),
            host=self.host,
            port=self.port,
            # aiohttp calls it when it listens, and not where the port is taken.
            print=lambda _: self._listening(f"{self.public_url}/{self._token}/"),
            access_log=None,  # its lines would have the token in them
            shutdown_timeout=_SECONDS_TO_END,
        )

    async def on_startup(self, app: web.Application) -> None:
        """Prints nothing: the server does not listen yet."""

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.add_subapp(f"/{self._token}", await super()._make_app())
        app.on_response_prepare.append(self._restrict)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        refused = self._refusal(request)
        if refused is not None:
            raise web.HTTPForbidden(text=refused)
        response: web.StreamResponse = await handler(request)
        return response

    def _refusal(self, request: web.Request) -> str | None:
        """Why a request is refused; None where it is answered."""
        host = _host(request)
        if host is None or not self._is_here(host):
            return _NOT_THIS_HOST
        ours = {f"http://{host}", str(URL(self.public_url).origin())}
        if not ours.issuperset(request.headers.getall("Origin", ())):
            return _OTHER_PAGE
        given = request.path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode(errors="replace"), self._token.encode()):
            return _NO_TOKEN
        return None

    def _is_here(self, host: str) -> bool:
        if _HOST.fullmatch(host) is None:
            return False
        try:
            name = URL(f"http://{host}").host or ""
            if name not in self._names:
                ipaddress.ip_address(name)
        except ValueError:  # another name, or a port that is none
            return False
        return True

    def _address(self, request: web.Request) -> str:
        """The address of this server as the browser of an accepted request sees it."""
        return self.public_url if self._proxied else f"http://{_host(request)}"

    async def handle_index(self, request: web.Request) -> Any:
        """The page, with the addresses of its files and of its websocket, and without
        textual-serve's font, which another host has."""
        page = copy.copy(self)
        page.public_url = self._address(request)
        response: Any = await Server.handle_index(page, request)
        response.text = _FOREIGN.sub("", response.text)
        return response

    async def _restrict(self, request: web.Request, response: web.StreamResponse) -> None:
        """Forbids browsers to load anything from other hosts (textual-serve's page has a font from
        one), to show the page inside another page, and to send its address to other servers."""
        policy = "default-src 'none'"
        if response.status != web.HTTPForbidden.status_code:
            # 'self' too, since these rules have no form for an IPv6 address.
            own = f"'self' {URL(self._address(request)).origin()}"
            policy += (
                f"; script-src {own} 'unsafe-inline'; style-src {own} 'unsafe-inline'; "
                f"img-src {own} data:; font-src {own}; connect-src {own.replace('http', 'ws', 1)}"
            )
        response.headers["Content-Security-Policy"] = (
            f"{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Content-Type-Options"] = "nosniff"


def _host(request: web.Request) -> str | None:
    """The Host of a request; None where it has none, or several."""
    given = request.headers.getall("Host", ())
    return given[0].lower() if len(given) == 1 else None
