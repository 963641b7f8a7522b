"""diode-engine serve: what is asked of textual-serve."""

from __future__ import annotations

import shlex
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
