"""What is in the store already is not imported again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.store import dataset_key, export_dataset, import_dataset, write_dataset
from diode_engine.store.datasets.format import SUFFIXES
from tests.store.conftest import as_rows, make_table, one_product


def shuffled(table: TimingTable) -> TimingTable:
    """The same rows in another order, over records in another order, one of them unused."""
    rng = np.random.default_rng(3)
    turn = rng.permutation(len(table.candidates))
    back = np.argsort(turn).astype(np.int32)
    return replace(
        table,
        problems=(*table.problems, Problem.make("bmm", 1, 1, 1, "float16")),
        candidates=tuple(table.candidates[i] for i in turn),
        candidate=back[table.candidate],
    ).take(rng.permutation(len(table)))


def test_the_key_of_a_dataset_is_that_of_its_rows_in_any_order():
    table = make_table()
    assert dataset_key(shuffled(table)) == dataset_key(table)
    changed = table.median_us.copy()
    changed[0] += 1e-9
    others = [
        replace(table, median_us=changed),
        table.take(np.arange(1, len(table))),
        table.take(np.array([0, *range(len(table))])),
        replace(table, problems=table.problems[::-1]),
        replace(table, repeats=table.repeats + 1),
    ]
    assert len({dataset_key(other) for other in (table, *others)}) == 6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_export_of_everything_adds_nothing_when_it_is_imported(store, tmp_path, suffix):
    store.add(store.start_run("collect", {}), make_table(3, 5))
    later = store.start_run("collect", {})
    store.add(later, shuffled(make_table(3, 5, first=1)))
    where = tmp_path / f"all{suffix}"
    assert export_dataset(store, where) == 30
    done = import_dataset(store, where)
    assert (done.run, done.new, done.timings, done.there) == (later, False, 0, 30)
    assert len(store.runs()) == 2
    assert len(store.read()) == 30


def test_of_a_file_only_what_is_new_is_imported(store, tmp_path):
    store.add(store.start_run("collect", {}), make_table(2, 5))
    more = make_table(4, 5)  # begins with other times of the same two problems
    both = TimingTable.joined([make_table(2, 5), more])
    write_dataset(both, tmp_path / "both.msgpack")
    done = import_dataset(store, tmp_path / "both.msgpack")
    run = store.run(done.run)
    assert (done.new, run.kind, run.state) == (True, "import", "done")
    assert (run.spec["file"], run.key) == (str(tmp_path / "both.msgpack"), dataset_key(both))
    assert (done.timings, done.there) == (len(both) - 10, 10)
    back = store.read()
    assert sorted(map(repr, as_rows(back))) == sorted(map(repr, as_rows(both)))
    again = import_dataset(store, tmp_path / "both.msgpack")
    assert (again.run, again.new, again.there) == (done.run, False, len(both))


def test_equal_rows_are_as_many_as_the_file_has(store):
    one, two = Timing(min_us=1.0), Timing(failure=Failure.TIMEOUT)
    assert store.import_table(one_product(one, one, two), key="a", spec={}).timings == 3
    done = store.import_table(
        one_product(one, one, one, two, Timing(min_us=1.001)), key="b", spec={}
    )
    assert (done.timings, done.there) == (2, 3)
    assert sorted(store.read(run=done.run).min_us.tolist()) == [1.0, 1.001]


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"problem": Problem.make("mm", 9, 8, 8, "float16")},
        {"candidate": Candidate.make("triton::mm")},
        {"environment": Environment(H200, "570.1", "2.13.0", "3.8.0")},
    ],
)
def test_the_same_times_elsewhere_are_others(store, elsewhere):
    timing = Timing(min_us=1.0)
    store.import_table(one_product(timing), key="a", spec={})
    assert store.import_table(one_product(timing, **elsewhere), key="b", spec={}).timings == 1
