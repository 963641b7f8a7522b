"""Copies of a store in a file, and how a copy takes its place."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from diode_engine.atomic import FileKind, check_target
from diode_engine.errors import StoreError, StoreLockedError

_BESIDE = ("-wal", "-shm", "-journal")  # the ends of the names of SQLite's files beside a store


def move_without_replacing(source: Path, target: Path) -> None:
    """Moves the file. Raises FileExistsError where the target exists, even as a dangling link. The
    source may stay; the caller removes it."""
    try:
        target.hardlink_to(source)  # it fails if the target exists, in one step
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        target.touch(exist_ok=False)
        source.replace(target)


def check_place(target: Path, *, source: Path | None, replace: bool) -> None:
    """Checks that a store may be put at `target`, which is not `source`: there is nothing, or, with
    `replace`, a store that nobody uses. Raises StoreError where it may not, and OSError as
    `check_target` does."""
    check_target(target, FileKind.STORE, sources=() if source is None else (source,))
    if replace:
        with _alone(target):
            return
    if target.exists():
        raise StoreError(f"{target} is there already; name a new file.")
    if left := [path.name for path in _beside(target) if path.exists()]:
        raise StoreError(
            f"There is no {target}, but {' and '.join(left)} of an earlier store, which SQLite "
            "would write into the new one; remove what is left of it, or replace it with a backup "
            f"(`diode-engine db backup {target} --replace`)."
        )


def put_in_place(made: Path, target: Path, *, replace: bool) -> None:
    """Moves the store in the file `made`, which nobody has open, to `target`, where it appears
    whole. Where it replaces a store, what SQLite keeps beside that one goes too. Raises StoreError
    and OSError as `check_place` does."""
    check_place(target, source=made, replace=replace)
    if not replace:
        move_without_replacing(made, target)
        return
    with _alone(target):  # its log is empty now: until it is gone, it may lie beside the new store
        made.replace(target)
        for path in _beside(target):
            path.unlink(missing_ok=True)


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in _BESIDE]


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Keeps others from the store at `target`, if there is one, during the block, and moves what
    its log holds into it. Raises StoreLockedError where another process has it open."""
    if not target.exists():
        yield
        return
    with closing(sqlite3.connect(target, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")  # the lock stays
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StoreLockedError(
                    f"The store {target} is in use by another process, so it is not replaced; end "
                    "that process first."
                ) from None
        except sqlite3.DatabaseError:
            pass  # damaged, as a store is that a backup is to replace
        yield
