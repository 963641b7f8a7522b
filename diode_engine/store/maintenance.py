"""Looking after a store's file: its schema, a copy of it, and making it small."""

from __future__ import annotations

from contextlib import closing
from os import PathLike
from pathlib import Path

from diode_engine.atomic import scratch_beside
from diode_engine.errors import StoreError
from diode_engine.store.database import (
    connect,
    copy_store,
    open_engine,
    revision_at,
    sentences,
)
from diode_engine.store.schema import HEAD


def upgrade(path: Path) -> tuple[str | None, str]:
    """Migrates the store to this Diode's schema, as opening it for writing does; its schema
    before and now. The store as it was stays beside it (`.bak`).

    Raises StoreMissingError where there is none, and StoreError as `Store.open`.
    """
    before = revision_at(path)
    open_engine(path, read_only=False).dispose()
    return before, HEAD


def back_up(path: Path, target: str | PathLike[str], *, replace: bool = False) -> int:
    """Copies the store as it is now, also while others write it, into one file that is complete
    or not there (SQLite's backup); its size in bytes.

    Raises StoreMissingError where there is no store, and StoreError where the target is there
    already (unless `replace`) or cannot be written.
    """
    revision_at(path)
    where = Path(target)
    if where.exists() and (not replace or where.samefile(path)):
        raise StoreError(f"{where} is there already; name a new file.")
    try:
        with scratch_beside(where) as folder:
            copy_store(path, folder / "copy.db", wanted=where)
            (folder / "copy.db").replace(where)
            return where.stat().st_size
    except OSError as error:
        raise StoreError(f"{where} cannot be written: {error.strerror or error}.") from error


def vacuum(path: Path) -> tuple[int, int]:
    """Gives back the space of what was deleted; the file's size in bytes before and after.

    Raises StoreMissingError where there is no store, and StoreLockedError where others use it.
    """
    revision_at(path)
    before = path.stat().st_size
    with sentences(path), closing(connect(path, read_only=False)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return before, path.stat().st_size
