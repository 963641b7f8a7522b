"""diode-engine data problems, show and map, and the table that they write."""

import csv
import json

import pytest

from diode_engine.cli import ExitCode
from diode_engine.store import Store, query, write_dataset
from tests.cli.conftest import make_timings


@pytest.fixture(autouse=True)
def _by_default(store, monkeypatch):
    monkeypatch.setenv("DIODE_STORE", str(store))


def test_problems_by_pages(store, run):
    first = run("data", "problems", "--sort", "best", "--rows", 5)
    assert first.code == ExitCode.OK
    assert first.err == "1 to 5 of 12. --page 2 shows more.\n"
    assert len(first.out.splitlines()) == 7
    assert run("data", "problems", "--rows", 5, "--page", 3).err == "11 to 12 of 12.\n"
    run("data", "problems", "--page", 9).says(ExitCode.OK, "Page 9 is empty: there are 12 such")
    run("data", "problems", "--page", 10**20).says(ExitCode.USAGE, "is not in the range")
    with Store.open(store, read_only=True) as opened:
        rows = query.problems(opened, sort="best", descending=True)
    shown = run("data", "problems", "--sort", "best", "--descending", "--json").json()
    assert [row["id"] for row in shown] == [row.number for row in rows]
    assert [row["best_us"] for row in shown] == [row.best_us for row in rows]
    assert {row["gpu"] for row in shown} == {"NVIDIA H200"}


def test_problems_by_a_query_of_several_words(store, run):
    with Store.open(store, read_only=True) as opened:
        rows = query.problems(opened, "id<=4 -id:2 op:mm")
    shown = run("data", "problems", "id<=4", "-id:2", "--csv", "op:mm").out
    assert [int(row["id"]) for row in csv.DictReader(shown.splitlines())] == [
        row.number for row in rows
    ]
    wrong = run("data", "problems", "op:mm", "-dtyp:fp32")
    wrong.says(ExitCode.USAGE, "There is no field dtyp (character 8); the fields are op, dtype")


def test_a_problem_by_its_number_or_its_key(store, run):
    text = run("data", "show", 1).out
    assert text.startswith("Problem 1: ")
    key = run("data", "problems", "id:1", "--json").json()[0]["key"]
    (shown,) = run("data", "show", key[:10], "--json").json()
    assert (shown["id"], shown["key"]) == (1, key)
    ranked = shown["ranked"]
    assert [row["rank"] for row in ranked] == [1, 2, 3, 4]
    times = [row["time_us"] for row in ranked if row["time_us"] is not None]
    assert times == sorted(times)
    assert ranked[0]["efficiency"] == 1.0
    assert times[0] == shown["best_us"]
    rows = list(csv.DictReader(run("data", "show", 1, "--csv").out.splitlines()))
    assert [row["template"] for row in rows] == [row["template"] for row in ranked]
    assert json.loads(rows[0]["kwargs"]) == ranked[0]["kwargs"]
    second = run("data", "show", 1, "--json", "--rows", 1, "--page", 2).json()
    assert second[0]["ranked"] == ranked[1:2]


def test_a_problem_that_there_is_not(store, run):
    for name in ("999", "zzzz", "%", "a b"):
        run("data", "show", name).says(ExitCode.NOTHING, f"There is no problem {name} in")


def test_a_key_of_which_too_little_is_given(store, run, tmp_path):
    write_dataset(make_timings(60), tmp_path / "more.json")
    assert run("data", "import", tmp_path / "more.json").code == 0
    run("data", "show", "a").says(ExitCode.FAILURE, "The keys of several problems begin with a: a")


def test_the_map_in_its_three_forms(store, run):
    grid = run("data", "map", "--json").json()
    assert sum(map(sum, grid["problems"])) == 12
    assert len(grid["problems"]) == len(grid["m_from"])
    rows = list(csv.DictReader(run("data", "map", "--csv").out.splitlines()))
    assert sum(int(row["problems"]) for row in rows) == 12
    assert set(rows[0]) == {"m_from", "n_from", "problems"}
    text = run("data", "map", "--across", "k").out.splitlines()
    assert text[0].split()[:4] == ["M", "↓", "K", "→"]
    assert len(text) == 1 + len(grid["m_from"])
