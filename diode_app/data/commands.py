"""Headless commands in their own processes: work of seconds that needs no run, must not take this
process's time, and must not end with it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence

from diode_engine.errors import DiodeError


class CommandError(DiodeError):
    """A headless command has failed; its last words say why. `out` is what it had written to
    stdout."""

    def __init__(self, sentence: str, out: str = "") -> None:
        super().__init__(sentence)
        self.out = out


async def run_command(words: Sequence[str]) -> str:
    """Return what `diode-engine WORDS...` has written to stdout when it is done (see
    `run_python`)."""
    return await run_python("-m", "diode_engine", *words)


async def run_python(*words: str) -> str:
    """Return what `python WORDS...` has written to stdout when it is done. It continues where the
    caller is cancelled or this process ends. Raises CommandError, with its last words, where it
    fails."""
    # Files, not pipes: the command must not wait for a reader.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=said, start_new_session=True,
        )  # fmt: skip
        code = await process.wait()
        out.seek(0)
        said.seek(0)
        written = out.read().decode(errors="replace")
        if code == 0:
            return written
        lines = [line.strip() for line in said.read().decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "it said nothing")
    raise CommandError(last.removeprefix("Error: "), written)
