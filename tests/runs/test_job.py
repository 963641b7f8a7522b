"""A job takes the run it was started for, shows that it lives, and hears when to stop."""

import threading
from pathlib import Path

import pytest

from diode_engine.errors import RunError, StoreError
from diode_engine.runs import Job, job
from diode_engine.runs.job import begin
from diode_engine.runs.process import current_process
from diode_engine.store import RunState


def queued(store, kind="train"):
    run = store.queue_run(kind, {"asked": 1}, command=["diode-engine"], directory="/", logs=Path())
    assert run.state is RunState.QUEUED
    return run.id


def claim(monkeypatch, run, store):
    monkeypatch.setenv(job.VARIABLE, f"{run}:{store.absolute()}")


def test_a_run_of_no_command_knows_its_process_and_no_command(store):
    run = store.run(begin(store, "train", {"seed": 1}))
    assert run.process == current_process()
    assert (run.command, run.directory, run.log) == (None, None, None)


@pytest.mark.parametrize("program", ["/usr/bin/diode-engine", "lib/diode_engine/__main__.py"])
def test_a_commands_run_keeps_the_words_and_the_store(store, monkeypatch, program):
    monkeypatch.setattr(job.sys, "argv", [program, "train", "--name", "a b"])
    run = store.run(begin(store, "train", {}))
    assert run.command == ("diode-engine", "train", "--name", "a b", f"--store={store.location}")
    assert run.directory == str(Path.cwd())
    monkeypatch.setattr(job.sys, "argv", [program, "train", "--store", "x.db"])
    run = store.run(begin(store, "train", {}))
    assert run.command == ("diode-engine", "train", "--store", "x.db")


def test_the_run_it_was_started_for_is_taken_once(store, monkeypatch):
    run = queued(store)
    claim(monkeypatch, run, store.location)
    assert begin(store, "train", {"seed": 1}) == run
    begun = store.run(run)
    assert (begun.state, begun.spec, begun.process) == ("running", {"seed": 1}, current_process())
    assert begun.command == ("diode-engine",)
    assert begin(store, "train", {}) == run + 1


def test_a_run_of_another_kind_or_store_is_left_alone(store, monkeypatch, tmp_path):
    run = queued(store, "collect")
    claim(monkeypatch, run, store.location)
    assert begin(store, "train", {}) == run + 1
    claim(monkeypatch, run, tmp_path / "other.db")
    assert begin(store, "collect", {}) == run + 2
    assert store.run(run).state is RunState.QUEUED


def test_a_run_that_was_ended_before_is_not_begun(store, monkeypatch):
    run = queued(store)
    store.finish_run(run, "cancelled")
    claim(monkeypatch, run, store.location)
    with pytest.raises(RunError, match=f"Run {run} was ended before it began"):
        begin(store, "train", {})
    assert store.run(run).state is RunState.CANCELLED


def test_what_the_starter_writes_late_changes_nothing(store):
    run = queued(store)
    store.begin_run(run, {}, process=current_process())
    store.launched_run(run, job.current_process().__class__("late", "late", 1, 1))
    assert store.run(run).process == current_process()


def test_the_heart_beats_while_the_job_is_busy(store, monkeypatch):
    beats, beat = threading.Semaphore(0), store.beat
    monkeypatch.setattr(store, "beat", lambda run: (beat(run), beats.release())[0])
    monkeypatch.setattr(job, "BEAT_SECONDS", 0.001)
    with Job(store, "train", {}) as busy:
        for _ in range(4):
            assert beats.acquire(timeout=60)
        assert (run := store.run(busy.id)).heartbeat > run.started


def test_a_request_to_stop_is_heard_at_the_next_check(store, monkeypatch):
    monkeypatch.setattr(job, "BEAT_SECONDS", 3600)
    with Job(store, "train", {}) as asked:
        asked.check()
        store.ask_to_cancel(asked.id)
        asked.check()
        asked._beat()
        with pytest.raises(KeyboardInterrupt):
            asked.check()
    # One made before the job began is heard at once.
    run = queued(store)
    store.ask_to_cancel(run)
    claim(monkeypatch, run, store.location)
    with pytest.raises(KeyboardInterrupt), Job(store, "train", {}) as asked:
        asked.check()
    assert store.run(run).state is RunState.CANCELLED


def test_a_locked_store_does_not_end_the_job(store, monkeypatch, caplog):
    def locked(run):
        raise StoreError("The store stayed locked.")

    monkeypatch.setattr(store, "beat", locked)
    monkeypatch.setattr(job, "BEAT_SECONDS", 3600)
    with Job(store, "train", {}) as begun:
        begun.check()
    assert "could not show that it is alive: The store stayed locked." in caplog.text


def test_progress_is_written_no_more_often_than_it_should_be(store):
    with Job(store, "train", {}) as told:
        told.tell({"step": 1})
        told.tell({"step": 2}, every=3600)
        assert store.run(told.id).progress["step"] == 1
    assert store.run(told.id).progress["step"] == 2
