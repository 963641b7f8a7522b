"""A store in an SQLite file: whether it may be read or written, whether it is Diode's, and its
schema.

Writers begin with BEGIN IMMEDIATE. In WAL mode a transaction that reads first and writes later
fails at once when another one writes, whatever the busy timeout. Migrations run on a connection of
their own with foreign keys off: SQLite changes a table by copying it, and dropping the old one
would cascade.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, QueuePool

from diode_engine.atomic import scratch_beside
from diode_engine.errors import (
    DiodeError,
    RecordError,
    SchemaTooNewError,
    SchemaTooOldError,
    StoreError,
    StoreLockedError,
    StoreMissingError,
)
from diode_engine.location import Location
from diode_engine.store.schema import APPLICATION_ID, HEAD

if TYPE_CHECKING:  # Alembic is needed, and imported, only to migrate
    from alembic.config import Config

LARGE_WAL = 8 * 2**20  # bytes of a write-ahead log that are not left behind
_WAL_SECONDS = 1.0  # at most, for those who read meanwhile
BUSY_SECONDS = 30.0
_T = TypeVar("_T")
_UNFORESEEN = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextmanager
def sentences(path: Path) -> Iterator[None]:
    """Turns what SQLite and SQLAlchemy raise into a StoreError that names the file."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        text = str(cause)
        kind = StoreError
        if "not a database" in text or "malformed" in text:
            sentence = (
                f"{path} is not a Diode store, or it is damaged ({text}); give another path, or "
                "put a backup in its place."
            )
        elif "locked" in text or "busy" in text:
            kind = StoreLockedError
            sentence = (
                f"The store {path} stayed locked by another process for {BUSY_SECONDS:.0f} s; "
                "try again when that process is done."
            )
        elif "unable to open" in text:
            sentence = (
                f"The store {path} cannot be opened: it, its folder, or what SQLite keeps there "
                f"({path.name}-wal, {path.name}-shm), may not be read here; get the rights to, or "
                "copy these files into a folder of your own."
            )
        elif "readonly" in text and _journal(path).exists():
            sentence = (
                f"The store {path} was left half written by a process that ended too soon; whoever "
                "may write to it has to open it once, which undoes that (`diode-engine db check`)."
            )
        elif "readonly" in text:
            sentence = (
                f"The store {path} may not be written to from here; get the rights to, or give the "
                "path of another store."
            )
        else:
            sentence = f"The store {path} could not be read or written: {text}."
        raise kind(sentence) from error
    except UnicodeDecodeError as error:  # SQLite's own message may quote what is damaged
        raise StoreError(
            f"{path} is not a Diode store, or it is damaged (a text in it is not valid UTF-8); "
            "give another path, or put a backup in its place."
        ) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise StoreError(f"A value does not fit in the store {path}: {error}.") from error


@contextmanager
def doubts(store: Location) -> Iterator[None]:
    """Turns what Python raises for rows that Diode does not write (a missing record, a text that is
    not JSON, an impossible value) into a StoreError that names the store."""
    try:
        yield
    except RecordError as error:
        raise _doubt(store, str(error)) from error
    except (DiodeError, OverflowError, UnicodeEncodeError):  # for `sentences`
        raise
    except _UNFORESEEN as error:
        raise _doubt(store, f"{type(error).__name__}: {error}.") from error


def _doubt(store: Location, found: str) -> StoreError:
    return StoreError(
        f"The store {store} seems to hold what Diode does not write: `diode-engine db check` looks "
        f"for damage. {found}"
    )


def open_engine(path: Path, *, read_only: bool) -> sa.Engine:
    """The engine on a store of the newest schema; creates or migrates it unless `read_only`.

    Raises StoreMissingError where there is no file and SchemaTooOldError where it is of an older
    schema (both: read-only), SchemaTooNewError where a newer Diode wrote it, StoreLockedError
    where it stays locked, and StoreError where it is foreign or damaged.
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
        if revision != HEAD:
            refuse_newer(path, revision)
            if read_only:
                raise SchemaTooOldError(
                    f"The store {path} is of an older schema ({revision or 'none'}; this Diode "
                    f"reads {HEAD}); open it once for writing, which migrates it."
                )
            _migrate(path)
        return _engine(path, read_only=read_only)


class Connection(sqlite3.Connection):
    """`frozen` is the file's state when this connection began to read it as a file that nobody
    writes; None where SQLite itself coordinates with writers."""

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
            # Perhaps a killed process left it; only one that may write can undo what it began.
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
            connection.execute("PRAGMA schema_version").fetchone()  # from now on the WAL stays
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
        isolation_level=None,  # the driver begins nothing by itself; _begin does
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
    """What differs after a write; None where the file cannot be seen."""
    try:
        found = os.stat(path)  # noqa: PTH116  # follows links, as SQLite does
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_outdated(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether a connection to the store at `path` must be replaced to see what is there now."""
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
    """A connection that reads the store, closed at the end; every error becomes a StoreError."""
    with (
        sentences(path),
        closing(connect(path, read_only=True)) as connection,
        unchanged(connection, path),
    ):
        yield connection


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

    _begin(engine)
    return engine


def _begin(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("reads", False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def revision_of(connection: sqlite3.Connection, path: Path) -> str | None:
    """The schema's revision, None for an empty file. Raises StoreError for a foreign one."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not tables:
        return None
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID or "alembic_version" not in tables:
        raise StoreError(f"{path} is an SQLite file of another program; give another path.")
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if row is None:
        raise StoreError(f"The store {path} has lost its schema's version; restore a backup.")
    return str(row[0])


def revision_at(path: Path) -> str | None:
    """As `revision_of`, of the store at a path. Raises StoreMissingError where there is none."""
    if not path.is_file():
        raise StoreMissingError(f"There is no store at {path}; import or collect timings first.")
    with reading(path) as connection:
        return revision_of(connection, path)


def migrations_folder() -> Path:
    """Alembic's folder: inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise StoreError("The migrations are missing from this installation; install Diode again.")


def _migrate(path: Path) -> None:
    """Brings the file to HEAD in one transaction, after a backup if it holds a schema."""
    from alembic import command

    config = alembic_config()
    with closing(connect(path, read_only=False)) as connection:
        _until_unlocked(lambda: connection.execute("PRAGMA journal_mode = WAL"))

    engine = sa.create_engine(
        "sqlite://", creator=lambda: connect(path, read_only=False), poolclass=NullPool
    )
    _begin(engine)
    backup: Path | None = None
    try:
        with engine.begin() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            revision = revision_of(driver, path)  # another process may have been first
            if revision == HEAD:
                return
            refuse_newer(path, revision)
            if revision is not None:
                backup = _back_up(path, revision)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            if broken := driver.execute("PRAGMA foreign_key_check").fetchall():
                raise StoreError(
                    f"Migrating the store {path} would break {len(broken)} references, so it was "
                    "left as it was; please report this."
                )
            driver.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    except BaseException:
        if backup is not None:
            backup.unlink()
        raise
    finally:
        engine.dispose()


def alembic_config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def refuse_newer(store: Location, revision: str | None) -> None:
    """Raises SchemaTooNewError where this Diode does not know the store's schema."""
    if revision in (None, HEAD):
        return
    from alembic.script import ScriptDirectory

    known = {
        script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()
    }
    if revision not in known:
        raise SchemaTooNewError(
            f"The store {store} was written by a newer Diode (its schema is {revision}, this one "
            f"knows up to {HEAD}); update Diode, or give another path."
        )


def _until_unlocked(work: Callable[[], _T]) -> _T:
    """Tries again until BUSY_SECONDS are over: changing the journal mode ignores the busy
    timeout."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _back_up(path: Path, revision: str) -> Path:
    """A copy beside the store, made by SQLite's backup API. It replaces no file."""
    count = 0
    try:
        with scratch_beside(path) as folder:
            copy_store(path, folder / "copy.db", wanted=path.with_name(f"{path.name}.bak"))
            while True:
                count += 1
                number = f"-{count}" if count > 1 else ""
                target = path.with_name(f"{path.name}.schema-{revision}{number}.bak")
                with suppress(FileExistsError):
                    move_without_replacing(folder / "copy.db", target)
                    return target
    except OSError as error:
        raise StoreError(
            f"The store {path} is not migrated, since no backup of it can be written: "
            f"{error.strerror or error}."
        ) from error


def move_without_replacing(source: Path, target: Path) -> None:
    """Moves the file. Raises FileExistsError where the target exists, as a link too."""
    try:
        target.hardlink_to(source)  # at once; who made the source removes its name
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        target.touch(exist_ok=False)
        source.replace(target)


def copy_store(path: Path, target: Path, *, wanted: Path) -> None:
    """Copies the store with SQLite's backup API, as it is between two transactions, to a file that
    does not exist yet. `wanted` names the copy in errors. Raises StoreError."""
    with reading(path) as source:
        try:
            with closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
        except sqlite3.OperationalError as error:
            raise StoreError(f"{wanted} cannot be written: {error}.") from error


class File:
    """The store at a path, as `Session` and maintenance use it."""

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
        """Every transaction that writes has the turn: see `_begin`."""

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
            return  # the next who closes it tries again

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
