"""An import as a run: from the start to its end, and where it fails."""

from dataclasses import replace

import numpy as np
import pytest

from diode_app.data.run_results import fraction, seconds_left
from diode_engine.runs import import_as_run, importing, job, look, repeat, start_import
from diode_engine.runs.job import VARIABLE, Job
from diode_engine.runs.process import current_process
from diode_engine.store import RunState, bulk, soundness, staging, write_dataset
from diode_engine.store.staging import unfinished_imports
from tests.runs.conftest import wait_for_end
from tests.training.conftest import make_timings


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some.msgpack"
    write_dataset(make_timings(8), path)
    return path


def _awaited(store, monkeypatch):
    run = store.queue_run(
        "import", {}, command=("diode-engine", "data", "import"), directory="/",
        logs=store.location.with_name("logs"),
    ).id  # fmt: skip
    monkeypatch.setenv(VARIABLE, f"{run}:{store.location.absolute()}")
    return run


def test_in_a_process_of_its_own(store, file):
    started = start_import(store, (file,))
    assert (started.kind, started.state) == ("import", RunState.QUEUED)
    wait_for_end(store.run(started.id).process)
    run = store.run(started.id)
    assert run.state is RunState.DONE, run.message
    assert run.key is not None
    assert run.spec["file"] == str(file)
    assert run.message == f"{store.stats().timings} timings"
    again = repeat(store, run.id)
    wait_for_end(store.run(again.id).process)
    assert "were there before, by run 1" in store.run(again.id).message
    assert store.stats().problems == 8


def test_it_tells_how_far_it_is(store, tmp_path, monkeypatch):
    write_dataset(make_timings(40), tmp_path / "some.msgpack")
    run = _awaited(store, monkeypatch)
    monkeypatch.setattr(staging, "_FIRST_ROWS", 100)
    monkeypatch.setattr(importing, "_TELL_SECONDS", 0.0)
    seen, tell = [], Job.tell

    def telling(job, progress, every=0.0):
        tell(job, progress)
        seen.append(look(store, run))
        assert store.stats().timings == len(store.read()) == 0  # nobody sees a half

    monkeypatch.setattr(Job, "tell", telling)
    shown = []
    import_as_run(store, tmp_path / "some.msgpack", lambda *counts: shown.append(counts))
    assert (shown[0], shown[-1]) == ((0, len(store.read())), (len(store.read()),) * 2)
    parts = [fraction(status) for status in seen]
    assert len(parts) > 3
    assert parts == sorted(parts)
    assert seen[2].run.progress["doing"].startswith("writing ")
    assert 0.2 < parts[2] < 1.0
    assert seconds_left(seen[2]) is not None
    assert fraction(look(store, run)) == 1.0
    assert store.stats().problems == 40


@pytest.mark.parametrize("ends", [KeyboardInterrupt, MemoryError])
def test_where_it_ends_in_the_middle_nothing_is_left(store, file, monkeypatch, ends):
    store.add(store.start_run("collect", {}), make_timings(3))
    before = store.read()
    run = _awaited(store, monkeypatch)
    monkeypatch.setattr(staging, "_FIRST_ROWS", 10)
    insert, steps = bulk.insert_timings, []

    def inserting(*args):
        steps.append(1)
        if len(steps) == 2:
            assert soundness.check(store.location).problems == ()
            raise ends
        insert(*args)

    monkeypatch.setattr(bulk, "insert_timings", inserting)
    with pytest.raises(ends):
        import_as_run(store, file)
    assert store.run(run).state == ("cancelled" if ends is KeyboardInterrupt else "failed")
    assert unfinished_imports(store) == []
    assert np.array_equal(store.read().min_us, before.min_us, equal_nan=True)
    assert soundness.check(store.location).problems == ()
    done = import_as_run(store, file)
    assert done.new
    assert len(store.read()) == done.timings + len(before)


def test_the_next_import_removes_what_a_killed_one_has_left(store, file, tmp_path, monkeypatch):
    other = tmp_path / "other.msgpack"
    write_dataset(make_timings(3), other)
    monkeypatch.setattr(staging, "discard", lambda *args, **options: None)  # as if killed
    insert = bulk.insert_timings

    def killed(*args):
        insert(*args)
        raise MemoryError

    monkeypatch.setattr(bulk, "insert_timings", killed)
    monkeypatch.setattr(Job, "__exit__", lambda job, *_: job._over.set())
    gone = replace(current_process(), started=1)  # it had this pid, and is gone
    monkeypatch.setattr(job, "current_process", lambda: gone)
    with pytest.raises(MemoryError):
        import_as_run(store, file)
    monkeypatch.undo()
    (rest,) = unfinished_imports(store)
    assert look(store, rest).state == "dead"
    assert store.stats().timings == 0
    import_as_run(store, other)
    assert unfinished_imports(store) == []
    assert store.stats().problems == 3
    assert soundness.check(store.location).problems == ()
