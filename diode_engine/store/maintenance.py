"""Maintenance of a store: its schema, backups, and compacting."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from diode_engine.atomic import scratch_beside
from diode_engine.errors import StoreError, explain_os_error
from diode_engine.location import Location
from diode_engine.store.backends import backend_of
from diode_engine.store.backends.sqlite import SqliteBackend
from diode_engine.store.backends.sqlite_copy import check_place, put_in_place
from diode_engine.store.copying import copy_into
from diode_engine.store.schema import HEAD
from diode_engine.store.soundness import require_sound


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
    StoreError where the store is damaged, and where the target exists (unless `replace`), is no
    store, is in use or cannot be written."""
    where = Path(target)
    source = store if isinstance(store, Path) else None
    backend_of(store).revision()
    with explain_os_error(StoreError, f"{where} cannot be written"):
        if where.is_file() and not replace:
            raise StoreError(f"{where} is there already; name a new file, or pass --replace.")
        check_place(where, source=source, replace=replace)
        require_sound(store, "no backup is made of it")
        with scratch_beside(where) as folder:
            copy = folder / "copy.db"
            if source is not None:
                SqliteBackend(source).copy_to(copy, wanted=where)
            else:
                copy_into(store, copy, wanted=where)
            put_in_place(copy, where, replace=replace)
            return where.stat().st_size


def vacuum(store: Location) -> tuple[int, int]:
    """Frees the space of what was deleted; returns the size in bytes before and after. Raises
    StoreMissingError where there is no store, StoreLockedError where others use it, and StoreError
    where it is damaged."""
    require_sound(store, "it is left as it is")
    return backend_of(store).vacuum()
