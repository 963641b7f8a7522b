"""What runs leave beside timings: notes, tags, curves, results."""

import getpass
import math
from pathlib import Path

import pytest
import sqlalchemy as sa

from diode_engine.errors import StoreError
from diode_engine.store import run_query, schema


@pytest.fixture
def run(store):
    return store.start_run("train", {})


def test_a_run_knows_who_started_it(store, monkeypatch):
    for name in ("ann", "bob"):
        monkeypatch.setenv("LOGNAME", name)
        store.start_run("train", {})
    command = {"command": ["diode-engine"], "directory": ".", "logs": Path()}
    assert store.queue_run("train", {}, **command).user == "bob"
    assert [run.user for run in store.runs()] == ["ann", "bob", "bob"]
    assert [run.id for run in run_query.runs(store, "user:an")] == [1]
    assert run_query.known_values(store)["user"] == ["ann", "bob"]


def test_a_run_is_started_where_the_user_has_no_name(store, monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert store.run(store.start_run("train", {})).user is None


def test_a_note_is_replaced_and_taken_away(store, run):
    assert store.run(run).note is None
    store.set_note(run, "too slow")
    store.set_note(run, "tout à fait, 速い")
    assert store.run(run).note == "tout à fait, 速い"
    store.set_note(run, None)
    assert store.run(run).note is None


def test_tags_are_kept_once_and_in_order(store, run):
    other = store.start_run("train", {})
    store.tag(run, "paper", "h200/v2")
    store.tag(run, "paper")
    store.tag(other, "other")
    assert store.run(run).tags == ("h200/v2", "paper")
    assert [r.tags for r in store.runs()] == [("h200/v2", "paper"), ("other",)]
    store.untag(run, "paper", "never had it")
    assert store.run(run).tags == ("h200/v2",)


@pytest.mark.parametrize("tag", ["", "two words", "-minus", "a:b", "a\n", "x" * 51, "a,b", '"'])
def test_what_is_no_tag_is_refused_with_all_that_came_with_it(store, run, tag):
    with pytest.raises(StoreError, match="is no tag"):
        store.tag(run, "good", tag)
    assert store.run(run).tags == ()


def test_curves_come_back_by_step_and_only_what_is_new(store, run):
    store.add_points(run, "loss", [(2, 0.5), (1, 0.9)])
    store.add_points(run, "clock MHz", [(0.25, 1980.0)])
    store.add_points(store.start_run("train", {}), "loss", [(1, 7.0)])
    first = store.curves(run)
    assert {name: (s.tolist(), v.tolist()) for name, (s, v) in first.items()} == {
        "clock MHz": ([0.25], [1980.0]),
        "loss": ([1.0, 2.0], [0.9, 0.5]),
    }
    store.add_points(run, "loss", [(2, 0.4), (3, 0.3)])
    store.add_points(run, "efficiency", [(1, 0.8)])
    new = store.curves(run, after={name: steps[-1] for name, (steps, _) in first.items()})
    assert {name: (s.tolist(), v.tolist()) for name, (s, v) in new.items()} == {
        "efficiency": ([1.0], [0.8]),
        "loss": ([3.0], [0.3]),
    }
    assert store.curves(run)["loss"][1].tolist() == [0.9, 0.4, 0.3]


def test_a_loss_that_is_no_number_is_a_gap_in_the_curve(store, run):
    store.add_points(run, "loss", [(1, math.nan), (2, math.inf), (3, 1.0)])
    values = store.curves(run)["loss"][1].tolist()
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, 1.0]


def test_a_result_is_replaced_and_stays_small(store, run):
    assert store.result(run) is None
    store.set_result(run, {"a": 1})
    document = {"rows": [{"problem": "mm 8×8×8", "efficiency": 0.97}] * 1000}
    store.set_result(run, document)
    assert store.result(run) == document
    with store.reads() as connection:
        size = connection.scalar(sa.select(sa.func.length(schema.results.c.document)))
    assert size < 1000


def test_a_damaged_result_is_a_sentence(store, run):
    store.set_result(run, {"a": 1})
    with store.writes() as connection:
        connection.execute(sa.update(schema.results).values(document=b"nonsense"))
    with pytest.raises(StoreError, match=r"result of run 1 .* is damaged"):
        store.result(run)
