"""The command collect, as far as it goes without a GPU."""

from __future__ import annotations

import io
import re
import sys
from itertools import product

import pytest

from diode_engine.cli import collect
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.planning.plan import Plan
from diode_engine.collect.progress import GpuProgress, Progress
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.problems.sources import read_shapeset
from diode_engine.problems.splits import held_out_by


def test_a_plan_is_shown_and_nothing_is_made(run, shapeset, tmp_path):
    shapes = shapeset(Problem.make("mm", 64, 64, 64, "float16"))
    store = tmp_path / "store.db"
    asked = ("collect", "--store", store, "--plan")
    ran = run(*asked, "--file", shapes, "--source", "skinny", "--problems", "7", "--budget", "30",
              "--whole", "1")  # fmt: skip
    plan = ran.json()
    assert plan["problems"] == 8
    assert plan["by_selection"]["up to 30 candidates"]["problems"] == 7
    assert 100 < plan["by_selection"]["up to 30 candidates"]["candidates"] <= 210
    assert "total" in ran.err
    assert "kernels to compile" in ran.err
    plan = run(*asked, "--problems=9", "--ops=mm,bmm", "--dtypes=bf16",
               "--search-space=default").json()  # fmt: skip
    assert set(plan["by_op"]) <= {"mm", "bmm"}
    assert list(plan["by_type"]) == ["bfloat16"]
    assert plan["by_selection"]["all DEFAULT candidates"]["candidates"] <= 9 * 50
    assert run(*asked, "--file", shapes).json()["problems"] == 1  # a file alone
    assert not store.exists()


def test_a_plan_times_again_what_a_dataset_has(run, dataset):
    asked = ("collect", "--plan", "--candidates", dataset)
    counted = run(*asked).json()["by_selection"]
    assert counted == {"named candidates": {"problems": 12, "candidates": 48}}
    assert run(*asked, "--budget=3").json()["candidates"] == 36
    run(*asked, "--ops=int_mm").says(3, "has no such problems")
    for option in ("--source=skinny", "--whole=1"):
        run(*asked, option).says(2, "leave out --file, --source and --whole")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--source dreams", 1, "no source 'dreams'"),
        ("--file EMPTY", 3, "have no such problems"),
        ("--file BROKEN", 1, "not valid JSON"),
        ("--file missing.json", 2, "does not exist"),
        ("--candidates BROKEN", 1, "not valid JSON"),
        ("--candidates BROKEN --search-space=DEFAULT", 2, "leave out --search-space"),
        ("--dtypes bf16,fp7", 1, "no type 'fp7'"),
        ("--compiles 3", 2, "--compiles goes with --direct and --budget"),
        ("--ray auto --gpu 1", 2, "with --ray use --accelerator"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(run, shapeset, tmp_path, words, code, says):
    shapeset(name="EMPTY.json")
    (tmp_path / "BROKEN.json").write_text("{")
    given = [tmp_path / f"{word}.json" if word.isupper() else word for word in words.split()]
    run("collect", "--plan", *given).says(code, says)


@pytest.mark.parametrize("words", ["collect", "collect --plan", "tune"])
@pytest.mark.parametrize(("count", "says"), [(0, "no GPU here"), (2, "no GPU 3 here.*GPUs 0 to 1")])
def test_a_gpu_that_is_not_there_is_named_before_anything_is_planned(
    run, words, count, says, tmp_path, monkeypatch
):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    ran = run(*words.split(), "--store", tmp_path / "s.db", "--gpu", "3")
    assert (ran.code, ran.out) == (1, "")
    assert re.search(says, ran.err)
    assert "kernels to compile" not in ran.err
    assert not (tmp_path / "s.db").exists()


def shown(progress, problems):
    """The lines of the display: what each says, and how much of it is done."""
    from rich.console import Console
    from rich.progress import Progress as Display

    display = Display(console=Console(file=io.StringIO(), width=100), disable=True)
    report = collect._reporter(display, problems)
    for _ in range(2):  # lines are changed, not added
        report(progress)
    return [(task.description, task.completed) for task in display.tasks]


def test_progress_is_shown_by_gpu_and_reason():
    progress = Progress(10, 1000)
    progress.gpus = {0: GpuProgress(state=GpuState(1980, 41, 300, ("sw_power_cap",)))}
    for failure in (None, Failure.TIMEOUT, Failure.TIMEOUT):
        progress.add_timing(failure, progress.gpus[0])
    progress.problems_done = progress.problems_refused = 1
    whole, *lines = shown(progress, 10)
    assert whole[0].startswith("3 timings")
    assert whole[1] == 2
    assert lines == [("GPU 0 1980 MHz 41 °C sw_power_cap", 3), ("failed: 2 timeout", 2)]


def test_a_cluster_s_progress_is_shown_by_machine():
    progress = Progress(2, 100)
    for number, node in enumerate(["anna", "anna", "bert"]):
        progress.gpus[number] = GpuProgress(node=node, timings=7)
    assert shown(progress, 2)[1:] == [("anna: 2 GPU(s)", 14), ("bert: 1 GPU(s)", 7)]


@pytest.mark.parametrize("command", ["collect", "tune"])
def test_a_cluster_needs_ray_and_says_which_extra_brings_it(run, tmp_path, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = run(command, "--store", tmp_path / "s.db", "--ray", "auto")
    ran.says(1, "pip install 'diode-engine[ray]'")
    assert not (tmp_path / "s.db").exists()
    for arguments in (("--ray", "auto", "--gpu", "1"), ("--accelerator", "H200")):
        assert run(command, *arguments).code == 2


# draw-problems and collect-shapeset, and the sizes that collect takes


GRID = "grid:m=8/16/32/64,n=64/128,k=512"


def test_none_of_the_problems_is_known(run, shapeset, tmp_path):
    known = [
        Problem.make("mm", m, n, 512, "bfloat16", a_layout=a, b_layout=b)
        for m, n, a, b in product((8, 16, 32), (64, 128), ("row", "col"), ("row", "col"))
    ]
    file = tmp_path / "unseen.json"
    draw = ("draw-problems", file, "--source", GRID, "--ops", "mm", "--dtypes", "bf16",
            "--dataset", shapeset(*known))  # fmt: skip
    ran = run(*draw, "--problems", "6")
    assert ran.json()["known"] == len(known) == 24
    found = read_shapeset(file).problems(0)
    assert {(p.M, p.N, p.K) for p in found} == {(64, 64, 512), (64, 128, 512)}
    assert len(found) == 6
    assert not set(known) & set(found)
    run(*draw, "--problems", "9999").says(1, "that are not known")
    assert len(read_shapeset(file).problems(0)) == 6  # as it was


def test_the_store_has_none_of_the_problems(run, tmp_path, store):
    file = tmp_path / "unseen.json"
    ran = run("draw-problems", file, "--store", store, "--num-shapes", "20")
    assert ran.json()["known"] == 12
    assert len(read_shapeset(file).problems(0)) == 20


def test_a_validation_has_only_problems_that_training_holds_out(
    run, shapeset, tmp_path, monkeypatch
):
    planned: list[Plan] = []
    monkeypatch.setattr(Plan, "summary", lambda plan, _: planned.append(plan) or {})
    monkeypatch.setattr(collect, "_table", str)
    out = tmp_path / "v.msgpack"
    draw = ("create-validation", "--output", out, "--plan")
    assert run(*draw, "--num-shapes", "20", "--log-normal").code == 0
    problems = [Problem.make("mm", m, 64, 512, "bfloat16") for m in range(1, 100)]
    ran = run(*draw, "--shapeset", shapeset(*problems))
    drawn, of_file = ([entry.problem for entry in plan.entries] for plan in planned)
    assert len(drawn) == 20
    assert all(map(held_out_by, [*drawn, *of_file]))
    assert of_file == [problem for problem in problems if held_out_by(problem)]
    assert f"{len(of_file)} problems in the files are held out" in ran.err
    assert not out.exists()
    assert run("create-validation", "--plan").code == 2


def test_a_shapeset_by_torch_diodes_options(run, shapeset):
    problems = [
        Problem.make(op, m, 64, 512, "bfloat16", B=2 if op == "bmm" else 1)
        for op in ("mm", "addmm", "bmm")
        for m in (8, 16)
    ]
    plan = run("collect-shapeset", "--shapeset", shapeset(*problems), "--plan", "--search-mode",
               "max-autotune", "--operations", "mm", "bmm", "--budget", "5").json()  # fmt: skip
    assert {op: count["problems"] for op, count in plan["by_op"].items()} == {"mm": 2, "bmm": 2}
    assert run("collect-shapeset", "--plan").code == 2


@pytest.mark.parametrize(
    ("limits", "left"),
    [((), 3), (("--min-size", "64"), 1), (("--max-size", "64"), 0), (("--max-size", "600"), 2)],
)
def test_only_of_these_sizes(run, shapeset, limits, left):
    problems = [
        Problem.make("mm", m, 64, k, "bfloat16") for m, k in ((8, 512), (16, 99), (64, 999))
    ]
    ran = run("collect", "--file", shapeset(*problems), "--plan", *limits)
    assert ran.code == (0 if left else 3)
    if left:
        assert ran.json()["problems"] == left


def test_sources_by_their_old_names(run):
    for flag, source in (("--log-normal", "log-normal"), ("--power-of-two", "powers")):
        asked = ("collect", "--num-shapes", "4", "--plan")
        assert run(*asked, flag).json() == run(*asked, "--source", source).json()
    wrong = run("collect", "--output", "timings.csv", "--plan")
    assert (wrong.code, wrong.out) == (2, "")
    assert run("collect", "--min-size", "9", "--max-size", "8", "--plan").code == 1
