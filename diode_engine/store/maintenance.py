"""Maintenance of a store: its schema, backups, compacting, and copies from a file to a server or
back, which are compared row by row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from diode_engine.atomic import scratch_beside
from diode_engine.errors import StoreError, explain_os_error
from diode_engine.location import Location
from diode_engine.store import bulk, schema
from diode_engine.store.backends import backend_of
from diode_engine.store.backends.sqlite import SqliteBackend
from diode_engine.store.backends.sqlite_copy import check_place, put_in_place
from diode_engine.store.schema import HEAD
from diode_engine.store.session import OpenStore
from diode_engine.store.soundness import require_sound

_AT_ONCE = 5000  # rows of a table other than the timings
_COUNTED = ("problems", "candidates", "environments", "runs", "timings")


def copy(source: Location, target: Location) -> dict[str, int]:
    """Copies all rows with their ids, as they are at one moment, and then compares each with the
    target's. It copies the whole store or nothing. A target file must not exist yet; a server's
    database must hold no store or an empty one. Returns how many problems, candidates,
    environments, runs and timings both hold.

    Raises StoreMissingError where there is no source, SchemaTooOldError where it has to be upgraded
    first, and StoreError where the source is damaged, the target is not as required, or differs
    after the copy.
    """
    if not isinstance(target, Path):
        require_sound(source, "nothing was copied")
        return copy_into(source, target, wanted=target)
    with explain_os_error(StoreError, f"{target} cannot be written"):
        check_place(target, source=source if isinstance(source, Path) else None, replace=False)
        require_sound(source, "nothing was copied")
        with scratch_beside(target) as folder:
            copied = copy_into(source, folder / "copy.db", wanted=target)
            put_in_place(folder / "copy.db", target, replace=False)
            return copied


def copy_into(source: Location, target: Location, *, wanted: Location) -> dict[str, int]:
    """As `copy`, into a new or empty store, in one transaction. `wanted` names the target in
    errors: the file may be moved there later."""
    try:
        return _copy_into(source, target)
    except StoreError as error:
        raise type(error)(str(error).replace(str(target), str(wanted))) from error


def _copy_into(source: Location, target: Location) -> dict[str, int]:
    with (
        OpenStore.open(source, read_only=True) as reader,
        OpenStore.open(target) as writer,
        reader.reads() as old,
        writer.writes(in_turn=True) as new,
    ):
        for table in (schema.runs, schema.problems):
            if new.execute(sa.select(table.c.id).limit(1)).first() is not None:
                raise StoreError(
                    f"The store {target} is not empty; give another one, or add the timings of "
                    f"{source} to it with `data export` and `data import`."
                )
        new.execute(sa.delete(schema.failures))
        counts = {}
        for table in schema.metadata.sorted_tables:
            copied = _timings(old, new) if table is schema.timings else _rows(old, new, table)
            if copied is None:
                raise StoreError(
                    f"The copy of {table.name} in {target} differs from the store {source}, so "
                    "nothing was copied; please report this."
                )
            counts[table.name] = copied
        if bulk.is_postgresql(new):
            _number_on(new)
    return {name: counts[name] for name in _COUNTED}


def _rows(old: sa.Connection, new: sa.Connection, table: sa.Table) -> int | None:
    """Copies a table's rows, and returns how many they are; None where the target's rows differ
    from them after that."""
    count, digests = 0, [hashlib.sha256(), hashlib.sha256()]
    for some in _partitions(old, table):
        new.execute(sa.insert(table), [dict(row._mapping) for row in some])
        count += len(some)
        digests[0].update(repr([tuple(row) for row in some]).encode())
    for some in _partitions(new, table):
        digests[1].update(repr([tuple(row) for row in some]).encode())
    return count if digests[0].digest() == digests[1].digest() else None


def _partitions(connection: sa.Connection, table: sa.Table) -> Iterator[Any]:
    query = sa.select(table).order_by(*table.primary_key)
    return connection.execute(query.execution_options(yield_per=_AT_ONCE)).partitions()


def _timings(old: sa.Connection, new: sa.Connection) -> int | None:
    """As `_rows`, for the timings."""
    t = schema.timings
    columns = [sa.func.coalesce(c, 0) if c.name == "failure" else c for c in t.columns]
    query = sa.select(*columns).order_by(*t.primary_key)
    count, digests = 0, [hashlib.sha256(), hashlib.sha256()]
    for some in bulk.pieces(old, query, bulk.TIMING_ROW):
        digests[0].update(some.tobytes())
        bulk.insert_timings(new, some)
        count += len(some)
    if bulk.is_postgresql(new):
        new.exec_driver_sql("ANALYZE")  # so that the next queries are planned well
    for some in bulk.pieces(new, query, bulk.TIMING_ROW):
        digests[1].update(some.tobytes())
    return count if digests[0].digest() == digests[1].digest() else None


def _number_on(new: sa.Connection) -> None:
    """Makes PostgreSQL's sequences continue after the ids that were copied."""
    for table in schema.metadata.sorted_tables:
        if "id" in table.c:
            new.exec_driver_sql(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id))"
                f" FROM {table.name}"
            )


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
