"""diode-engine serve: what is asked of textual-serve, and the dashboard that a browser gets."""

from __future__ import annotations

import asyncio
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Run = Callable[..., Any]


class Server:
    """Notes how it was made, and serves nothing."""

    made: list[tuple[str, dict[str, Any]]]

    def __init__(self, command: str, **options: Any) -> None:
        self.made.append((command, options))

    def serve(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> type[Server]:
    module = ModuleType("textual_serve.server")
    Server.made = []
    module.Server = Server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "textual_serve", ModuleType("textual_serve"))
    monkeypatch.setitem(sys.modules, "textual_serve.server", module)
    return Server


def test_the_dashboard_of_this_store(run: Run, server: type[Server], tmp_path: Path) -> None:
    store = tmp_path / "a store.db"
    ran = run("serve", "--store", store, "--port", "8765", "--read-only")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    ((command, options),) = server.made
    assert shlex.split(command)[1:] == ["-m", "diode_app", "--store", str(store), "--read-only"]
    assert (options["host"], options["port"]) == ("localhost", 8765)


def test_an_address_that_others_reach_is_warned_of(run: Run, server: type[Server]) -> None:
    assert "start and stop runs" in run("serve", "--host", "0.0.0.0").err
    assert "to look only" in run("serve", "--host", "0.0.0.0", "--read-only").err


def test_without_textual_serve(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    ran = run("serve")
    assert (ran.code, ran.out) == (1, "")
    assert "its extra, serve" in ran.err.replace("\n", " ")


def test_a_browser_gets_the_dashboard(run: Run, dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("textual_serve")
    store = tmp_path / "a.db"
    run("data", "import", dataset, "--store", store)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "diode_engine", "serve", "--store", str(store), "--port",
             str(port), "--read-only"]  # fmt: skip
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            assert any(str(port) in line for line in server.stderr), "it ended"  # once it serves
            asyncio.run(_browse(port))
        finally:
            server.send_signal(signal.SIGINT)
            server.stderr.read()
        assert server.stdout.read() == ""
    assert server.returncode == 0


async def _browse(port: int) -> None:
    """Raises TimeoutError unless the page is there and a terminal behind it counts the timings."""
    import aiohttp

    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession(f"http://localhost:{port}") as browser,
        browser.get("/") as page,
        browser.ws_connect("/ws?width=120&height=40") as terminal,
    ):
        assert "Diode" in await page.text()
        shown = b""
        while b"48 of 4 candidates" not in shown:
            message = await terminal.receive()
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), shown[-500:]
            if message.type is aiohttp.WSMsgType.BINARY:
                shown += message.data
