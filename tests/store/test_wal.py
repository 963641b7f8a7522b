"""The write-ahead log does not stay on the disk, also while others have the store open."""

from __future__ import annotations

from diode_engine.store import Store
from diode_engine.store.backends import sqlite
from tests.training.conftest import make_timings


def test_a_large_log_goes_when_its_writer_does(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "LARGE_WAL", 50_000)
    path = tmp_path / "diode.db"
    log = tmp_path / "diode.db-wal"
    Store.open(path).close()
    with Store.open(path, read_only=True) as watched:  # as a dashboard has it
        assert watched.stats().timings == 0
        with Store.open(path) as store:
            store.import_table(make_timings(60), key="x", spec={})
            assert log.stat().st_size > 50_000
        assert log.stat().st_size == 0
        assert watched.stats().problems == 60


def test_a_reader_in_a_transaction_holds_nobody_up_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "LARGE_WAL", 50_000)
    monkeypatch.setattr(sqlite, "_WAL_SECONDS", 0.01)
    path = tmp_path / "diode.db"
    Store.open(path).close()
    with Store.open(path, read_only=True) as watched, watched.reads() as reading:
        reading.exec_driver_sql("SELECT count(*) FROM timings").fetchone()
        with Store.open(path) as store:
            store.import_table(make_timings(60), key="x", spec={})
        assert reading.exec_driver_sql("SELECT count(*) FROM timings").scalar() == 0
    with Store.open(path) as store:
        assert store.stats().problems == 60
