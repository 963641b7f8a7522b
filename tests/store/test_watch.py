"""Whether a store has changed, as whoever watches it learns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from diode_engine.errors import StoreError, StoreLockedError, StoreMissingError
from diode_engine.store import Store
from diode_engine.store.watch import Watch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "diode.db"
    Store.open(path).close()
    return path


def test_it_changes_when_another_writes_and_only_then(path: Path) -> None:
    watch = Watch(path)
    with Store.open(path) as store:
        first = watch.version()
        store.runs()
        assert watch.version() == first
        run = store.start_run("train", {})
        second = watch.version()
        assert second != first
        store.beat(run)
        assert watch.version() != second
    watch.close()


def test_a_store_that_goes_and_comes_back(path: Path) -> None:
    watch = Watch(path)
    before = watch.version()
    away = path.rename(path.with_name("away"))
    with pytest.raises(StoreMissingError, match="There is no store at"):
        watch.version()
    Store.open(path).close()
    assert watch.version() != before
    away.replace(path)
    assert watch.version()[0] == before[0]
    watch.close()


def test_a_locked_store_is_told_at_once(path: Path) -> None:
    watch = Watch(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLockedError):
            watch.version()
    watch.version()
    watch.close()


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("This is not a database, and it is long enough to be seen as none." * 20)
    with pytest.raises(StoreError, match="not a Diode store"):
        Watch(path).version()
