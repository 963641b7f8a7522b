"""An import in many short transactions, between which others write, and which nobody sees before it
is whole.

Its run has a key that begins with `schema.UNFINISHED` until the last transaction: all questions
leave the timings of such runs out. Whatever ends an import before that leaves a store that answers
as before; `discard` removes the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.table import TimingTable
from diode_engine.errors import StoreError
from diode_engine.store import schema
from diode_engine.store.ingest import Ingest
from diode_engine.store.run_table import RunTable, as_json
from diode_engine.store.runs import RunState

STEP_SECONDS = 0.04  # what a transaction is to take, so that others wait no longer
# Between two transactions, so that those who wait can begin: they look every few milliseconds.
PAUSE_SECONDS = 0.008
_LEAST_ROWS, _FIRST_ROWS, _MOST_ROWS = 500, 2000, 50_000
_SWEEPS_DELETED = 20  # at once

# Called with how many rows are written; it may raise KeyboardInterrupt to end the import.
Progress = Callable[[int], None]


class Staging:
    """Rows that become those of `run`, or of a new one. Raises StoreError, as all its methods do,
    where a row was never timed or there is no such run."""

    def __init__(
        self, store: RunTable, table: TimingTable, spec: Mapping[str, Any], *,
        run: int | None, progress: Progress = lambda _: None,
    ) -> None:  # fmt: skip
        self._store, self._progress = store, progress
        self._seconds = 0.0  # that the last transaction took
        self._own = run is None
        key = f"{schema.UNFINISHED}{uuid4().hex}"
        with store.writes() as connection:
            if run is None:
                run = store._start(connection, "import", spec, RunState.RUNNING, key=key)
            else:
                values = {"key": key, "spec": as_json(spec, "A run's spec")}
                store._update(connection, run, values)
        self.run = run
        try:
            self._ingest = Ingest(self._step, run, table)
            self._ingest.identify()
            self._ingest.write(self._slices)
        except BaseException:
            self.discard()
            raise

    def prepare(self) -> None:
        """Computes what is derived from the rows; `publish` then has only to write it."""
        with self._store.reads() as connection:
            self._ingest.prepare(connection)

    def publish(self, connection: sa.Connection, key: str) -> None:
        """Makes the rows those of a finished import, in this transaction."""
        self._ingest.derive(connection)
        now = time.time()
        ends = {"state": str(RunState.DONE), "finished": now} if self._own else {}
        self._store._update(connection, self.run, {"key": key, "heartbeat": now, **ends})

    def discard(self) -> None:
        """Removes the rows, and the run if it is a new one. What cannot be removed now stays
        unseen."""
        with suppress(StoreError):
            discard(self._store, self.run, delete=self._own)

    @contextmanager
    def _step(self) -> Iterator[sa.Connection]:
        time.sleep(PAUSE_SECONDS)
        with self._store.writes(in_turn=True) as connection:
            began = time.perf_counter()
            self._store._update(connection, self.run, {"heartbeat": time.time()})
            yield connection
        self._seconds = time.perf_counter() - began

    def _slices(self, n: int) -> Iterator[slice]:
        """Slices of n rows, each of as many as a transaction can write in STEP_SECONDS."""
        start, rows = 0, _FIRST_ROWS
        while start < n:
            yield slice(start, start + rows)
            start += rows
            self._progress(min(start, n))
            fitting = rows * STEP_SECONDS / max(self._seconds, 1e-4)
            rows = int(min(max(fitting, rows / 4, _LEAST_ROWS), 2 * rows, _MOST_ROWS))


def unfinished_imports(store: RunTable) -> list[int]:
    """The runs that have rows which nobody sees: imports that go on, or that were killed."""
    with store.reads() as connection:
        return list(connection.scalars(schema.unfinished()))


def discard(store: RunTable, run: int, *, delete: bool = False) -> None:
    """Removes what an unfinished import has written, and with `delete` its run. Raises
    StoreError."""
    s = schema.sweeps.c
    some: npt.NDArray[np.int64] | list[int] = [0]
    while len(some):
        time.sleep(PAUSE_SECONDS)
        with store.writes(in_turn=True) as connection:
            if run not in list(connection.scalars(schema.unfinished())):
                return
            mine = sa.select(s.id).where(s.run == run).order_by(s.id.desc())
            some = list(connection.scalars(mine.limit(_SWEEPS_DELETED)))
            for table, sweep in (
                (schema.kernels, schema.kernels.c.sweep),
                (schema.timings, schema.timings.c.sweep),
                (schema.sweeps, s.id),
            ):
                connection.execute(sa.delete(table).where(sweep.in_(some)))
            if not some and delete:
                connection.execute(sa.delete(schema.runs).where(schema.runs.c.id == run))
            elif not some:
                store._update(connection, run, {"key": None})
