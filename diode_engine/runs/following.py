"""Watches a run until it ends."""

from __future__ import annotations

import codecs
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from diode_engine.runs.process import is_alive
from diode_engine.runs.status import Status, look
from diode_engine.store import Store

LOOK_SECONDS = 1.0
# A process may still write to its log after it has written that its run has ended. So many more
# ticks its log is read, while the process lives.
MAX_LINGERING = 10


@dataclass(frozen=True)
class Tick:
    """The state of a run, and the new part of its log since the last tick."""

    status: Status
    log: str


def follow(
    store: Store, run: int, *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Tick]:
    """A tick every LOOK_SECONDS. The last one comes when the run has ended and its log is read to
    the end. To stop iterating earlier does not affect the run.

    Raises StoreError where there is no such run.
    """
    status = look(store, run)
    tail = None if status.run.log is None else Tail(Path(status.run.log))
    lingering = 0
    while True:
        process = status.run.process
        over = status.state.ended
        if over and tail is not None and process is not None and is_alive(process):
            lingering += 1
            over = lingering > MAX_LINGERING
        yield Tick(status, "" if tail is None else tail.read())
        if over:
            return
        sleep(LOOK_SECONDS)
        status = look(store, run)


class Tail:
    """Reads a growing text file piece by piece: from its start, or from its `last` bytes on."""

    def __init__(self, path: Path, *, last: int | None = None) -> None:
        self._path = path
        self._at = 0
        if last is not None:
            with contextlib.suppress(OSError):
                self._at = max(0, path.stat().st_size - last)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> str:
        """The text that was written since the last call; empty where there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:
            return ""
        self._at += len(data)
        return self._decoder.decode(data)
