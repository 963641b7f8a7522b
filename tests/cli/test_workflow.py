"""diode-engine workflow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diode_engine.store import write_dataset
from diode_engine.table import TimingTable

Run = Callable[..., Any]

STEPS = """
store = "work.db"

[[step]]
run = "data import timings.json"
inputs = ["timings.json"]

[[step]]
name = "count"
run = "data stats --json"
output = "stats.json"

[[step]]
run = "db check --json"
"""


@pytest.fixture
def file(tmp_path: Path, dataset: Path) -> Path:  # which is tmp_path/timings.json
    path = tmp_path / "flow.toml"
    path.write_text(STEPS)
    return path


def states(ran: Any) -> list[str]:
    return [json.loads(line)["state"] for line in ran.out.splitlines()]


def test_steps_whose_inputs_did_not_change_are_skipped(
    run: Run, file: Path, tmp_path: Path, make_timings: Callable[..., TimingTable]
) -> None:
    assert states(run("workflow", file, "--plan")) == ["runs"] * 3
    first = run("workflow", file)
    assert (first.code, states(first)) == (0, ["done"] * 3)
    assert json.loads(first.out.splitlines()[0])["result"]["timings"] == 48
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["problems"] == 12
    assert states(run("workflow", file)) == ["skipped"] * 3

    (tmp_path / "stats.json").write_text("{}")  # not as the step left it
    assert states(run("workflow", file, "--plan")) == ["skipped", "runs", "runs"]
    assert states(run("workflow", file)) == ["skipped", "done", "done"]
    file.write_text(STEPS.replace("db check --json", "db check"))
    assert states(run("workflow", file)) == ["skipped", "skipped", "done"]

    write_dataset(make_timings(14), tmp_path / "timings.json")
    assert states(run("workflow", file)) == ["done"] * 3
    assert json.loads((tmp_path / "stats.json").read_text())["problems"] == 14
    write_dataset(make_timings(16), tmp_path / "more.json")
    run("data", "import", tmp_path / "more.json", "--store", tmp_path / "work.db")
    assert states(run("workflow", file)) == ["done"] * 3
    assert states(run("workflow", file, "--again")) == ["done"] * 3


def test_it_ends_at_the_first_failure_and_goes_on_from_there(
    run: Run, file: Path, tmp_path: Path
) -> None:
    file.write_text(STEPS.replace("data stats --json", "data show 999"))
    failed = run("workflow", file)
    assert failed.code == 1
    assert states(failed) == ["done", "failed"]
    assert json.loads(failed.out.splitlines()[1])["code"] == 3
    assert not (tmp_path / "stats.json").exists()
    file.write_text(STEPS)
    assert states(run("workflow", file)) == ["skipped", "done", "done"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step = 3", "has no [[step]]"),
        ("[[step]]\nrun = 3", "needs a text, run"),
        ('[[step]]\nrun = "rm -rf x"', "'rm' is no command to run here"),
        ('[[step]]\nrun = "workflow x"', "no command to run here"),
        ('[[step]]\nrun = "db check"\nneeds = []', "has 'needs'"),
        ('[[step]]\nrun = "db check"\n[[step]]\nrun = "db check"', "several steps 'db'"),
        ('[[step]]\nrun = "db check"\ninputs = ["none"]', "an input of the step db"),
        ("[[step", "cannot be read"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(run: Run, file: Path, text: str, said: str) -> None:
    file.write_text(text)
    ran = run("workflow", file)
    assert (ran.code, ran.out) == (2, "")
    assert said in " ".join(ran.err.split())
