"""What a job does so that others can watch and stop it: `begin`, then `Heartbeat`."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from diode_engine.errors import RunError, StoreError
from diode_engine.runs.process import current
from diode_engine.store import Store

log = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
# Which queued run of which store a process was started for: "7:/path/of/diode.db".
VARIABLE = "DIODE_RUN"


def begin(store: Store, kind: str, spec: Mapping[str, Any]) -> int:
    """A run in state running, done by this process; its id.

    It is the queued run that this process was started for (see `launch`), else a new one, with
    this process's command line where it is Diode's command. `spec` is what the job was asked
    for, as JSON. Raises RunError where the queued run was ended meanwhile.
    """
    waiting = _claim(store, kind)
    if waiting is None:
        command = _own_command(store.path)
        return store.start_run(
            kind, spec, process=current(), command=command,
            directory=None if command is None else str(Path.cwd()),
        )  # fmt: skip
    if not store.begin_run(waiting, spec, process=current()):
        raise RunError(f"Run {waiting} was ended before it began; start another one.")
    return waiting


def is_awaited(store: Store, kind: str) -> bool:
    """Whether this process was started for a queued run of this kind, which `begin` begins."""
    claim = claimed()
    return (
        claim is not None and claim[1] == store.path.absolute() and store.run(claim[0]).kind == kind
    )


def _claim(store: Store, kind: str) -> int | None:
    claim = claimed()
    if claim is None or not is_awaited(store, kind):
        return None
    del os.environ[VARIABLE]  # it is nobody else's, and no child's
    return claim[0]


def claimed() -> tuple[int, Path] | None:
    """The run that this process was started for, while it has not begun, and its store."""
    run, _, path = os.environ.get(VARIABLE, "").partition(":")
    return (int(run), Path(path)) if run.isdecimal() else None


def _own_command(store: Path) -> tuple[str, ...] | None:
    """The words that this process was called with, and the store, if it is diode-engine."""
    program = Path(sys.argv[0])
    if program.name != "diode-engine" and program.parts[-2:] != ("diode_engine", "__main__.py"):
        return None
    words = sys.argv[1:]
    if not any(word == "--store" or word.startswith("--store=") for word in words):
        words = [*words, f"--store={store.absolute()}"]
    return ("diode-engine", *words)


class Heartbeat:
    """Shows, from a thread of its own, that a run is alive, also while one of its steps takes
    long; a context manager around the work."""

    def __init__(self, store: Store, run: int, *, seconds: float = BEAT_SECONDS) -> None:
        self._store = store
        self._run = run
        self._seconds = seconds
        self._asked = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._beat()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raises KeyboardInterrupt, as Ctrl-C does, where somebody has asked the run to stop."""
        if self._asked.is_set():
            raise KeyboardInterrupt

    def _go_on(self) -> None:
        while not self._over.wait(self._seconds):
            self._beat()

    def _beat(self) -> None:
        try:
            if self._store.beat(self._run):
                self._asked.set()
        except StoreError as error:  # the next one may be written
            log.warning("Run %d could not show that it is alive: %s", self._run, error)
