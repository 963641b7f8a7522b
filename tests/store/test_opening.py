"""What holds of a store in a file and of one on a server alike, when it is opened and watched."""

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from diode_engine.errors import StoreError, StoreMissingError
from diode_engine.location import location_of
from diode_engine.store import Store, schema
from diode_engine.store.backends import backend_of
from tests.store.conftest import as_rows, make_table


def test_reading_only_neither_writes_nor_makes(place, database, tmp_path):
    missing = tmp_path / "missing.db" if isinstance(place, Path) else database
    with pytest.raises(StoreMissingError, match=r"There is no store .*collect timings"):
        Store.open(missing, read_only=True)
    assert not (tmp_path / "missing.db").exists()
    with Store.open(place) as store:
        run = store.start_run("collect", {})
        store.add(run, make_table())
    with Store.open(place, read_only=True) as store:
        assert as_rows(store.read()) == as_rows(make_table())
        for write in (
            lambda: store.start_run("collect", {}),
            lambda: store.add(run, make_table()),
            lambda: store.update_run(run, progress={}),
        ):
            with pytest.raises(StoreError, match="reading only"):
                write()
        with (
            pytest.raises(StoreError, match="may not be written to from here"),
            store.reads() as connection,
        ):
            connection.execute(sa.delete(schema.timings))


def test_a_read_sees_one_moment_and_holds_nobody_up(place):
    count = sa.select(sa.func.count()).select_from(schema.timings)
    with Store.open(place) as writer, Store.open(place, read_only=True) as reader:
        run = writer.start_run("collect", {})
        with reader.reads() as connection:
            assert connection.scalar(count) == 0
            writer.add(run, make_table())
            assert connection.scalar(count) == 0
        assert len(reader.read()) == len(make_table())


_OPENS = """
import sys
from diode_engine.store import Store

print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    print(store.start_run("collect", {}), flush=True)
"""


@pytest.mark.parametrize("kind", ["file", "server"])
def test_several_processes_may_make_the_same_store_at_once(kind, database, tmp_path):
    where = str(tmp_path / "a.db") if kind == "file" else database
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _OPENS, where],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 4
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert sorted(child.communicate()[0] for child in children) == ["1\n", "2\n", "3\n", "4\n"]


def test_its_watch_changes_when_another_writes_and_only_then(place):
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
