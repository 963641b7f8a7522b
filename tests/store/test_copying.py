"""A store that moves, from a file to a server and back: nothing is lost, and nothing is guessed."""

from __future__ import annotations

import math
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from diode_engine.core.table import TimingTable
from diode_engine.errors import StoreError
from diode_engine.location import Location, location_of
from diode_engine.runs.process import current_process
from diode_engine.store import Store, bulk, maintenance, schema, soundness
from tests.store.conftest import make_table


def fill(where: Location, make_table: Callable[..., TimingTable]) -> None:
    """A row of everything, with what is hard to carry: NaN, infinity, NULL, bytes, any text."""
    with Store.open(where) as store:
        first = store.start_run(
            "collect",
            {"by": "ann"},
            process=current_process(),
            command=["diode-engine"],
            directory="/",
        )
        kernel = np.tile(np.array([168, 0, 0, 65536, 2000], np.int32), (40, 1))
        store.add(first, replace(make_table(4, 10), kernel=kernel))
        store.add(first, make_table(2, 10))
        second = store.queue_run("train", {}, command=[], directory="", logs=Path("l"), resumes=1)
        store.tag(second.id, "paper", "Ä-1")
        store.set_note(second.id, "quotes ' \" % \\ and 速い\n")
        store.add_points(second.id, "loss", [(1, math.nan), (2, math.inf), (3, -0.0)])
        store.set_result(second.id, {"efficiency": 0.1 + 0.2})
        store.import_table(make_table(3, 7, first=50), key="k", spec={"file": "a.json"})


def everything(where: Location) -> dict[str, list[tuple[object, ...]]]:
    with Store.open(where, read_only=True) as store, store.reads() as connection:
        return {
            table.name: [
                tuple(row)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key))
            ]
            for table in schema.metadata.sorted_tables
        }


@pytest.mark.parametrize("first", ["file", "server"])
def test_a_store_goes_there_and_back_without_a_difference(first, database, tmp_path):
    file, server = tmp_path / "here.db", location_of(database)
    source, target = (file, server) if first == "file" else (server, file)
    fill(source, make_table)
    copied = maintenance.copy(source, target)
    assert copied == {
        "problems": 7, "candidates": 10, "environments": 1, "runs": 3, "timings": 81
    }  # fmt: skip
    there = everything(source)
    assert repr(everything(target)) == repr(there)
    assert soundness.check(target).problems == ()
    back = tmp_path / "back.db"
    maintenance.copy(target, back)
    assert repr(everything(back)) == repr(there)
    assert not list(tmp_path.glob(".unfinished-*"))
    with Store.open(target) as store:  # and it goes on behind what was copied
        run = store.start_run("collect", {})
        assert run == 4
        assert store.add(run, make_table(4, 12)) == 48


def test_a_damaged_store_is_not_copied(database, tmp_path):
    file = tmp_path / "here.db"
    fill(file, make_table)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE timings SET spread_us = 1 WHERE sweep = 2 AND candidate = 2")
    with pytest.raises(StoreError, match="is damaged, so nothing was copied: Problems"):
        maintenance.copy(file, location_of(database))
    with Store.open(database) as store:
        assert store.stats().timings == store.stats().problems == 0


@pytest.mark.parametrize("what", ["a time", "a row"])
def test_a_copy_that_differs_is_no_copy(what, database, tmp_path, monkeypatch):
    file = tmp_path / "here.db"
    fill(file, make_table)
    insert = bulk.insert_timings

    def wrong(connection: sa.Connection, rows: np.ndarray) -> None:
        if what == "a time":
            rows["min_us"][0] = np.nextafter(rows["min_us"][0], 0)
        insert(connection, rows if what == "a time" else rows[:-1])

    monkeypatch.setattr(bulk, "insert_timings", wrong)
    with pytest.raises(StoreError, match=r"The copy of timings .* differs"):
        maintenance.copy(file, location_of(database))
    assert everything(location_of(database))["runs"] == []


@pytest.mark.parametrize("to", ["file", "server"])
def test_a_copy_that_is_killed_leaves_no_part_and_can_be_made_again(to, database, tmp_path):
    file = tmp_path / "here.db"
    target = tmp_path / "copy.db" if to == "file" else location_of(database)
    fill(file, make_table)
    program = (
        "import os, signal, sys\nfrom diode_engine.location import location_of\n"
        "from diode_engine.store import bulk, maintenance\n"
        "insert = bulk.insert_timings\n"
        "def killed(*rows):\n    insert(*rows)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "bulk.insert_timings = killed\n"
        "maintenance.copy(*map(location_of, sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, file, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    if to == "file":
        assert not target.exists()
    else:
        left = {name for name, rows in everything(target).items() if rows}
        assert left <= {"failures"}  # those that every store begins with
    maintenance.copy(file, target)
    assert repr(everything(target)) == repr(everything(file))


def test_a_large_store_is_copied_in_pieces(database, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "_AT_ONCE", 7)
    monkeypatch.setattr(maintenance, "_AT_ONCE", 3)
    file, server = tmp_path / "here.db", location_of(database)
    fill(file, make_table)
    maintenance.copy(file, server)
    maintenance.copy(server, tmp_path / "back.db")
    assert repr(everything(tmp_path / "back.db")) == repr(everything(file))
