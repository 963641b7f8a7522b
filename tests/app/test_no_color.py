"""NO_COLOR, as a terminal sees it."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import pytest

from diode_engine.store import Store

_STYLES = re.compile(rb"\x1b\[([0-9;:]*)m")
_PLAIN = set(b" 0 1 2 3 4 7 9 22 23 24 27 29 39 49".split(b" "))  # the last two: as it comes


@pytest.mark.parametrize("no_color", [True, False])
def test_no_colour_is_written(tmp_path: Path, no_color: bool) -> None:
    """Bold, dim, underlined and reversed may be; without NO_COLOR it has colours."""
    store = tmp_path / "diode.db"
    Store.open(store).close()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment.pop("NO_COLOR", None)
    if no_color:
        environment["NO_COLOR"] = "1"
    process, terminal = pty.fork()
    if process == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "diode_app", f"--store={store}"],
            environment,
        )
    written = b""
    try:
        while b"What to do next" not in written:
            written += os.read(terminal, 1 << 16)
        os.write(terminal, b"q")
        while True:
            try:
                written += os.read(terminal, 1 << 16)
            except OSError:  # it has left
                break
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    styles = {part for found in _STYLES.findall(written) for part in re.split(rb"[;:]", found)}
    assert (styles <= _PLAIN) is no_color, styles
