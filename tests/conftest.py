"""What all tests share: a data directory of their own, and the marker gpu."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch finds no GPU here"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many of the documentation's blocks were run (tests/docs/test_blocks.py)."""
    reports = [r for state in ("passed", "failed") for r in terminalreporter.getreports(state)]
    if ran := [n for r in reports for name, n in r.user_properties if name == "blocks"]:
        terminalreporter.write_line(f"{sum(ran)} blocks of code in {len(ran)} pages were run.")


@pytest.fixture(autouse=True)
def diode_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Diode's data directory, empty: no test reads or writes the user's own."""
    home = tmp_path / "diode-home"
    monkeypatch.setenv("DIODE_HOME", str(home))
    for name in ("DIODE_STORE", "DIODE_DEBUG", "DIODE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    return home


def pytest_configure() -> None:
    """A run that was started in the background or under nohup ignores these signals, and so would
    every process that a test starts, and sends them to."""
    for ignored, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(ignored) is signal.SIG_IGN:
            signal.signal(ignored, usual)
