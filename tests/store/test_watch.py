"""Whether a store has changed, as whoever watches it learns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from diode_engine.errors import StoreError, StoreLockedError, StoreMissingError
from diode_engine.location import location_of
from diode_engine.store import Store
from diode_engine.store.backends import backend_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "diode.db"
    Store.open(path).close()
    return path


def test_it_changes_when_another_writes_and_only_then(place: str | Path) -> None:
    Store.open(place).close()
    watcher = backend_of(location_of(place)).watch()
    with Store.open(place) as store:
        first = watcher.version()
        store.runs()
        assert watcher.version() == first
        run = store.start_run("train", {})
        second = watcher.version()
        assert second != first
        store.beat(run)
        assert watcher.version() != second
    watcher.close()


def test_a_store_that_goes_and_comes_back(path: Path) -> None:
    watcher = backend_of(path).watch()
    before = watcher.version()
    away = path.rename(path.with_name("away"))
    with pytest.raises(StoreMissingError, match="There is no store at"):
        watcher.version()
    Store.open(path).close()
    assert watcher.version() != before
    away.replace(path)
    assert watcher.version()[0] == before[0]
    watcher.close()


def test_a_locked_store_is_told_at_once(path: Path) -> None:
    watcher = backend_of(path).watch()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLockedError):
            watcher.version()
    watcher.version()
    watcher.close()


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("This is not a database, and it is long enough to be seen as none." * 20)
    with pytest.raises(StoreError, match="not a Diode store"):
        backend_of(path).watch().version()
