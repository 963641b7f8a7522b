"""DIODE_FEEDBACK=PATH: what Inductor benchmarks is written to the store at that path.

`train --fine-tune` can learn from it. A thread of its own writes, so the compile never waits and
never fails. What cannot be written is dropped; the reason is logged once. Each process is a run of
kind feedback. The times are Inductor's own: the shortest of its launches, which are fewer and less
careful than a collection's.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
from collections.abc import Sequence

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.errors import DiodeError, explain_missing_package
from diode_engine.inductor.listening import feedback

log = logging.getLogger(__name__)

VARIABLE = "DIODE_FEEDBACK"
_MAX_WAITING = 1000  # benchmarks that wait to be written; more are dropped
_CLOSE_SECONDS = 15.0  # for writing what is left when the process ends

_Benchmark = tuple[Problem, Sequence[tuple[Candidate, float]]]


def install() -> None:
    """Writes what this process benchmarks to the store that DIODE_FEEDBACK names, if it is set."""
    path = os.environ.get(VARIABLE)
    if path:
        feedback.listen(FeedbackWriter(path).take)


class FeedbackWriter:
    """Writes benchmarks to a store, from a thread that starts with the first of them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._pid = 0  # of the process that the thread is in
        self._queue: queue.Queue[_Benchmark | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._dropped = False

    def take(self, problem: Problem, records: Sequence[tuple[Candidate, float]]) -> None:
        """Hands a benchmark to the thread: a problem, and the microseconds of each candidate.
        Returns at once."""
        with self._lock:
            if self._pid != os.getpid():  # a forked process does not have its parent's threads
                self._pid = os.getpid()
                self._queue = queue.Queue(_MAX_WAITING)
                self._thread = threading.Thread(
                    target=self._write, args=(self._queue,), name="diode-feedback", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)
        try:
            self._queue.put_nowait((problem, records))
        except queue.Full:
            self._say_dropped("they come faster than they can be written")

    def close(self) -> None:
        """Waits until everything is written, about _CLOSE_SECONDS at most."""
        thread = self._thread
        if thread is not None and self._pid == os.getpid():
            self._thread = None
            try:
                self._queue.put(None, timeout=_CLOSE_SECONDS)
            except queue.Full:
                return
            thread.join(_CLOSE_SECONDS)

    def _write(self, benchmarks: queue.Queue[_Benchmark | None]) -> None:
        from diode_engine.core.hardware import environment
        from diode_engine.core.table import TimingTable
        from diode_engine.core.timing import Timing
        from diode_engine.store import RunState, Store

        run = None
        try:
            with Store.open(self._path) as store:
                try:
                    while (benchmark := benchmarks.get()) is not None:
                        problem, records = benchmark
                        here = environment()
                        table = TimingTable.from_records(
                            (problem, candidate, here, Timing(min_us=us))
                            for candidate, us in records
                        )
                        if run is None:
                            run = store.start_run("feedback", {"program": sys.argv[:1]})
                        store.add(run, table)
                except Exception as error:
                    if run is not None:
                        store.finish_run(run, RunState.FAILED, str(error))
                    raise
                if run is not None:
                    store.finish_run(run, RunState.DONE)
        except DiodeError as error:
            self._say_dropped(str(error))
        except ModuleNotFoundError as error:
            self._say_dropped(explain_missing_package(error, "The store") or repr(error))
        except Exception as error:  # noqa: BLE001  # nobody is there to catch it
            self._say_dropped(repr(error))

    def _say_dropped(self, why: str) -> None:
        if not self._dropped:
            self._dropped = True
            log.warning("%s: benchmarks are not kept: %s (logged once).", VARIABLE, why)
