"""What a run's state is where its row cannot say so."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from diode_engine.runs import find, look, look_at_all
from diode_engine.runs.process import current_process
from diode_engine.runs.status import STALE_SECONDS
from diode_engine.store import Process, RunState

GONE = replace(current_process(), started=1)
ELSEWHERE = Process("elsewhere", "a-boot pid:[1]", 7, 7)
RESTARTED = replace(current_process(), machine="an-earlier-boot pid:[1]")


def after(seconds):
    return lambda: datetime.now(UTC) + timedelta(seconds=seconds)


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_an_ended_run_is_what_it_says(store, state):
    run = store.start_run("train", {}, process=GONE)
    store.finish_run(run, state)
    status = look(store, run, clock=after(1e6))
    assert (status.state, status.why) == (state, None)
    assert status.state.ended
    assert status.seconds < 60


def test_a_run_whose_process_is_gone_is_dead_at_once(store):
    run = store.start_run("train", {}, process=GONE)
    status = look(store, run)
    assert status.state is RunState.DEAD
    assert status.state.ended
    assert status.why == "Its process was gone before it came to its end."
    assert store.run(run).state is RunState.RUNNING  # a look changes nothing


def test_a_run_whose_process_is_here_is_running_however_quiet(store):
    run = store.start_run("train", {}, process=current_process())
    status = look(store, run, clock=after(1e6))
    assert status.state is RunState.RUNNING
    assert status.quiet_seconds > 9e5


@pytest.mark.parametrize(
    ("process", "why"),
    [
        (None, "It has sent no heartbeat for 1 min 31 s."),
        (ELSEWHERE, "It has sent no heartbeat for 1 min 31 s; it ran on elsewhere."),
        (
            RESTARTED,
            f"It has sent no heartbeat for 1 min 31 s, and {current_process().host} has been "
            "restarted since.",
        ),
    ],
)
def test_one_that_cannot_be_seen_is_dead_when_it_is_quiet(store, process, why):
    run = store.start_run("collect", {}, process=process)
    assert look(store, run, clock=after(STALE_SECONDS - 5)).state is RunState.RUNNING
    status = look(store, run, clock=after(STALE_SECONDS + 1))
    assert (status.state, status.why) == (RunState.DEAD, why)
    assert status.seconds < 5  # as far as is known
    store.beat(run)
    assert look(store, run).state is RunState.RUNNING


def test_one_that_was_asked_to_stop_is_cancelling_until_it_has(store):
    run = store.start_run("collect", {}, process=current_process())
    store.ask_to_cancel(run)
    asked = store.run(run).cancel_asked
    assert asked is not None
    assert look(store, run).state is RunState.CANCELLING
    store.ask_to_cancel(run)
    assert store.run(run).cancel_asked == asked
    store.finish_run(run, "done")
    assert look(store, run).state is RunState.DONE
    with_none = store.start_run("train", {})
    store.finish_run(with_none, "done")
    store.ask_to_cancel(with_none)
    assert store.run(with_none).cancel_asked is None


@pytest.mark.parametrize("several", [False, True])
def test_one_that_ends_while_we_look_is_not_dead(store, monkeypatch, several):
    run = store.start_run("train", {}, process=GONE)
    before = store.run(run)
    store.finish_run(run, "done")
    rows = [before, store.run(run)]
    monkeypatch.setattr(store, "run", lambda _: rows.pop(0))
    lists = [[rows[0]], [rows[1]]]
    monkeypatch.setattr(store, "runs", lambda: lists.pop(0))
    (status,) = look_at_all(store) if several else [look(store, run)]
    assert status.state is RunState.DONE


def test_runs_are_found_by_how_they_are_and_not_by_what_their_row_says(store):
    done = store.start_run("collect", {}, process=current_process())
    store.finish_run(done, "done")
    alive = store.start_run("collect", {}, process=current_process())
    gone = store.start_run("train", {}, process=GONE)
    stopping = store.start_run("train", {}, process=current_process())
    store.ask_to_cancel(stopping)

    def found(query, **page):
        return [status.run.id for status in find(store, query, **page)]

    assert found("") == [stopping, gone, alive, done]
    assert found("state:dead") == [gone]
    assert found("state:running") == [alive]
    assert found("-state:dead,done") == [stopping, alive]
    assert found("state:cancelling kind:train") == [stopping]
    assert found("-state:dead", limit=2) == [stopping, alive]
    assert found("-state:dead", limit=2, before=alive) == [done]
