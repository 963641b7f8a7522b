"""The command collect, as far as it goes without a GPU."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from diode_engine.cli import collect, drawing, main
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.progress import GpuProgress, Progress
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.problems import sources
from diode_engine.problems.sources import write_shapeset


def test_the_help_names_every_source() -> None:
    assert tuple(sources.SOURCES) == drawing.SOURCES


def test_a_plan_is_shown_and_nothing_is_made(tmp_path: Path, capsys) -> None:
    shapes = tmp_path / "s.json"
    write_shapeset([Problem.make("mm", 64, 64, 64, "float16")], shapes, "test")
    store = tmp_path / "store.db"
    arguments = ["collect", "--store", str(store), "--plan", "--file", str(shapes), "--source",
                 "skinny", "--problems", "7", "--budget", "30", "--whole", "1"]  # fmt: skip
    assert main(arguments) == 0
    shown = capsys.readouterr()
    plan = json.loads(shown.out)
    assert plan["problems"] == 8
    assert plan["by_selection"]["up to 30 candidates"]["problems"] == 7
    assert 100 < plan["by_selection"]["up to 30 candidates"]["candidates"] <= 210
    assert "total" in shown.err
    assert "kernels to compile" in shown.err
    assert not store.exists()


def test_what_is_wanted_is_planned(tmp_path: Path, capsys) -> None:
    arguments = ["-q", "collect", "--plan", f"--store={tmp_path / 's.db'}", "--problems=9",
                 "--ops=mm,bmm", "--dtypes=bf16", "--search-space=default"]  # fmt: skip
    assert main(arguments) == 0
    plan = json.loads(capsys.readouterr().out)
    assert set(plan["by_op"]) <= {"mm", "bmm"}
    assert list(plan["by_type"]) == ["bfloat16"]
    assert plan["by_selection"]["all DEFAULT candidates"]["candidates"] <= 9 * 50


def test_a_file_alone_is_timed_alone(tmp_path: Path, capsys) -> None:
    shapes = tmp_path / "s.json"
    write_shapeset([Problem.make("mm", 64, 64, 64, "float16")], shapes, "test")
    assert main(["-q", "collect", "--plan", "--file", str(shapes)]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--source", "dreams"], 1, "no source 'dreams'"),
        (["--file", "EMPTY"], 3, "There are no problems"),
        (["--file", "BROKEN"], 1, "not valid JSON"),
        (["--file", "missing.json"], 2, "does not exist"),
        (["--candidates", "BROKEN"], 1, "not valid JSON"),
        (["--candidates", "BROKEN", "--search-space=DEFAULT"], 2, "leave out --search-space"),
        (["--dtypes", "bf16,fp7"], 1, "no type 'fp7'"),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(
    tmp_path: Path, capsys, arguments: list[str], code: int, says: str
) -> None:
    write_shapeset([], tmp_path / "EMPTY.json", "test")
    (tmp_path / "BROKEN.json").write_text("{")
    given = [str(tmp_path / f"{a}.json") if a.isupper() else a for a in arguments]
    assert main(["collect", "--plan", *given]) == code
    assert says in " ".join(capsys.readouterr().err.split())


def test_without_a_gpu_collecting_says_so(capsys) -> None:
    assert main(["collect", "--problems", "3"]) == 1
    assert "There is no GPU here" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("plan", [[], ["--plan"]])
@pytest.mark.parametrize(("count", "says"), [(0, "no GPU here"), (2, "no GPU 3 here.*GPUs 0 to 1")])
def test_a_gpu_that_is_not_there_is_named_before_anything_is_planned(
    plan: list[str], count: int, says: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert main(["collect", "--store", str(tmp_path / "s.db"), "--gpu", "3", *plan]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(says, shown.err)
    assert "kernels to compile" not in shown.err
    assert not (tmp_path / "s.db").exists()


def test_progress_is_shown_by_gpu_and_reason() -> None:
    from rich.console import Console
    from rich.progress import Progress as Display

    display = Display(console=Console(file=io.StringIO(), width=100), disable=True)
    progress = Progress(10, 1000)
    progress.gpus = {0: GpuProgress(state=GpuState(1980, 41, 300, ("sw_power_cap",)))}
    for failure in (None, Failure.TIMEOUT, Failure.TIMEOUT):
        progress.timed(failure, progress.gpus[0])
    progress.problems_done = progress.problems_refused = 1
    report = collect._reporter(display, 10)
    for _ in range(2):  # lines are changed, not added
        report(progress)
    shown = [(task.description, task.completed) for task in display.tasks]
    assert shown[0][0].startswith("3 timings")
    assert shown[0][1] == 2
    assert shown[1:] == [
        ("GPU 0 1980 MHz 41 °C sw_power_cap", 3), ("failed: 2 timeout", 2)
    ]  # fmt: skip


def test_a_cluster_needs_ray_and_says_which_extra_brings_it(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    store = tmp_path / "s.db"
    arguments = ["collect", "--store", str(store), "--problems", "2", "--ray", "auto"]
    assert main(arguments) == 1
    assert "pip install 'diode-engine[ray]'" in capsys.readouterr().err.replace("\n", " ")
    assert not store.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ray", "auto", "--gpu", "1"], "with --ray use --accelerator"),
        (["--accelerator", "H200"], "--accelerator goes with --ray"),
    ],
)
def test_options_of_here_and_of_a_cluster(arguments: list[str], says: str, capsys) -> None:
    assert main(["collect", *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_directory_does_not_say_which_cluster(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("diode.toml").write_text('[collect]\nray = "evil.example:6379"\n')
    assert main(["collect", "--plan", "--problems", "2"]) == 0
    assert "ray of [collect] in diode.toml is ignored" in " ".join(capsys.readouterr().err.split())


def test_a_cluster_s_progress_is_shown_by_machine() -> None:
    from rich.console import Console
    from rich.progress import Progress as Display

    display = Display(console=Console(file=io.StringIO(), width=100), disable=True)
    progress = Progress(2, 100)
    for number, node in enumerate(["anna", "anna", "bert"]):
        progress.gpus[number] = GpuProgress(node=node, timings=7)
    collect._reporter(display, 2)(progress)
    shown = [(task.description, task.completed) for task in display.tasks]
    assert shown[1:] == [("anna: 2 GPU(s)", 14), ("bert: 1 GPU(s)", 7)]
