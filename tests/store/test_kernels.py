"""What the compiler made of timed kernels: stored, exported, asked for."""

from dataclasses import replace

import numpy as np
import pytest
import zstandard

from diode_engine.store import (
    Store,
    export_dataset,
    import_dataset,
    query,
    read_dataset,
    write_dataset,
)
from diode_engine.store.datasets.format import SUFFIXES
from diode_engine.store.datasets.key import dataset_key
from tests.store.conftest import as_rows, make_table


@pytest.fixture
def table():
    """Three problems, five candidates; of every second row the kernel is known, and every fourth
    of the second problem's kernels spills."""
    made = make_table(3, 5)
    rows = np.arange(len(made))
    kernel = np.full((len(made), 5), -1, np.int32)
    kernel[rows % 2 == 0] = (168, 0, 0, 65536, 2000)
    kernel[(made.problem == 1) & (rows % 4 == 0)] = (255, 64, 96, 65536, 3000)
    return replace(made, kernel=kernel)


def test_facts_come_out_as_they_went_in(store, table):
    run = store.start_run("collect", {})
    store.add(run, table)
    store.add(run, table.take(table.problem == 0))  # a repeat: the kernels stay
    found = store.read(kernels=True)
    assert store.read().kernel is None
    expected = [*as_rows(table), *as_rows(table.take(table.problem == 0))]
    assert sorted(as_rows(found), key=str) == sorted(expected, key=str)


def test_a_store_without_facts_reads_as_before(store):
    store.add(store.start_run("collect", {}), make_table(2, 3))
    assert store.read(kernels=True).kernel is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_carries_them(suffix, table, tmp_path):
    with Store.open(tmp_path / "a.db") as store:
        store.add(store.start_run("collect", {}), table)
        export_dataset(store, tmp_path / f"a{suffix}")
    read = read_dataset(tmp_path / f"a{suffix}")
    assert np.array_equal(read.kernel, table.kernel)
    with Store.open(tmp_path / "b.db") as store:
        import_dataset(store, tmp_path / f"a{suffix}")
        assert np.array_equal(store.read(kernels=True).kernel, table.kernel)


@pytest.mark.parametrize("suffix", [".json", ".packed.zst"])
def test_a_file_without_facts_has_no_column_for_them(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    write_dataset(make_table(2, 3), path)
    data = path.read_bytes()
    data = zstandard.ZstdDecompressor().decompress(data) if suffix.endswith("zst") else data
    assert b'registers"' not in data.replace(b"registers_multiprocessor", b"")
    assert b"spill_stores" not in data
    assert read_dataset(path).kernel is None


def test_the_key_of_timings_without_facts_is_as_it_was(table):
    plain = make_table(3, 5)
    assert dataset_key(plain) == dataset_key(replace(table, kernel=None))
    assert dataset_key(plain) != dataset_key(table)


def test_problems_are_found_by_what_spills(store, table):
    for _ in range(2):  # kernels count once, however many runs timed them
        store.add(store.start_run("collect", {}), table)
    spilling = {row.problem: row for row in query.problems(store, "spills>0")}
    assert list(spilling) == [table.problems[1]]
    assert query.count_problems(store, "spills=1") == 1
    assert query.count_problems(store, "spills:0") == 2
    assert set(store.read("spills>0").problems) == set(spilling)
    row = spilling[table.problems[1]]
    found = query.candidates(store, row.number, row.environment_number)
    by = {table.candidates.index(c.candidate): c for c in found}
    assert by[3].kernel is not None
    assert by[3].facts["spill_stores"] == 64
    assert by[0].facts["registers"] is None
