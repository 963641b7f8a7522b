"""diode-engine draw-problems, create-validation and collect-shapeset, and the sizes that collect
takes."""

from __future__ import annotations

import json
from itertools import product

import pytest

from diode_engine.cli import collect
from diode_engine.collect.planning.plan import Plan
from diode_engine.core.problem import Problem
from diode_engine.problems.sources import read_shapeset, write_shapeset
from diode_engine.problems.splits import held_out_by

GRID = "grid:m=8/16/32/64,n=64/128,k=512"


def sizes(problems):
    return {(p.M, p.N, p.K) for p in problems}


def test_none_of_the_problems_is_known(run, tmp_path):
    known = [
        Problem.make("mm", m, n, 512, "bfloat16", a_layout=a, b_layout=b)
        for m, n, a, b in product((8, 16, 32), (64, 128), ("row", "col"), ("row", "col"))
    ]
    write_shapeset(known, tmp_path / "known.json", "a test")
    file = tmp_path / "unseen.json"
    draw = ("draw-problems", file, "--source", GRID, "--ops", "mm", "--dtypes", "bf16")
    ran = run(*draw, "--problems", "6", "--dataset", tmp_path / "known.json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["known"] == len(known) == 24
    found = read_shapeset(file).problems(0)
    assert sizes(found) == {(64, 64, 512), (64, 128, 512)}
    assert len(found) == 6
    assert not set(known) & set(found)
    every = run(*draw, "--problems", "9999", "--dataset", tmp_path / "known.json")
    assert every.code == 1
    assert "that are not known" in every.err
    assert len(read_shapeset(file).problems(0)) == 6  # as it was


def test_the_store_has_none_of_the_problems(run, tmp_path, dataset):
    store, file = tmp_path / "a.db", tmp_path / "unseen.json"
    run("data", "import", dataset, "--store", store)
    ran = run("draw-problems", file, "--store", store, "--num-shapes", "20")
    assert (ran.code, json.loads(ran.out)["known"]) == (0, 12)
    assert len(read_shapeset(file).problems(0)) == 20


def test_a_validation_has_only_problems_that_training_holds_out(run, tmp_path, monkeypatch):
    planned: list[Plan] = []
    monkeypatch.setattr(Plan, "summary", lambda plan, _: planned.append(plan) or {})
    monkeypatch.setattr(collect, "_table", str)
    out = tmp_path / "v.msgpack"
    draw = ("create-validation", "--output", out, "--plan")
    assert run(*draw, "--num-shapes", "20", "--log-normal").code == 0
    problems = [Problem.make("mm", m, 64, 512, "bfloat16") for m in range(1, 100)]
    write_shapeset(problems, tmp_path / "s.json", "a test")
    ran = run(*draw, "--shapeset", tmp_path / "s.json")
    drawn, of_file = ([entry.problem for entry in plan.entries] for plan in planned)
    assert len(drawn) == 20
    assert all(map(held_out_by, [*drawn, *of_file]))
    assert of_file == [problem for problem in problems if held_out_by(problem)]
    assert f"{len(of_file)} problems in the files are held out" in ran.err
    assert not out.exists()
    assert run("create-validation", "--plan").code == 2


def test_a_shapeset_by_torch_diodes_options(run, tmp_path):
    problems = [
        Problem.make(op, m, 64, 512, "bfloat16", B=2 if op == "bmm" else 1)
        for op in ("mm", "addmm", "bmm")
        for m in (8, 16)
    ]
    file = tmp_path / "shapes.json"
    write_shapeset(problems, file, "a test")
    asked = ("collect-shapeset", "--shapeset", file, "--plan", "--search-mode", "max-autotune")
    plan = json.loads(run(*asked, "--operations", "mm", "bmm", "--budget", "5").out)
    assert {op: count["problems"] for op, count in plan["by_op"].items()} == {"mm": 2, "bmm": 2}
    assert run("collect-shapeset", "--plan").code == 2


@pytest.mark.parametrize(
    ("limits", "left"),
    [((), 3), (("--min-size", "64"), 1), (("--max-size", "64"), 0), (("--max-size", "600"), 2)],
)
def test_only_of_these_sizes(run, tmp_path, limits, left):
    problems = [
        Problem.make("mm", m, 64, k, "bfloat16") for m, k in ((8, 512), (16, 99), (64, 999))
    ]
    file = tmp_path / "shapes.json"
    write_shapeset(problems, file, "a test")
    ran = run("collect", "--file", file, "--plan", *limits)
    assert ran.code == (0 if left else 3)
    if left:
        assert json.loads(ran.out)["problems"] == left


def test_sources_by_their_old_names(run):
    for flag, source in (("--log-normal", "log-normal"), ("--power-of-two", "powers")):
        one, other = (
            json.loads(run("collect", "--num-shapes", "4", *words, "--plan").out)
            for words in ((flag,), ("--source", source))
        )
        assert one == other
    wrong = run("collect", "--output", "timings.csv", "--plan")
    assert (wrong.code, wrong.out) == (2, "")
    assert run("collect", "--min-size", "9", "--max-size", "8", "--plan").code == 1
