"""diode-engine serve, as a browser meets it, and as an attacker does: another web page in the
user's browser, a name that is made to point here, and somebody without the address."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from diode_engine.store import Store
from tests.postgresql_server import free_port

pytest.importorskip("textual_serve")
aiohttp = pytest.importorskip("aiohttp")  # which textual-serve brings
pytestmark = pytest.mark.asyncio
SECONDS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a store in it, and modules that a process must not take from where it is started."""
    folder = tmp_path_factory.mktemp("served")
    Store.open(folder / "diode.db").close()
    for name in ("click.py", "diode_app.py"):
        (folder / name).write_text("open('taken from here', 'w')\n")
    return folder


@pytest.fixture(scope="module")
def serve(folder):
    """Starts a server there with more options; gives the address that it prints."""
    started = []
    tokens: list[str] = []
    errors = folder / "errors.txt"

    def _serve(*options, port=None):
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "diode_engine", "serve", f"--store={folder}/diode.db",
             "--host=127.0.0.1", f"--port={port or free_port()}", *options],
            stdout=subprocess.PIPE, stderr=errors.open("a"), text=True, cwd=folder,
            env={**os.environ, "DIODE_HOME": str(folder / "home")},
        )  # fmt: skip
        started.append(server)
        address = server.stdout.readline().strip()  # it listens now, or has ended
        assert address, errors.read_text()
        tokens.append(urlsplit(address).path.split("/")[-2])
        return address

    yield _serve
    for server in started:
        server.terminate()
    for server in started:
        assert server.wait(SECONDS) == 0
        assert server.stdout.read() == ""
        server.stdout.close()
    said = errors.read_text()
    assert "until Ctrl-C" in said
    assert not any(token in said for token in tokens)  # it may be kept in a log


@pytest.fixture(scope="module")
def address(serve):
    return serve()


@pytest.fixture(scope="module")
def proxied(serve):
    """What a server prints that browsers find behind a proxy, and where the proxy finds it."""
    port = free_port()
    printed = serve("--public-url=https://diode.example/lab/", port=port)
    return printed, printed.replace("https://diode.example/lab", f"http://127.0.0.1:{port}")


async def status(address, **headers):
    """Of a page or a file, or 101 where the address is a websocket's and it opens."""
    async with aiohttp.ClientSession() as browser:
        if urlsplit(address).path.endswith("/ws"):
            try:
                async with browser.ws_connect(address, headers=headers):
                    return 101
            except aiohttp.WSServerHandshakeError as error:
                return int(error.status)
        async with browser.get(address, headers=headers, allow_redirects=False) as answer:
            text = await answer.read()
            assert answer.status == 200 or b"dashboard" in text or b"address" in text
            return int(answer.status)


async def test_a_page_and_its_first_frame(address, folder):
    page, rules = await page_and_rules(address)
    own = f"http://{urlsplit(address).netloc}"
    assert "googleapis" not in page  # textual-serve's page has its font from there
    assert {word for word in rules.replace(";", "").split() if "://" in word} == {
        own, own.replace("http", "ws")
    }  # fmt: skip
    assert "default-src 'none'" in rules
    assert "frame-ancestors 'none'" in rules
    socket_address = address.replace("http", "ws") + "ws"
    assert f'"{socket_address}"' in page
    for name in ("js/textual.js", "css/xterm.css"):
        assert f'"{address}static/{name}"' in page
        assert await status(f"{address}static/{name}") == 200
    async with aiohttp.ClientSession() as browser:
        screen_address = f"{socket_address}?width=100&height=30"
        async with browser.ws_connect(screen_address, headers={"Origin": own}) as screen:
            shown = await asyncio.wait_for(_until(screen, "diode.db"), SECONDS)
            assert "Diode" in shown
            await screen.send_json(["stdin", "?"])
            await asyncio.wait_for(_until(screen, "A capital letter"), SECONDS)
    assert not (folder / "taken from here").exists()


@pytest.mark.parametrize("path", ["", "ws", "static/js/textual.js", "download/x", "nothing"])
async def test_who_has_not_the_address(address, path):
    root = address.rstrip("/").rpartition("/")[0]
    token = urlsplit(address).path.strip("/")
    assert len(token) == 43  # 32 random bytes
    other = token[:-2] + ("AA" if token[-2:] != "AA" else "BB")
    for start in (
        "", f"{other}/", f"{token[:-1]}/", f"{token}x/", f"x/{token}/", f"?token={token}",
    ):  # fmt: skip
        assert await status(f"{root}/{start}{path}") == 403
    assert await status(f"{root}/%FF%FE/{path}") == 403


@pytest.mark.parametrize("path", ["", "ws", "static/js/textual.js"])
async def test_another_web_page(address, path):
    here = urlsplit(address)
    for origin in (
        f"http://evil.example:{here.port}", f"https://{here.netloc}",
        f"http://{here.hostname}:1",  # somebody else's server on the same machine
        f"http://localhost:{here.port}",  # the request is for 127.0.0.1
        f"http://{here.netloc}.evil.example", "null", "",
    ):  # fmt: skip
        assert await status(address + path, Origin=origin) == 403, origin
    right = f"http://{here.netloc}"
    assert await status(address + path, Origin=right) == (101 if path == "ws" else 200)


@pytest.mark.parametrize("path", ["", "ws", "static/js/textual.js"])
async def test_a_name_that_is_made_to_point_here(address, path):
    port = urlsplit(address).port
    for host in (
        f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"evil.example@127.0.0.1:{port}",
        f"127.0.0.1:{port}@evil.example", f"localhost.:{port}", "127.1", "localhost:99999",
        "localhost:", "[127.0.0.1]", "[::1", "",
    ):  # fmt: skip
        assert await status(address + path, Host=host, Origin=f"http://{host}") == 403, host
        assert await status(address + path, Host=host) == 403, host


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:9000", "[::1]:9000", "LOCALHOST"])
async def test_by_a_tunnel(address, host):
    """A page's own addresses are those that it was asked by."""
    path = urlsplit(address).path
    page, _ = await page_and_rules(address, Host=host)
    assert f'"ws://{host.lower()}{path}ws"' in page
    assert await status(f"{address}ws", Host=host, Origin=f"http://{host.lower()}") == 101
    assert await status(f"{address}ws", Host=host, Origin="http://evil.example") == 403


async def test_behind_a_proxy(address, proxied):
    printed, behind = proxied
    public = "https://diode.example"
    assert printed.startswith(f"{public}/lab/")
    assert urlsplit(address).path != urlsplit(behind).path  # another token at each start
    for host in ("diode.example", urlsplit(behind).netloc):  # passed on, or written anew
        page, rules = await page_and_rules(behind, Host=host)
        assert f'"{printed.replace("https", "wss")}ws"' in page
        assert f'"{printed}static/js/textual.js"' in page
        assert "connect-src 'self' wss://diode.example;" in rules
        assert await status(f"{behind}ws", Host=host, Origin=public) == 101
        assert await status(f"{behind}ws", Host=host, Origin="https://evil.example") == 403
        assert await status(f"{behind}ws", Host=host, Origin=f"{public}:1") == 403
    assert await status(f"{behind}ws", Host="evil.example", Origin=public) == 403


async def page_and_rules(address, **headers):
    """The page, and what it lets a browser ask for."""
    async with aiohttp.ClientSession() as browser, browser.get(address, headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        return await answer.text(), answer.headers["Content-Security-Policy"]


async def _until(screen, words):
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
