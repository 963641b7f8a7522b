"""Processes killed at random moments, many processes at one store, damaged files, full disks,
fuzzed files: what lies there afterwards is sound, and what is refused is refused in a sentence."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from diode_engine.core.table import TimingTable
from diode_engine.location import location_of
from diode_engine.store import RunState, Store, soundness, write_dataset
from tests.samples import timing_at
from tests.soak import damage, fuzzing, kills, made, work
from tests.soak.children import start

Tries = Callable[..., int]


@pytest.fixture
def a_store(tmp_path: Path) -> Path:
    return made.store(tmp_path / "good.db")


@pytest.fixture
def small_model(tmp_path: Path, nothing_shipped: None) -> Path:
    """A model's folder, and no models but those that a test registers."""
    return made.model(tmp_path / "model")


@pytest.mark.parametrize("what", ["importing", "migrating", "registering", "promoting"])
def test_all_is_sound_after_a_kill(tmp_path, small_model, diode_home, tries, rng, what):
    made_of = tmp_path if what in ("importing", "migrating") else small_model
    operation = getattr(kills, what)(made_of)
    done, late = kills.run(operation, tries(quick=3, full=200), rng, diode_home)
    print(f"{what}: killed {done} times, {late} times too late")  # noqa: T201


def test_eight_writers_and_eight_readers(place_of_module, tmp_path: Path, tries: Tries) -> None:
    """Nothing is lost, and nobody sees half of anything."""
    seconds, batches = tries(quick=1, full=60), tries(quick=3, full=1_000_000)
    store, until = place_of_module, time.monotonic() + seconds
    Store.open(store).close()
    jobs = [
        *(start(work.write, str(store), i, until, batches, home=tmp_path) for i in range(8)),
        *(start(work.read, str(store), until, 2, home=tmp_path) for _ in range(8)),
    ]
    answers = []
    for child, hear in jobs:
        with hear:
            answers.append(hear.recv())
        child.join()
        assert child.exitcode == 0
    written, read = [n for n, _ in answers[:8]], answers[8:]
    assert [wrong for _, wrong in read] == [[]] * 8
    assert sum(imported for _, imported in answers[:8]) == 1  # all import the same timings

    expected = Counter(_rows(work.imported()))
    for first in range(50):
        of = sum(n // 50 + (first < n % 50) for n in written)
        for row in _rows(work.batch(first)) if of else ():
            expected[row] += of
    with Store.open(store) as opened:
        found = opened.read()
        assert len(found) == opened.stats().timings == 100 * (sum(written) + 1)
        assert Counter(_rows(found)) == expected
        for run in opened.runs():
            if run.kind == "collect":
                n = written[int(run.spec["by"])]
                assert (run.state, run.progress["batches"]) == (RunState.DONE, n)
                assert len(opened.curves(run.id)["loss"][0]) == n
                assert len(opened.read(run=run.id)) == 100 * n
    assert soundness.check(location_of(store)).problems == ()
    assert len(found) >= 8 * 100
    reads = sum(times for times, _ in read)
    print(f"{seconds} s: {len(found)} timings written, all of them read {reads} times")  # noqa: T201


def _rows(table: TimingTable) -> list[tuple[str, str]]:
    return [
        (table.problems[table.problem[i]].key, repr(timing_at(table, i))) for i in range(len(table))
    ]


def test_notes_are_written_while_an_import_writes(tmp_path: Path, tries: Tries) -> None:
    rows, store = tries(quick=200_000, full=3_000_000), tmp_path / "a.db"
    with Store.open(store) as opened:
        run = opened.start_run("collect", {})
    child, hear = start(work.import_many, str(store), rows, home=tmp_path)
    waits: list[float] = []
    while not hear.poll(0.02):
        began = time.monotonic()
        with Store.open(store) as opened:
            opened.set_note(run, f"{len(waits)}")
            assert opened.run(run).note == f"{len(waits)}"
        waits.append(time.monotonic() - began)
    took = hear.recv()
    child.join()
    assert max(waits) < took / 4
    with Store.open(store) as opened:
        assert opened.stats().timings == rows
    print(f"{rows} timings in {took:.1f} s, {len(waits)} notes, worst {max(waits):.3f} s")  # noqa: T201


@pytest.mark.parametrize("how", ["flipped", "truncated"])
def test_every_command_on_a_damaged_store(tmp_path, a_store, tries, rng, how):
    n = tries(quick=8, full=1000)
    sound, commands = damage.damaged_stores(tmp_path, a_store, getattr(damage, how), n, rng)
    print(f"{how}: {n} stores, of which {sound} are sound, {commands + n} commands")  # noqa: T201


def test_every_command_that_writes_on_a_full_disk(tmp_path, a_store, tries, rng):
    file = tmp_path / "more.json"
    write_dataset(work.table(30, 20, first=500), file)
    failed, ran = damage.full_disks(tmp_path, a_store, file, tries(quick=12, full=300), rng)
    assert 2 * failed >= ran
    print(f"full disk: {ran} commands, of which {failed} failed for it")  # noqa: T201


def test_every_command_on_a_damaged_registry(tmp_path, diode_home, small_model, tries, rng):
    n, out = tries(quick=8, full=1000), tmp_path / "out.diode.zip"
    sound, commands = damage.damaged_registries(diode_home, small_model, out, n, rng)
    print(f"registry: {n} damaged, of which {sound} pass, {commands} commands")  # noqa: T201


def test_every_file_is_read_or_refused(tries: Tries, tmp_path: Path) -> None:
    """Whatever a stranger hands over, in bounded time and memory."""
    processes = min(2, len(os.sched_getaffinity(0)))
    found = fuzzing.fuzzed(tries(quick=2_800, full=1_000_000), tmp_path, processes)
    print(found)  # noqa: T201
    found.check()
