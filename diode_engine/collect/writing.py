"""Writing timings to the store, several batches at once where they come fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from diode_engine.core.table import TimingTable

if TYPE_CHECKING:
    from diode_engine.store import Store

# Between two transactions, since a transaction costs as much as writing a thousand rows. A
# collection that is killed may lose what came in this time, and the batches that are being timed.
WRITE_SECONDS = 0.5


class TimingWriter:
    """Writes timings at once, or when WRITE_SECONDS have passed since the last write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tables: dict[int, list[TimingTable]] = {}  # by run
        self._then: list[Callable[[], None]] = []
        self._written = 0.0  # by time.monotonic()

    def add(self, run: int, table: TimingTable) -> None:
        """Adds timings of a run. Raises StoreError, as `write` does."""
        self._tables.setdefault(run, []).append(table)
        self.write_if_due()

    def then(self, call: Callable[[], None]) -> None:
        """Makes this call when everything that was added before is written."""
        self._then.append(call)
        if not self._tables:
            self.write()

    def write_if_due(self) -> None:
        """Writes, if WRITE_SECONDS have passed since the last write. Raises StoreError."""
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Writes what was added and is not written yet. Raises StoreError."""
        for run in list(self._tables):
            self._store.add(run, TimingTable.joined(self._tables[run]))
            del self._tables[run]
            self._written = time.monotonic()
        calls, self._then = self._then, []
        for call in calls:
            call()
