"""What is said of common mistakes: what is wrong, and what to do."""

from pathlib import Path

import pytest

from diode_engine.core.problem import Problem
from diode_engine.store import Store
from diode_engine.store.backends.sqlite import SqliteBackend
from diode_engine.training import run as training


@pytest.mark.parametrize(
    "line",
    ["data import {}", "data verify {}", "validate --dataset {}", "predict {}",
     "train --dataset {}", "data merge {} --output merged.json"],
)  # fmt: skip
def test_a_shapeset_given_as_a_dataset_is_called_one(run, shapeset, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    shapes = shapeset(Problem.make("mm", 64, 64, 64, "float16"))
    ran = run(*line.format(shapes).split())
    assert ran.code == 1
    assert "is a shapeset" in (said := ran.out + ran.err)
    assert f"collect-shapeset {shapes}" in said
    assert "lacks the fields" not in said


@pytest.mark.parametrize("line", ["validate --dataset", "predict", "train --dataset"])
def test_a_dataset_that_there_is_not_is_called_so(run, store, line):
    where = [] if line == "predict" else ["--store", store]
    run(*line.split(), "nope", *where).says(3, "There is no file nope")


def test_a_store_given_as_a_dataset_is_called_one(run, tmp_path, store):
    renamed = store.rename(tmp_path / "store.msgpack")
    assert "is a store, not a dataset" in run("predict", renamed).err


def test_an_operator_that_there_is_not_is_named_with_those_that_there_are(run, store):
    ran = run("train", "--op-name", "matmul", "--store", store)
    ran.says(2, "--op-name: matmul is not an operator", "addmm")
    assert "character" not in ran.err
    ran = run("data", "problems", "op:matmul", "--store", store)
    assert "matmul is not a known op (character 4); op can be mm, addmm" in ran.err


QUERIES = (
    "data problems {}", "data stats {}", "data map {}", "runs list {}", "train --query {}",
    "validate --query {}", "validate-model --query {}",
    "validate --cross-validate folds --query {}",
    "validate-max-autotune --max-autotune-solution {solution} --query {}",
    "export-lookup-table {folder}/l.json --query {}",
)  # fmt: skip


@pytest.mark.parametrize("line", QUERIES)
def test_a_wrong_query_is_a_wrong_use_of_every_command(run, store, solution, tmp_path, line):
    words = line.format("zzz:7", solution=solution(), folder=tmp_path).split()
    run(*words, "--store", store).says(2, "There is no field zzz")


@pytest.mark.parametrize("line", QUERIES)
def test_a_query_that_finds_nothing_is_said_to(run, store, solution, tmp_path, line):
    query = "tag:none" if "runs" in line else "k:7"
    words = line.format(query, solution=solution(), folder=tmp_path).split()
    ran = run(*words, "--store", store)
    listed = line.startswith(("data", "runs"))
    assert (ran.code, ran.out) == (0 if listed else 3, ""), ran
    assert f"{query!r} finds" in ran.err
    assert str(store) in ran.err
    assert "collect or import some" not in ran.err


def test_a_store_that_may_not_be_written_to_is_called_so(run, store, monkeypatch):
    with Store.open(store) as opened:
        noted = opened.start_run("collect", {})
    monkeypatch.setattr(SqliteBackend, "is_writable", lambda _: False)
    ran = run("runs", "note", noted, "x", "--store", store)
    ran.says(1, "may not be written to", "db backup")
    assert "opened for reading only" not in ran.err


def test_a_folder_that_may_not_be_entered_is_named(run, tmp_path, monkeypatch):
    """Its rights say so only to others than root, as whom tests may run."""

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    run("data", "stats", "--store", tmp_path / "a.db").says(1, "a.db cannot be read or written")


def test_a_store_that_cannot_be_made_is_called_so(run, tmp_path):
    """Behind a link to a folder that there is not, nobody can make a file."""
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "none" / "store.db")
    ran = run("data", "import", tmp_path / "timings.json", "--store", link)
    ran.says(1, "none can be made")
    assert "may not be read" not in ran.err


def test_an_interrupted_training_says_how_it_continues(run, store, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_from_store", interrupted)
    ran = run("train", "--store", store)
    assert ran.code == 130
    assert "train --resume" in ran.err


@pytest.mark.parametrize(("state", "fraction"), [("done", 1.0), ("cancelled", 0.2)])
def test_a_run_that_has_ended_has_nothing_left(run, store, state, fraction):
    with Store.open(store) as opened:
        ended = opened.start_run("train", {})
        opened.update_run(ended, progress={"fraction": 0.2, "seconds_left": 2.6, "problems": 7})
        opened.finish_run(ended, state)
    shown = run("runs", "show", ended, "--store", store, "--json").json()
    assert shown["progress"] == {"fraction": fraction, "problems": 7}
    assert "seconds left" not in run("runs", "show", ended, "--store", store).out
