"""Copies of a store in a file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from diode_engine.errors import StoreError
from diode_engine.store.file_connection import reading


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


def copy_store(path: Path, target: Path, *, wanted: Path) -> None:
    """Copies the store with SQLite's backup API, as it is between two transactions, to a file that
    does not exist yet. `wanted` names the copy in errors. Raises StoreError."""
    with reading(path) as source:
        try:
            with closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
        except sqlite3.OperationalError as error:
            raise StoreError(f"{wanted} cannot be written: {error}.") from error
