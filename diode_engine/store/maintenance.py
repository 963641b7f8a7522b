"""Looking after a store's file: a copy of it, whether it is sound, and making it small."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from diode_engine.atomic import scratch_beside
from diode_engine.errors import StoreError, StoreMissingError
from diode_engine.store.database import (
    connect,
    copy_store,
    open_engine,
    revision_of,
    sentences,
)
from diode_engine.store.schema import HEAD


@dataclass(frozen=True)
class Soundness:
    """Of a store's file: its schema and the one of this Diode, and what is wrong, in
    sentences."""

    revision: str | None
    newest: str
    problems: tuple[str, ...]


def upgrade(path: Path) -> tuple[str | None, str]:
    """Migrates the store to this Diode's schema, as opening it for writing does; its schema
    before and now. The store as it was stays beside it (`.bak`).

    Raises StoreMissingError where there is none, and StoreError as `Store.open`.
    """
    before = _revision(path)
    open_engine(path, read_only=False).dispose()
    return before, HEAD


def back_up(path: Path, target: str | PathLike[str], *, replace: bool = False) -> int:
    """Copies the store as it is now, also while others write it, into one file that is complete
    or not there (SQLite's backup); its size in bytes.

    Raises StoreMissingError where there is no store, and StoreError where the target is there
    already (unless `replace`) or cannot be written.
    """
    _revision(path)
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


def check(path: Path) -> Soundness:
    """Reads the whole file: its pages and indexes, and whether what rows refer to is there.

    Raises StoreMissingError where there is no store, and StoreError where it is not one.
    """
    revision = _revision(path)
    problems = []
    with sentences(path), closing(connect(path, read_only=True)) as connection:
        for (said,) in connection.execute("PRAGMA integrity_check(20)"):
            if said != "ok":
                problems.append(f"SQLite says: {said}.")
        dangling: dict[tuple[str, str], int] = {}
        for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            dangling[table, parent] = dangling.get((table, parent), 0) + 1
    problems += [
        f"{n} rows of {table} refer to {parent} that are not there."
        for (table, parent), n in dangling.items()
    ]
    return Soundness(revision, HEAD, tuple(problems))


def vacuum(path: Path) -> tuple[int, int]:
    """Gives back the space of what was deleted; the file's size in bytes before and after.

    Raises StoreMissingError where there is no store, and StoreLockedError where others use it.
    """
    _revision(path)
    before = path.stat().st_size
    with sentences(path), closing(connect(path, read_only=False)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return before, path.stat().st_size


def _revision(path: Path) -> str | None:
    if not path.is_file():
        raise StoreMissingError(f"There is no store at {path}; import or collect timings first.")
    with sentences(path), closing(connect(path, read_only=True)) as connection:
        return revision_of(connection, path)
