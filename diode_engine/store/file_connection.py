"""Connections to a store in an SQLite file, also where its folder may not be written to.

Transactions that write begin with BEGIN IMMEDIATE: in WAL mode, a transaction that reads first and
then writes would fail at once when another one has written in between, without waiting for the busy
timeout.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from diode_engine.errors import StoreError, StoreLockedError

BUSY_SECONDS = 30.0


@contextmanager
def sentences(path: Path) -> Iterator[None]:
    """Turns errors of SQLite and SQLAlchemy into StoreErrors, whose sentences name the file."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        text = str(cause)
        kind = StoreError
        if "not a database" in text or "malformed" in text:
            sentence = (
                f"{path} is not a Diode store, or it is damaged ({text}); give another path, or "
                f"put a backup in its place (`diode-engine db backup --store BACKUP {path} "
                "--replace`)."
            )
        elif "locked" in text or "busy" in text:
            kind = StoreLockedError
            sentence = (
                f"The store {path} stayed locked by another process for {BUSY_SECONDS:.0f} s; "
                "try again when that process is done."
            )
        elif "unable to open" in text:
            sentence = f"The store {path} cannot be opened: {_why_not_opened(path)}."
        elif "readonly" in text and _journal(path).exists():
            sentence = (
                f"The store {path} was left half written by a process that ended too soon; whoever "
                "may write to it has to open it once, which undoes that (`diode-engine db check`)."
            )
        elif "readonly" in text:
            sentence = (
                f"The store {path} may not be written to from here; get the right to do so, "
                "or give the path of another store."
            )
        else:
            sentence = f"The store {path} could not be read or written: {text}."
        raise kind(sentence) from error
    except UnicodeDecodeError as error:  # SQLite's own message may quote what is damaged
        raise StoreError(
            f"{path} is not a Diode store, or it is damaged (a text in it is not valid UTF-8); "
            "give another path, or put a backup in its place (`diode-engine db backup --store "
            f"BACKUP {path} --replace`)."
        ) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise StoreError(f"A value does not fit in the store {path}: {error}.") from error


def _why_not_opened(path: Path) -> str:
    beside = f"what SQLite keeps there ({path.name}-wal, {path.name}-shm)"
    if not path.exists():
        return f"there is none, and none can be made in {path.absolute().parent}; give another path"
    if os.access(path, os.R_OK) and not os.access(path.parent, os.W_OK):
        return (
            f"its folder, or {beside}, may not be written to here; get the right to do so, or copy "
            "it (`diode-engine db backup FILE`)"
        )
    return (
        f"it, its folder, or {beside}, may not be read here; get the right to read them, or copy "
        "these files into a folder of your own"
    )


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
        if _journal(path).exists() and os.access(path, os.W_OK):
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
        isolation_level=None,  # no implicit transactions: see begin_transactions
        check_same_thread=False,
        factory=Connection,
    )


def _journal(path: Path) -> Path:
    """The rollback journal, which exists while the journal mode is changed to WAL, as when the
    store is made or migrated."""
    return path.with_name(path.name + "-journal")


def _is_written(path: Path) -> bool:
    """Whether a process has the store open for writing, or was killed while it had."""
    return path.with_name(path.name + "-wal").exists() or _journal(path).exists()


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


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads the store; it is closed at the end. Every error becomes a
    StoreError."""
    with (
        sentences(path),
        closing(connect(path, read_only=True)) as connection,
        unchanged(connection, path),
    ):
        yield connection


def begin_transactions(engine: sa.Engine) -> None:
    """Makes the engine begin its transactions itself: those with the option `reads` for reading,
    all others with BEGIN IMMEDIATE, which waits for the turn to write."""

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("reads", False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
