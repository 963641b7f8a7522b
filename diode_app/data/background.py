"""Work outside of the event loop: in threads, which the dashboard does not wait for when it ends,
and in separate processes, for what takes seconds. Most of these continue when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from diode_engine.errors import DiodeError

T = TypeVar("T")


async def in_thread(work: Callable[[], T], name: str = "work") -> T:
    """Do the work in a new thread and return its result, or raise its error. The
    thread is a daemon: where the caller is cancelled or the process ends, neither waits for it
    (asyncio's own threads are joined when a loop closes)."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # the work goes on where the caller is cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # it is raised where it is awaited
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(future)


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


async def run_python(*words: str, outlives: bool = True) -> str:
    """Return what `python WORDS...` has written to stdout when it is done. Where the caller is
    cancelled or this process ends, it continues; without `outlives` it is killed where the caller
    is cancelled. Raises CommandError, with its last words, where it fails."""
    # Files, not pipes: the command must not wait for a reader.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", *words,
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=said, start_new_session=True,
        )  # fmt: skip
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            if not outlives:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    process.kill()
            raise
        out.seek(0)
        said.seek(0)
        written = out.read().decode(errors="replace")
        if code == 0:
            return written
        lines = [line.strip() for line in said.read().decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "it said nothing")
    raise CommandError(last.removeprefix("Error: "), written)
