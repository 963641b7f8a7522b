"""An import as a run: from the start to its end, and where it fails."""

from __future__ import annotations

import pytest

from diode_app.data.progress import fraction, seconds_left
from diode_engine.errors import DatasetError
from diode_engine.runs import import_as_run, look, repeat, start_import
from diode_engine.runs.job import VARIABLE
from diode_engine.store import RunState, write_dataset
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


def test_in_a_process_of_its_own(store, file, wait_for_end):
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


def test_it_tells_how_far_it_is(store, file, monkeypatch):
    run = _awaited(store, monkeypatch)
    seen = []
    write = store.import_table

    def writing(*args, **options):
        seen.append(look(store, run))
        return write(*args, **options)

    monkeypatch.setattr(store, "import_table", writing)
    import_as_run(store, file)
    (status,) = seen
    assert status.run.progress["doing"].startswith("writing ")
    assert 0.2 <= fraction(status) < 1.0
    assert seconds_left(status) is not None
    assert fraction(look(store, run)) == 1.0


def test_the_same_file_again_makes_no_run(store, file):
    first = import_as_run(store, file)
    again = import_as_run(store, file)
    assert (again.new, again.run) == (False, first.run)
    assert len(store.runs()) == 1


@pytest.mark.parametrize(
    ("error", "state", "message"),
    [
        (DatasetError("some.msgpack is torn."), "failed", "torn"),
        (KeyboardInterrupt(), "cancelled", ""),
    ],
)
def test_where_it_does_not_end_it_leaves_nothing(store, file, monkeypatch, error, state, message):
    run = _awaited(store, monkeypatch)

    def stopped(*args, **options):
        raise error

    monkeypatch.setattr(store, "import_table", stopped)
    with pytest.raises(type(error)):
        import_as_run(store, file)
    assert store.run(run).state == state
    assert message in store.run(run).message
    assert store.stats().timings == 0
