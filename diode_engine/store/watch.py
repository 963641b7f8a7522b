"""Whether a store has changed, asked so cheaply that it can be asked several times a second."""

from __future__ import annotations

import os
from pathlib import Path

from diode_engine.errors import StoreMissingError
from diode_engine.store.database import Connection, connect, is_outdated, sentences

_BUSY_MS = 100  # whoever watches asks again soon


class Watch:
    """Watches the store at a path, which need not be there yet, be ours, or be of this schema.

    Not to be used by two threads at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: Connection | None = None
        self._file: tuple[int, int] | None = None

    def version(self) -> tuple[int, int]:
        """(which file it is, how often another connection has changed it): equal as long as
        nothing was written (SQLite's data_version; where it cannot tell, when that was).

        Raises StoreMissingError where there is no file, StoreLockedError where another process
        keeps it locked, and StoreError where it cannot be read.
        """
        try:
            found = os.stat(self.path)  # noqa: PTH116  # follows links, as SQLite does
        except OSError as error:
            self.close()
            raise StoreMissingError(
                f"There is no store at {self.path}; import or collect timings first."
            ) from error
        file = (found.st_dev, found.st_ino)
        if file != self._file:
            self.close()
            self._file = file
        with sentences(self.path):
            if self._connection is None or is_outdated(self._connection, self.path):
                self.close()
                self._connection = connect(self.path, read_only=True)
                self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            (changes,) = self._connection.execute("PRAGMA data_version").fetchone()
            self._connection.execute("PRAGMA schema_version").fetchone()  # it can be read
        return found.st_ino, int(changes) if self._connection.frozen is None else found.st_mtime_ns

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
