"""A store in an SQLite file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import QueuePool

from diode_engine.errors import SchemaTooOldError, StoreError
from diode_engine.store import schema
from diode_engine.store.file_connection import (
    begin_transactions,
    connect,
    is_outdated,
    sentences,
    unchanged,
)
from diode_engine.store.file_migration import migrate, revision_at, revision_of
from diode_engine.store.migrations import refuse_newer

LARGE_WAL = 8 * 2**20  # a write-ahead log of more bytes is truncated at the end of a session
_WAL_SECONDS = 1.0  # how long that waits for those who read at the time


class FileBackend:
    """The store at a path, as `OpenStore` and maintenance use it."""

    def __init__(self, location: Path) -> None:
        self.location = location

    def open_engine(self, *, read_only: bool) -> sa.Engine:
        return open_engine(self.location, read_only=read_only)

    def revision(self) -> str | None:
        return revision_at(self.location)

    def is_writable(self) -> bool:
        return os.access(self.location, os.W_OK)

    def sentences(self) -> AbstractContextManager[None]:
        return sentences(self.location)

    def unchanged(self, connection: sa.Connection) -> AbstractContextManager[None]:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return unchanged(driver, self.location)

    def reader_options(self) -> dict[str, Any]:
        return {"reads": True}

    def take_turn(self, connection: sa.Connection) -> None:
        """Every transaction that writes has the turn: see `begin_transactions`."""

    def tell(self, connection: sa.Connection) -> None:
        """Nothing to do: those who watch a file see when it changes."""

    def leave(self) -> None:
        """Truncates the write-ahead log. SQLite removes it with the last connection, but keeps it
        at its largest size while others, such as a dashboard, have the store open."""
        log = self.location.with_name(f"{self.location.name}-wal")
        try:
            if log.stat().st_size <= LARGE_WAL:
                return
            with closing(connect(self.location, read_only=False)) as connection:
                connection.execute(f"PRAGMA busy_timeout = {round(1000 * _WAL_SECONDS)}")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (OSError, sqlite3.Error):
            return  # the next process that closes the store tries again

    def size_bytes(self, connection: sa.Connection) -> int:
        return self.location.stat().st_size

    def vacuum(self) -> tuple[int, int]:
        path = self.location
        self.revision()
        before = path.stat().st_size
        with self.sentences(), closing(connect(path, read_only=False)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return before, path.stat().st_size


def open_engine(path: Path, *, read_only: bool) -> sa.Engine:
    """The engine on a store of the newest schema; creates or migrates it unless `read_only`.

    Raises StoreMissingError where there is no file and SchemaTooOldError where it is of an older
    schema (both: read-only), SchemaTooNewError where a newer Diode wrote it, StoreLockedError
    where it stays locked, and StoreError where it is not a store or is damaged.
    """
    with sentences(path):
        if not read_only:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"The folder of {path} cannot be made: {error}.") from error
        if read_only:
            revision = revision_at(path)
        else:
            with closing(connect(path, read_only=False)) as connection:
                revision = revision_of(connection, path)
        if revision != schema.HEAD:
            refuse_newer(path, revision)
            if read_only:
                raise SchemaTooOldError(
                    f"The store {path} is of an older schema ({revision or 'none'}; this Diode "
                    f"reads {schema.HEAD}); open it once for writing, which migrates it."
                )
            migrate(path)
        return _engine(path, read_only=read_only)


def _engine(path: Path, *, read_only: bool) -> sa.Engine:
    engine = sa.create_engine(
        "sqlite://", creator=lambda: connect(path, read_only=read_only), poolclass=QueuePool
    )

    @sa.event.listens_for(engine, "connect")
    def pragmas(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        if read_only:
            connection.execute("PRAGMA query_only = ON")

    @sa.event.listens_for(engine, "checkout")
    def checkout(connection: sqlite3.Connection, *_: object) -> None:
        if is_outdated(connection, path):
            raise sa.exc.DisconnectionError  # the pool opens another one

    begin_transactions(engine)
    return engine
