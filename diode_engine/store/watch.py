"""Finds out whether a store has changed, fast enough to be asked several times a second."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from diode_engine.errors import StoreMissingError
from diode_engine.location import Location
from diode_engine.store.file_connection import Connection, connect, is_outdated, sentences
from diode_engine.store.schema import CHANNEL

_BUSY_MS = 100  # a short wait for locks, since the caller asks again soon
# A number that tells a store from one that was made later in the same database.
_WHICH = "SELECT 'alembic_version'::regclass::oid::bigint"

if TYPE_CHECKING:
    from diode_engine.store.server import ServerBackend


class Watch(Protocol):
    """Watches a location, where there need not be a store of Diode's yet, or one with this schema.
    Not for two threads at a time."""

    def version(self) -> tuple[int, int]:
        """(which store it is, how often it has changed). The pair stays equal as long as nothing is
        written.

        Raises StoreMissingError where there is no store, StoreLockedError where another process
        keeps it locked, and StoreError where it cannot be read.
        """

    def close(self) -> None: ...


def watch(store: Location) -> Watch:
    """A watch of the store at this location. Raises StoreError where it is on a server, and the
    package for that is not installed."""
    if isinstance(store, Path):
        return FileWatch(store)
    from diode_engine.store.backend import backend_of

    backend: Any = backend_of(store)
    return ServerWatch(backend)


class FileWatch:
    """Watches the store at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: Connection | None = None
        self._file: tuple[int, int] | None = None

    def version(self) -> tuple[int, int]:
        """By SQLite's data_version; where the file is read without a lock, by the time when it was
        last written."""
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
            # This raises where the file is not a database, or locked.
            self._connection.execute("PRAGMA schema_version").fetchone()
        return found.st_ino, int(changes) if self._connection.frozen is None else found.st_mtime_ns

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ServerWatch:
    """Receives the notifications at the end of each write. A lost connection counts as a write."""

    def __init__(self, server: ServerBackend) -> None:
        self._server = server
        self._connection: Any = None
        self._store = 0
        self._changes = 0

    def version(self) -> tuple[int, int]:
        with self._server.sentences():
            try:
                if self._connection is None:
                    self._listen()
                # The server sends pending notifications with the answer to any statement.
                self._connection.execute("SELECT")
            except BaseException:
                self.close()
                raise
        return self._store, self._changes

    def _listen(self) -> None:
        self._connection = self._server.connect()
        self._connection.add_notify_handler(self._hear)
        self._connection.execute(f"LISTEN {CHANNEL}")
        self._server.revision()  # raises StoreMissingError where there is no store
        self._changes += 1
        (self._store,) = self._connection.execute(_WHICH).fetchone()

    def _hear(self, _: object) -> None:
        self._changes += 1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
