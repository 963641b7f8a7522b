"""Watching a run until it ends."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from diode_engine.runs.process import is_alive
from diode_engine.runs.status import Status, look
from diode_engine.store import Store

LOOK_SECONDS = 1.0
# A process says its last words after it has written its run's end.
MOST_LINGERING = 10


@dataclass(frozen=True)
class Tick:
    """How a run is, and what its log has got since the tick before."""

    status: Status
    log: str


def follow(
    store: Store, run: int, *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Tick]:
    """A tick every LOOK_SECONDS; the last one when the run has ended and its log is read.

    Raises StoreError where there is no such run. Leaving it early leaves the run alone.
    """
    status = look(store, run)
    tail = None if status.run.log is None else _Tail(Path(status.run.log))
    lingering = 0
    while True:
        process = status.run.process
        over = status.state.ended
        if over and tail is not None and process is not None and is_alive(process):
            lingering += 1
            over = lingering > MOST_LINGERING
        yield Tick(status, "" if tail is None else tail.read())
        if over:
            return
        sleep(LOOK_SECONDS)
        status = look(store, run)


class _Tail:
    """A growing text file, read piece by piece."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> str:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:
            return ""
        self._at += len(data)
        return self._decoder.decode(data)
