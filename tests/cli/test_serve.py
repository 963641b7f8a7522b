"""diode-engine serve: what is asked of the server, and what a user is told."""

from __future__ import annotations

import shlex
import socket
import sys

import pytest

pytest.importorskip("textual_serve")


def test_the_dashboard_of_this_store(run, served, tmp_path):
    store = tmp_path / "a store.db"
    ran = run("serve", "--store", store, "--port", "8765", "--read-only")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    (server,) = served
    words = shlex.split(server.command)[1:]
    assert words == ["-P", "-m", "diode_app", "--store", str(store), "--read-only"]
    assert (server.host, server.port) == ("localhost", 8765)
    assert server.public_url == "http://localhost:8765"


def test_an_address_that_others_reach_is_warned_of(run, served):
    assert "start and stop runs" in run("serve", "--host", "0.0.0.0").err
    assert "but change nothing" in run("serve", "--host", "0.0.0.0", "--read-only").err
    assert run("serve", "--host", "127.0.0.1").err == ""
    # No browser finds anything at 0.0.0.0 but on this machine.
    assert served[0].public_url == f"http://{socket.gethostname()}:8000"


@pytest.mark.parametrize(
    "url",
    ["example.org", "ftp://example.org", "https://", "https://me@example.org", "http://a?b",
     "http://[", "http://a:99999"],
)  # fmt: skip
def test_a_public_url_that_is_none(run, served, url):
    ran = run("serve", "--public-url", url)
    assert (ran.code, served) == (2, [])
    assert "is not http:// or https://" in " ".join(ran.err.split())


def test_a_port_that_is_taken(run, diode_home):
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        ran = run("serve", "--host", "127.0.0.1", "--port", port)
    assert (ran.code, ran.out) == (1, "")
    said = " ".join(ran.err.split())
    assert said.startswith(f"Error: The dashboard cannot be served at 127.0.0.1:{port}: ")
    assert "address already in use" in said
    assert said.endswith("Give another --port, or another --host.")
    assert not (diode_home / "errors.log").exists()


def test_a_host_that_is_none(run):
    ran = run("serve", "--host", "no-such-host.invalid")
    ran.says(1, "cannot be served at no-such-host.invalid:8000")


def test_without_textual_serve(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    monkeypatch.delitem(sys.modules, "diode_engine.cli.dashboard_server", raising=False)
    run("serve").says(1, "Run: pip install 'diode-engine[serve]'")
