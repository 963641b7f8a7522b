"""Connections to a store in an SQLite file, also where its folder may not be written to."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from diode_engine.errors import StoreLockedError
from diode_engine.store.backends.backend import BUSY_SECONDS


class Connection(sqlite3.Connection):
    """A connection to a store. `frozen` is the file's state (see `_state`) when this connection
    began to read it as a file that nobody writes to; None where SQLite itself coordinates readers
    and writers."""

    frozen: tuple[int, ...] | None = None


def connect(path: Path, *, read_only: bool) -> Connection:
    """The driver's own connection. It waits BUSY_SECONDS for a lock and begins no transaction.

    A WAL file is read through a file of shared memory beside it. Where that does not exist and the
    folder may not be written to, SQLite can read the store only as a file that does not change
    (`immutable`), without a lock and without noticing changes. Then `is_outdated` and `unchanged`
    notice them.
    """
    if not read_only:
        return _connect(path, "mode=rwc")
    if os.access(path.parent, os.W_OK):
        if journal(path).exists() and os.access(path, os.W_OK):
            # Perhaps a killed process left the journal; only a connection that may write can undo
            # what that process began.
            with closing(_connect(path, "mode=rw")) as connection:
                connection.execute("PRAGMA schema_version").fetchone()
        return _connect(path, "mode=ro")
    while True:
        frozen = None if _is_written(path) else _state(path)
        if frozen is not None:
            connection = _connect(path, "mode=ro&immutable=1")
            connection.frozen = frozen
            return connection
        connection = _connect(path, "mode=ro")
        try:
            # From this read on, the WAL file stays as long as the connection.
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.Error:
            connection.close()
            if _is_written(path) or _state(path) is None:
                raise
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _connect(path: Path, mode: str) -> Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # no implicit transactions: the engine begins them
        check_same_thread=False,
        factory=Connection,
    )


def journal(path: Path) -> Path:
    """The rollback journal, which exists while the journal mode is changed to WAL, as when the
    store is made or migrated."""
    return path.with_name(path.name + "-journal")


def _is_written(path: Path) -> bool:
    """Whether a process has the store open for writing, or was killed while it had."""
    return path.with_name(path.name + "-wal").exists() or journal(path).exists()


def _state(path: Path) -> tuple[int, ...] | None:
    """Facts of the file that a write changes; None where the file cannot be found."""
    try:
        found = os.stat(path)  # noqa: PTH116  # follows links, as SQLite does
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_outdated(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether a connection reads an old state of the store at `path`, so that it must be
    replaced."""
    frozen = connection.frozen if isinstance(connection, Connection) else None
    return frozen is not None and (_is_written(path) or frozen != _state(path))


@contextmanager
def unchanged(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Raises StoreLockedError, in place of the block's result, where the file was written to while
    the block read it without a lock: what was read may be half old and half new."""
    frozen = connection.frozen if isinstance(connection, Connection) else None
    try:
        yield
    except Exception as error:
        if frozen is not None and frozen != _state(path):
            raise _written(path) from error
        raise
    if frozen is not None and frozen != _state(path):
        raise _written(path)


def _written(path: Path) -> StoreLockedError:
    return StoreLockedError(
        f"The store {path} was written to while it was read, which may not be seen from here "
        "(its folder cannot be written to); try again."
    )
