"""A job that others can watch and stop: it works within a `Job`."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from diode_engine.errors import RunError, StoreError
from diode_engine.location import Location, location_of
from diode_engine.runs.machine import MachineWatch
from diode_engine.runs.process import current_process
from diode_engine.store import RunState, Store

log = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
# The queued run that a process was started for, and its store (a path or URL): "7:/path/diode.db".
VARIABLE = "DIODE_RUN"


def begin(store: Store, kind: str, spec: Mapping[str, Any]) -> int:
    """Begins a run that this process does, in state running; returns its id.

    It is the queued run that this process was started for (see `launch`); else it is a new one,
    which has this process's command line if that is Diode's command. `spec` says what the job was
    asked for, as JSON. Raises RunError where the queued run was ended in the meantime.
    """
    claim = claimed_run()
    if claim is None or not is_awaited(store, kind):
        command = _own_command(store.location)
        return store.start_run(
            kind, spec, process=current_process(), command=command,
            directory=None if command is None else str(Path.cwd()),
        )  # fmt: skip
    run, _ = claim
    del os.environ[VARIABLE]  # so that no child process takes the run for its own
    if not store.begin_run(run, spec, process=current_process()):
        raise RunError(f"Run {run} was ended before it began; start another one.")
    return run


def is_awaited(store: Store, kind: str) -> bool:
    """Whether this process was started for a queued run of this kind, which `begin` will begin."""
    run, where = claimed_run() or (0, None)
    return where == store.location.absolute() and store.run(run).kind == kind


def claimed_run() -> tuple[int, Location] | None:
    """The run that this process was started for, if it has not begun, and its store."""
    run, _, store = os.environ.get(VARIABLE, "").partition(":")
    return (int(run), location_of(store)) if run.isdecimal() else None


def _own_command(store: Location) -> tuple[str, ...] | None:
    """This process's command line, with the store; None where it is not diode-engine's."""
    program = Path(sys.argv[0])
    if program.name != "diode-engine" and program.parts[-2:] != ("diode_engine", "__main__.py"):
        return None
    words = sys.argv[1:]
    if not any(word == "--store" or word.startswith("--store=") for word in words):
        words = [*words, f"--store={store.absolute()}"]
    return ("diode-engine", *words)


class Job:
    """A run that this process does, from beginning to end: a context manager around the work. It
    begins the run (see `begin`), shows that the run is alive (from a thread of its own, also during
    a long step), and writes how it ended: done, with the text of `message`; cancelled, after a
    KeyboardInterrupt; or failed, after any other exception, with its text. In each case it calls
    `ending` before it writes this."""

    def __init__(
        self, store: Store, kind: str, spec: Mapping[str, Any], *,
        when_cancelled: str = "stopped by the user",
    ) -> None:  # fmt: skip
        self._store, self._kind, self._spec = store, kind, spec
        self._when_cancelled = when_cancelled
        self._id: int | None = None
        self._machine = MachineWatch()  # sampled at each beat
        self._progress: Mapping[str, Any] = {}
        self._written = -math.inf  # when the progress was
        self.message: str | None = None
        self.ending: Callable[[], None] = lambda: None
        self._asked_to_stop = threading.Event()
        self._over = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)

    @property
    def id(self) -> int:
        """The run's number; known once the run has begun."""
        assert self._id is not None
        return self._id

    def __enter__(self) -> Self:
        self._id = begin(self._store, self._kind, self._spec)
        self._beat()
        self._heartbeat.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._over.set()
        self._heartbeat.join()
        self._machine.sample()
        try:
            self.ending()
        finally:
            state, message = RunState.DONE, self.message
            if isinstance(error, KeyboardInterrupt):
                state, message = RunState.CANCELLED, self._when_cancelled
            elif error is not None:
                state, message = RunState.FAILED, str(error)
            progress = self._with_machine() if self._progress else None
            self._store.finish_run(self.id, state, message, progress=progress)

    def check(self) -> None:
        """Raises KeyboardInterrupt, as Ctrl-C does, where somebody has asked the run to stop."""
        if self._asked_to_stop.is_set():
            raise KeyboardInterrupt

    def tell(self, progress: Mapping[str, Any], *, every: float = 0.0) -> None:
        """Writes the run's progress, with what it uses of its machine as `machine`; not where the
        last progress was written less than `every` seconds ago."""
        self._progress = progress
        if time.monotonic() - self._written >= every:
            self._store.update_run(self.id, progress=self._with_machine())
            self._written = time.monotonic()

    def _with_machine(self) -> Mapping[str, Any]:
        return {**self._progress, "machine": self._machine.to_dict()}

    def _beat_on(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._beat()

    def _beat(self) -> None:
        self._machine.sample()
        try:
            if self._store.beat(self.id):
                self._asked_to_stop.set()
        except StoreError as error:  # the next beat may succeed
            log.warning("Run %d could not show that it is alive: %s", self.id, error)
