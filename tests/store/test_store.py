"""What goes into a store comes out again, once, and survives what processes do to it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.errors import StoreError
from diode_engine.store import RunState, Store, soundness
from tests.samples import timing_at
from tests.store.conftest import ELSEWHERE, as_rows, make_table, one_product

ROOT = Path(__file__).parents[2]


def test_timings_come_back_exactly(store):
    table = make_table()
    assert store.add(store.start_run("collect", {}), table) == len(table)
    back = store.read()
    assert as_rows(back) == as_rows(table)
    assert back.problems == table.problems
    assert back.min_us.tobytes() == table.min_us.tobytes()


def test_rows_are_read_by_problem_then_candidate(store):
    table = make_table()
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    run = store.start_run("collect", {})
    store.add(run, shuffled.take(np.arange(len(table) // 2)))
    store.add(run, shuffled.take(np.arange(len(table) // 2, len(table))))
    later = store.start_run("collect", {})
    store.add(later, table)
    back = store.read()
    assert sorted(map(repr, as_rows(back))) == sorted(map(repr, as_rows(table) * 2))
    order = list(zip(back.problem.tolist(), back.candidate.tolist(), strict=True))
    assert order == sorted(order)


def test_every_timing_of_the_same_candidate_is_kept_in_its_order(store):
    def rows(*times: float) -> TimingTable:
        return one_product(*(Timing(min_us=time) for time in times))

    run = store.start_run("import", {})
    store.add(run, rows(3.0, 1.0, 3.0))
    store.add(run, rows(2.0))
    store.add(store.start_run("import", {}), rows(9.0))
    assert store.read().min_us.tolist() == [3.0, 1.0, 3.0, 2.0, 9.0]
    assert store.stats().problems == store.stats().candidates == 1


def test_records_that_python_calls_equal_stay_apart(store):
    for flag in (True, 1, 1.0):
        table = one_product(Timing(min_us=1.0), candidate=Candidate.make("triton::mm", flag=flag))
        store.add(store.start_run("import", {}), table)
    kinds = [type(candidate.config["flag"]) for candidate in store.read().candidates]
    assert kinds == [bool, int, float]


def test_read_selects_by_hardware_run_and_success(store):
    table = make_table()
    elsewhere = replace(table, environments=(ELSEWHERE,))
    first = store.start_run("collect", {})
    second = store.start_run("collect", {})
    store.add(first, table)
    store.add(second, elsewhere)
    assert as_rows(store.read(run=first)) == as_rows(table)
    assert as_rows(store.read(hardware="Other")) == as_rows(elsewhere)
    assert len(store.read(hardware="NVIDIA H200", run=second)) == 0


def test_what_was_timed_on_a_problem_in_this_very_environment(store):
    table = make_table(2, 4)
    store.add(store.start_run("collect", {}), table)
    slower = replace(table, min_us=table.min_us * 2, median_us=table.min_us * 3)
    store.add(store.start_run("collect", {}), slower)
    rows = np.flatnonzero(table.problem == 1)
    assert store.timed(table.problems[1], table.environments[0]) == {
        table.candidates[table.candidate[row]].key: timing_at(table, int(row)).time_us
        for row in rows
    }
    assert store.timed(table.problems[1], Environment(H200, "570.1", "2.13.0", "3.9.0")) == {}
    assert store.timed(Problem.make("mm", 9, 9, 9, "float16"), table.environments[0]) == {}


def test_a_run_tells_how_far_it_is(store):
    run = store.start_run("collect", {"shapes": ["a"]})
    (begun,) = store.runs()
    assert (begun.state, begun.spec, begun.key) == (RunState.RUNNING, {"shapes": ["a"]}, None)
    store.update_run(run, progress={"done": 3, "of": 9})
    (going,) = store.runs()
    assert going.progress == {"done": 3, "of": 9}
    assert going.heartbeat >= begun.heartbeat
    assert going.finished is None
    store.finish_run(run, "done", "all is timed")
    (ended,) = store.runs()
    assert ended.state is RunState.DONE
    assert ended.finished is not None
    assert (ended.progress, ended.message) == (going.progress, "all is timed")


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda s: s.add(7, s.read()), "no run 7"),
        (lambda s: s.update_run(7, progress={}), "no run 7"),
        (lambda s: s.run(7), "no run 7"),
        (lambda s: s.beat(7), "no run 7"),
        (lambda s: s.set_note(7, "a"), "no run 7"),
        (lambda s: s.tag(7, "a"), "no run 7"),
        (lambda s: s.untag(7, "a"), "no run 7"),
        (lambda s: s.add_points(7, "loss", [(1, 1)]), "no run 7"),
        (lambda s: s.curves(7), "no run 7"),
        (lambda s: s.set_result(7, {}), "no run 7"),
        (lambda s: s.result(7), "no run 7"),
        (lambda s: s.finish_run(s.start_run("x", {}), "running"), "ends as done"),
        (lambda s: s.finish_run(s.start_run("x", {}), "dead"), "dead is none of these"),
        (lambda s: s.start_run("x", {"a": object()}), "written as JSON"),
        (lambda s: s.set_result(s.start_run("x", {}), {"a": object()}), "written as JSON"),
        (lambda s: s.set_result(s.start_run("x", {}), {"a": math.nan}), "written as JSON"),
    ],
)
def test_mistakes_are_refused_with_a_sentence(store, mistake, sentence):
    with pytest.raises(StoreError, match=sentence):
        mistake(store)
    assert all(store.result(run.id) is None for run in store.runs())


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (one_product(Timing(failure=Failure.NOT_TIMED)), "never timed"),
        (one_product(Timing(min_us=1.0), candidate=Candidate("\ud800")), "does not fit"),
    ],
)
def test_rows_that_cannot_be_kept_are_refused_whole(store, table, sentence):
    with pytest.raises(StoreError, match=sentence):
        store.add(store.start_run("import", {}), table)
    assert store.stats().problems == 0


def test_tables_are_strict_and_references_hold(store):
    store.add(store.start_run("collect", {}), make_table())
    on_file = isinstance(store.location, Path)
    for statement, refused in (
        ("UPDATE timings SET min_us = 'fast'", "cannot store TEXT|invalid input syntax"),
        ("UPDATE sweeps SET problem = 999 WHERE id = 1", "FOREIGN KEY|foreign key"),
        ("DELETE FROM runs", "FOREIGN KEY|foreign key"),
        ("UPDATE timings SET failure = 1", "CHECK|check constraint"),
        # On a server the store's own check looks for it (see `schema`).
        *[("UPDATE timings SET candidate = 99 WHERE candidate = 1", "FOREIGN KEY")] * on_file,
    ):
        with pytest.raises(StoreError, match=refused), store.writes() as connection:
            connection.exec_driver_sql(statement)
    assert len(store.read()) == len(make_table())


# Two batches are written; the third hangs inside SQLite, half done and already spilling into
# the WAL file, or on a server before it is committed, when the test kills it.
_HANGS = """
import sys
from pathlib import Path
import sqlalchemy as sa
from tests.store.conftest import make_table
from diode_engine.store import Store, bulk

store = Store.open(sys.argv[1])
run = store.start_run("collect", {})
store.add(run, make_table(10, 100, first=0))
store.add(run, make_table(10, 100, first=10))

def hang():
    print("in the middle", flush=True)
    sys.stdin.read()

@sa.event.listens_for(store._engine, "begin")
def begin(connection):
    if isinstance(store.location, Path):
        connection.exec_driver_sql("PRAGMA cache_size = 20")
        connection.connection.driver_connection.set_progress_handler(hang, 2_000_000)

def copied(connection, columns, insert=bulk.insert_timings):
    insert(connection, columns)
    hang()

if not isinstance(store.location, Path):
    bulk.insert_timings = copied
if sys.argv[2] == "add":
    store.add(run, make_table(1000, 100, first=20))
else:
    store.import_table(make_table(1000, 100, first=20), key="k", spec={})
print("not reached", flush=True)
"""


@pytest.mark.parametrize("how", ["add", "import"])
def test_a_killed_ingest_leaves_whole_batches_and_goes_on(place, how):
    child = subprocess.Popen(
        [sys.executable, "-c", _HANGS, str(place), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    assert child.stdout.readline() == "in the middle\n"
    if isinstance(place, Path):
        wal = place.with_name("diode.db-wal")
        assert wal.stat().st_size > 500_000  # the batch had begun to reach the disk
    child.kill()
    child.communicate()

    whole = [make_table(10, 100, first=0), make_table(10, 100, first=10)]
    with Store.open(place) as store:
        assert as_rows(store.read()) == as_rows(whole[0]) + as_rows(whole[1])
        run, *importing = store.runs()
        assert (run.kind, run.state) == ("collect", RunState.RUNNING)
        assert [(r.kind, r.state) for r in importing] == [("import", "running")] * (how == "import")
        assert soundness.check(store.location).problems == ()
        there = whole[0].environments[0], [p for table in whole for p in table.problems]
        assert sum(len(store.timed(problem, there[0])) for problem in there[1]) == 2000
        again = make_table(1000, 100, first=20)
        if how == "add":
            store.add(run.id, again)
        else:
            assert store.import_table(again, key="k", spec={}).new
        assert len(store.read()) == 102_000
