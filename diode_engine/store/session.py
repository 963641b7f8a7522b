"""An open store: its transactions, for reading and for writing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

import sqlalchemy as sa

from diode_engine.errors import StoreError
from diode_engine.store.database import connect, doubts, open_engine, sentences, unchanged

LARGE_WAL = 8 * 2**20  # bytes of a write-ahead log that are not left behind
_WAL_SECONDS = 1.0  # at most, for those who read meanwhile


class Session:
    """An SQLite file that is open; a context manager. Several processes may have it open."""

    def __init__(self, path: Path, engine: sa.Engine, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._engine = engine
        self._reader = engine.execution_options(reads=True)

    @classmethod
    def open(cls, path: str | PathLike[str], *, read_only: bool = False) -> Self:
        """Opens the store, making or migrating it first unless `read_only`.

        Raises StoreError where the file is missing (read-only), foreign or damaged, and
        SchemaTooNewError where a newer Diode wrote it.
        """
        where = Path(path)
        return cls(where, open_engine(where, read_only=read_only), read_only=read_only)

    def close(self) -> None:
        if not self.read_only:
            self._empty_wal()
        self._engine.dispose()

    def _empty_wal(self) -> None:
        """SQLite removes the log with the last connection, and leaves it as large as it ever was
        while others, such as a dashboard, have the store open."""
        log = self.path.with_name(f"{self.path.name}-wal")
        try:
            if log.stat().st_size <= LARGE_WAL:
                return
            with closing(connect(self.path, read_only=False)) as connection:
                connection.execute(f"PRAGMA busy_timeout = {round(1000 * _WAL_SECONDS)}")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (OSError, sqlite3.Error):
            return  # the next who closes it tries again

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def writes(self) -> Iterator[sa.Connection]:
        """A transaction that may write, committed at its end, undone by an exception."""
        if self.read_only:
            raise StoreError(f"The store {self.path} was opened for reading only.")
        with sentences(self.path), doubts(self.path), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reads(self) -> Iterator[sa.Connection]:
        """A transaction that sees the store as it is now, and holds nobody up. Raises
        StoreLockedError at its end where it read what its owner was writing (see `unchanged`)."""
        with sentences(self.path), self._reader.begin() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            with unchanged(driver, self.path), sentences(self.path), doubts(self.path):
                yield connection
