"""A store in an SQLite file.

Transactions that write begin with BEGIN IMMEDIATE: in WAL mode, a transaction that reads first and
then writes would fail at once when another one has written in between, without waiting for the busy
timeout.

Migrations run on a connection of their own with foreign keys off: SQLite changes a table by copying
it, and dropping the old one would cascade.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, Pool, QueuePool

from diode_engine import paths
from diode_engine.atomic import scratch_beside
from diode_engine.errors import StoreError, StoreLockedError, StoreMissingError, explain_os_error
from diode_engine.store.backends.backend import (
    BUSY_SECONDS,
    Backend,
    Row,
    dangle,
    no_answer,
    no_answer_in,
)
from diode_engine.store.backends.sqlite_connection import (
    Connection,
    connect,
    is_outdated,
    journal,
    unchanged,
)
from diode_engine.store.backends.sqlite_copy import move_without_replacing
from diode_engine.store.schema import APPLICATION_ID

LARGE_WAL = 8 * 2**20  # a write-ahead log of more bytes is truncated at the end of a session
_WAL_SECONDS = 1.0  # how long that waits for those who read at the time
_LOOK_SECONDS = 0.003  # between two looks whether others have ended their transactions
_WATCH_BUSY_MS = 100  # a short wait for locks, since who watches asks again soon
# What a statement of a person may do. Without ATTACH, no other file can be read or made.
_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_LARGEST_VALUE = 2**24  # bytes, of a value that a statement makes
_STEPS = 10_000  # of SQLite's machine, between two looks at the clock


# What SQLite says about a statement, in other words.
_ANSWERS = {
    "not authorized": "it may only read the tables of the store",
    "You can only execute one statement at a time.": "there may be one statement only",
}


class SqliteBackend(Backend):
    """The store in the file at a path."""

    driver_errors = sqlite3.Error
    reader_options: ClassVar = {"reads": True}
    enforces_references = True

    location: Path

    def __init__(self, location: Path) -> None:
        self.location = location

    def engine(self, *, read_only: bool) -> sa.Engine:
        engine = self._new_engine(QueuePool, read_only=read_only)

        @sa.event.listens_for(engine, "connect")
        def set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = NORMAL")
            if read_only:
                connection.execute("PRAGMA query_only = ON")

        @sa.event.listens_for(engine, "checkout")
        def replace_outdated(connection: sqlite3.Connection, *_: object) -> None:
            if is_outdated(connection, self.location):
                raise sa.exc.DisconnectionError  # the pool opens another one

        return engine

    def _new_engine(self, pool: type[Pool], *, read_only: bool) -> sa.Engine:
        engine = sa.create_engine(
            "sqlite://", creator=lambda: connect(self.location, read_only=read_only), poolclass=pool
        )

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            if connection.get_execution_options().get("reads", False):
                connection.exec_driver_sql("BEGIN")
            else:
                _begin_to_write(connection)

        return engine

    def migration_engine(self) -> sa.Engine:
        with closing(connect(self.location, read_only=False)) as connection:
            _execute_when_free(connection, "PRAGMA journal_mode = WAL", BUSY_SECONDS)
        return self._new_engine(NullPool, read_only=False)

    @contextmanager
    def migrating(self, driver: sqlite3.Connection, revision: str | None) -> Iterator[None]:
        """Back a file with an older schema up, and check the references afterwards."""
        backup = None if revision is None else self._back_up(revision)
        try:
            yield
            if broken := driver.execute("PRAGMA foreign_key_check").fetchall():
                raise StoreError(
                    f"Migrating the store {self.location} would break {len(broken)} references, so "
                    "it was left as it was; please report this."
                )
            driver.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        except BaseException:
            if backup is not None:
                backup.unlink()
            raise

    def _back_up(self, revision: str) -> Path:
        """Copy the store to a file beside it, which replaces no other, and return its path."""
        path, count = self.location, 0
        why = f"The store {path} is not migrated, since no backup of it can be written"
        with explain_os_error(StoreError, why), scratch_beside(path) as folder:
            self.copy_to(folder / "copy.db", wanted=path.with_name(f"{path.name}.bak"))
            while True:
                count += 1
                number = f"-{count}" if count > 1 else ""
                target = path.with_name(f"{path.name}.schema-{revision}{number}.bak")
                with suppress(FileExistsError):
                    move_without_replacing(folder / "copy.db", target)
                    return target

    def prepare(self) -> str | None:
        with explain_os_error(StoreError, f"The folder of {self.location} cannot be made"):
            self.location.parent.mkdir(parents=True, exist_ok=True)
        with closing(connect(self.location, read_only=False)) as connection:
            return self.revision_of(connection)

    def revision(self) -> str | None:
        if not self.location.is_file():
            raise StoreMissingError(
                f"There is no store at {self.location}; import or collect timings first."
            )
        with self._reading() as connection:
            return self.revision_of(connection)

    def revision_of(self, driver: sqlite3.Connection) -> str | None:
        tables = {name for (name,) in driver.execute("SELECT name FROM sqlite_master")}
        if not tables:
            return None
        (application,) = driver.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID or "alembic_version" not in tables:
            raise StoreError(
                f"{self.location} is an SQLite file of another program; give another path."
            )
        return self.read_revision(driver)

    def is_writable(self) -> bool:
        return os.access(self.location, os.W_OK)

    def unchanged(self, connection: sa.Connection) -> AbstractContextManager[None]:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return unchanged(driver, self.location)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that reads the store; it is closed at the end."""
        with (
            self.explain_errors(),
            closing(connect(self.location, read_only=True)) as connection,
            unchanged(connection, self.location),
        ):
            yield connection

    def answer(
        self, statement: str, *, rows: int, seconds: float, shorten: Callable[[Any], Row]
    ) -> tuple[list[str], list[Row]]:
        self.revision()
        end = time.monotonic() + seconds
        with self._reading() as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
            connection.set_authorizer(_allow_reading)
            connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            try:
                cursor = connection.execute(statement)
                if cursor.description is None:
                    raise no_answer("it is empty")
                found = [shorten(row) for row in islice(cursor, rows)]
                return [column[0] for column in cursor.description], found
            except (sqlite3.Error, sqlite3.Warning) as error:
                if time.monotonic() > end:
                    raise no_answer_in(seconds) from error
                raise no_answer(_ANSWERS.get(str(error), error)) from error

    def clean_up(self) -> None:
        """Truncate the write-ahead log. SQLite removes it with the last connection, but keeps it
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

    def find_damage(self) -> list[str]:
        with self._reading() as connection:
            found = [
                f"SQLite says: {said}."
                for (said,) in connection.execute("PRAGMA integrity_check(20)")
                if said != "ok"
            ]
            dangling = Counter(
                (table, parent)
                for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check")
            )
        return found + [dangle(n, table, parent) for (table, parent), n in dangling.items()]

    def copy_to(self, target: Path, *, wanted: Path) -> None:
        """Copy the store with SQLite's backup API, as it is between two transactions, to a file
        that does not exist yet. `wanted` names the copy in errors. Raises StoreError."""
        with self._reading() as source:
            try:
                with closing(sqlite3.connect(target)) as copy:
                    source.backup(copy)
            except sqlite3.OperationalError as error:
                raise StoreError(f"{wanted} cannot be written: {error}.") from error

    def size_bytes(self, connection: sa.Connection) -> int:
        return self.location.stat().st_size

    def vacuum(self) -> tuple[int, int]:
        before = self.location.stat().st_size
        with self.explain_errors(), closing(connect(self.location, read_only=False)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return before, self.location.stat().st_size

    def watch(self) -> FileWatch:
        return FileWatch(self)

    def claims(self) -> FileClaims:
        return FileClaims(paths.beside(self.location, "-claims"))

    def explain(self, error: BaseException | None) -> StoreError:
        path, text = self.location, str(error)
        if isinstance(error, UnicodeDecodeError):  # SQLite's own message may quote what is damaged
            text = "a text in it is not valid UTF-8"
        if "not a database" in text or "malformed" in text or "not valid UTF-8" in text:
            return StoreError(
                f"{path} is not a Diode store, or it is damaged ({text}); give another path, put a "
                f"backup in its place (`diode-engine db backup --store BACKUP {path} --replace`), "
                f"or export what can be read (`diode-engine data export --damaged --store {path} "
                "FILE`)."
            )
        if "locked" in text or "busy" in text:
            return StoreLockedError(
                f"The store {path} stayed locked by another process for {BUSY_SECONDS:.0f} s; "
                "try again when that process is done."
            )
        if "unable to open" in text:
            return StoreError(f"The store {path} cannot be opened: {self._why_not_opened()}.")
        if "readonly" in text and journal(path).exists():
            return StoreError(
                f"The store {path} was left half written by a process that ended too soon; whoever "
                "may write to it has to open it once, which undoes that (`diode-engine db check`)."
            )
        if "readonly" in text:
            return StoreError(
                f"The store {path} may not be written to from here; get the right to do so, "
                "or give the path of another store."
            )
        what_to_do = ""
        if "disk" in text:  # "disk I/O error", "database or disk is full"
            what_to_do = " Its disk may be full: free some space there, and try again."
        return StoreError(f"The store {path} could not be read or written: {text}.{what_to_do}")

    def _why_not_opened(self) -> str:
        path = self.location
        beside = f"what SQLite keeps there ({path.name}-wal, {path.name}-shm)"
        if not path.exists():
            return (
                f"there is none, and none can be made in {path.absolute().parent}; give another "
                "path"
            )
        if os.access(path, os.R_OK) and not os.access(path.parent, os.W_OK):
            return (
                f"its folder, or {beside}, may not be written to here; get the right to do so, or "
                "copy it (`diode-engine db backup FILE`)"
            )
        return (
            f"it, its folder, or {beside}, may not be read here; get the right to read them, or "
            "copy these files into a folder of your own"
        )


def _begin_to_write(connection: sa.Connection) -> None:
    """Begin a transaction that writes, as soon as no other process has one."""
    driver: Any = connection.connection.driver_connection
    (wait_ms,) = driver.execute("PRAGMA busy_timeout").fetchone()
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        _execute_when_free(driver, "BEGIN IMMEDIATE", wait_ms / 1000)
    finally:
        driver.execute(f"PRAGMA busy_timeout = {wait_ms}")


def _execute_when_free(driver: sqlite3.Connection, statement: str, seconds: float) -> None:
    """Execute a statement as soon as no other process has the store locked, or raise SQLite's error
    after this time. SQLite itself looks every 0.1 s after a while, and would miss the pauses
    between the transactions of an import; for a change of the journal mode it does not wait."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            driver.execute(statement)
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(_LOOK_SECONDS)


class FileWatch:
    """Watches the store in a file: by SQLite's data_version; where the file is read without a lock,
    by the time when it was last written."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self._connection: Connection | None = None
        self._file: tuple[int, int] | None = None

    def version(self) -> tuple[int, int]:
        path = self._backend.location
        try:
            found = os.stat(path)  # noqa: PTH116  # follows links, as SQLite does
        except OSError as error:
            self.close()
            raise StoreMissingError(
                f"There is no store at {path}; import or collect timings first."
            ) from error
        file = (found.st_dev, found.st_ino)
        if file != self._file:
            self.close()
            self._file = file
        with self._backend.explain_errors():
            if self._connection is None or is_outdated(self._connection, path):
                self.close()
                self._connection = connect(path, read_only=True)
                self._connection.execute(f"PRAGMA busy_timeout = {_WATCH_BUSY_MS}")
            (changes,) = self._connection.execute("PRAGMA data_version").fetchone()
            # This raises where the file is not a database, or locked.
            self._connection.execute("PRAGMA schema_version").fetchone()
        return found.st_ino, int(changes) if self._connection.frozen is None else found.st_mtime_ns

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class FileClaims:
    """Locks on single bytes of a file, each at the number's offset, which other processes on this
    machine see. The locks belong to the process: its own threads do not exclude each other."""

    def __init__(self, path: Path) -> None:
        use = "by which processes with the same store divide their work"
        with explain_os_error(StoreError, f"{path}, {use}, cannot be written"):
            self._file = path.open("ab", buffering=0)

    def take(self, number: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except BlockingIOError:
            return False
        return True

    def give_back(self, number: int) -> None:
        if not self._file.closed:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def close(self) -> None:
        self._file.close()


def _allow_reading(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
