"""The command collect, as far as it goes without a GPU."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from diode_engine.cli import collect
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.progress import GpuProgress, Progress
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.problems.sources import write_shapeset


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "s.json"
    write_shapeset([Problem.make("mm", 64, 64, 64, "float16")], path, "test")
    return path


def planned(ran):
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_a_plan_is_shown_and_nothing_is_made(run, shapes, tmp_path):
    store = tmp_path / "store.db"
    asked = ("collect", "--store", store, "--plan")
    ran = run(*asked, "--file", shapes, "--source", "skinny", "--problems", "7", "--budget", "30",
              "--whole", "1")  # fmt: skip
    plan = planned(ran)
    assert plan["problems"] == 8
    assert plan["by_selection"]["up to 30 candidates"]["problems"] == 7
    assert 100 < plan["by_selection"]["up to 30 candidates"]["candidates"] <= 210
    assert "total" in ran.err
    assert "kernels to compile" in ran.err
    plan = planned(run(*asked, "--problems=9", "--ops=mm,bmm", "--dtypes=bf16",
                       "--search-space=default"))  # fmt: skip
    assert set(plan["by_op"]) <= {"mm", "bmm"}
    assert list(plan["by_type"]) == ["bfloat16"]
    assert plan["by_selection"]["all DEFAULT candidates"]["candidates"] <= 9 * 50
    assert planned(run(*asked, "--file", shapes))["problems"] == 1  # a file alone
    assert not store.exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--source dreams", 1, "no source 'dreams'"),
        ("--file EMPTY", 3, "There are no problems"),
        ("--file BROKEN", 1, "not valid JSON"),
        ("--file missing.json", 2, "does not exist"),
        ("--candidates BROKEN", 1, "not valid JSON"),
        ("--candidates BROKEN --search-space=DEFAULT", 2, "leave out --search-space"),
        ("--dtypes bf16,fp7", 1, "no type 'fp7'"),
        ("--compiles 3", 2, "--compiles goes with --direct and --budget"),
        ("--ray auto --gpu 1", 2, "with --ray use --accelerator"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(run, tmp_path, words, code, says):
    write_shapeset([], tmp_path / "EMPTY.json", "test")
    (tmp_path / "BROKEN.json").write_text("{")
    given = [tmp_path / f"{word}.json" if word.isupper() else word for word in words.split()]
    ran = run("collect", "--plan", *given)
    assert ran.code == code
    assert says in " ".join(ran.err.split())


@pytest.mark.parametrize("plan", [[], ["--plan"]])
@pytest.mark.parametrize(("count", "says"), [(0, "no GPU here"), (2, "no GPU 3 here.*GPUs 0 to 1")])
def test_a_gpu_that_is_not_there_is_named_before_anything_is_planned(
    run, plan, count, says, tmp_path, monkeypatch
):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    ran = run("collect", "--store", tmp_path / "s.db", "--gpu", "3", *plan)
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


def test_a_directory_does_not_say_which_cluster(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("diode.toml").write_text('[collect]\nray = "evil.example:6379"\n')
    ran = run("collect", "--plan", "--problems", "2")
    assert ran.code == 0
    assert "ray of [collect] in diode.toml is ignored" in " ".join(ran.err.split())
