"""diode-engine serve, as a browser meets it: a page, and the dashboard's first frame."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from diode_engine.store import Store

pytest.importorskip("textual_serve")
aiohttp = pytest.importorskip("aiohttp")  # which textual-serve brings
pytestmark = pytest.mark.asyncio
SECONDS = 60


async def test_a_page_and_its_first_frame(tmp_path: Path) -> None:
    store = tmp_path / "diode.db"
    Store.open(store).close()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "diode_engine", "serve", f"--store={store}", f"--port={port}",
        "--host=127.0.0.1",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        said = b""
        while b"Press Ctrl+C to quit" not in said:  # it listens, or will in a moment
            line = await asyncio.wait_for(server.stderr.readline(), SECONDS)
            assert line, said
            said += line
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as browser:
            assert f"ws://127.0.0.1:{port}/ws" in await asyncio.wait_for(_page(browser), SECONDS)
            async with browser.ws_connect("/ws?width=100&height=30") as screen:
                shown = await asyncio.wait_for(_until(screen, "diode.db"), SECONDS)
                assert "Diode" in shown
                await screen.send_json(["stdin", "?"])
                await asyncio.wait_for(_until(screen, "A capital letter"), SECONDS)
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


async def _page(browser: Any) -> str:
    while True:
        try:
            async with browser.get("/") as page:
                assert page.status == 200
                return await page.text()
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0)


async def _until(screen: Any, words: str) -> str:
    """What is written until these words are."""
    shown = ""
    while words not in shown:
        message = await screen.receive()
        assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message
        if message.type is aiohttp.WSMsgType.BINARY:
            shown += message.data.decode(errors="replace")
        else:
            kind, *_ = json.loads(message.data)
            assert kind != "error", message.data
    return shown
