"""Maintenance of a store: its schema, backups, and compacting."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from diode_engine.atomic import scratch_beside
from diode_engine.errors import StoreError
from diode_engine.location import Location
from diode_engine.store.backend import backend_of
from diode_engine.store.copying import copy_into
from diode_engine.store.file_copy import copy_store
from diode_engine.store.schema import HEAD


def upgrade(store: Location) -> tuple[str | None, str]:
    """Migrates the store to this Diode's schema, as opening it for writing does; returns the
    revisions of its schema before and after. Of a file, a copy with the old schema stays beside it
    (`.bak`). Raises StoreMissingError where there is none, and StoreError as `Store.open` does."""
    backend = backend_of(store)
    before = backend.revision()
    backend.open_engine(read_only=False).dispose()
    return before, HEAD


def back_up(store: Location, target: str | PathLike[str], *, replace: bool = False) -> int:
    """Copies the store as it is now into one file, also while others write to it. The file is
    complete or does not exist. A store in a file is copied by SQLite's backup, one on a server row
    by row. Returns the file's size in bytes. Raises StoreMissingError where there is no store, and
    StoreError where the target exists (unless `replace`) or cannot be written."""
    backend_of(store).revision()
    where = Path(target)
    itself = isinstance(store, Path) and where.exists() and where.samefile(store)
    if where.exists() and (not replace or itself):
        raise StoreError(f"{where} is there already; name a new file.")
    try:
        with scratch_beside(where) as folder:
            if isinstance(store, Path):
                copy_store(store, folder / "copy.db", wanted=where)
            else:
                copy_into(store, folder / "copy.db")
            (folder / "copy.db").replace(where)
            return where.stat().st_size
    except OSError as error:
        raise StoreError(f"{where} cannot be written: {error.strerror or error}.") from error


def vacuum(store: Location) -> tuple[int, int]:
    """Frees the space of what was deleted; returns the size in bytes before and after. Raises
    StoreMissingError where there is no store, and StoreLockedError where others use it."""
    return backend_of(store).vacuum()
