"""The schema of a store in a file: which revision it has, and its migration to the newest one.

Migrations run on a connection of their own with foreign keys off: SQLite changes a table by copying
it, and dropping the old one would cascade.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from diode_engine.atomic import scratch_beside
from diode_engine.errors import StoreError, StoreMissingError
from diode_engine.store import schema
from diode_engine.store.file_connection import BUSY_SECONDS, begin_transactions, connect, reading
from diode_engine.store.file_copy import copy_store, move_without_replacing
from diode_engine.store.migrations import alembic_config, refuse_newer
from diode_engine.store.schema import APPLICATION_ID

_T = TypeVar("_T")


def revision_of(connection: sqlite3.Connection, path: Path) -> str | None:
    """The schema's revision; None for an empty file. Raises StoreError for the file of another
    program."""
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


def migrate(path: Path) -> None:
    """Migrates the file to the schema HEAD in one transaction. A file that has an older schema is
    backed up before."""
    from alembic import command

    config = alembic_config()
    with closing(connect(path, read_only=False)) as connection:
        _until_unlocked(lambda: connection.execute("PRAGMA journal_mode = WAL"))

    engine = sa.create_engine(
        "sqlite://", creator=lambda: connect(path, read_only=False), poolclass=NullPool
    )
    begin_transactions(engine)
    backup: Path | None = None
    try:
        with engine.begin() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            revision = revision_of(driver, path)  # another process may have been first
            if revision == schema.HEAD:
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


def _until_unlocked(work: Callable[[], _T]) -> _T:
    """The result of `work`. Where the store is locked, it is tried again until BUSY_SECONDS are
    over: changing the journal mode ignores SQLite's busy timeout."""
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
