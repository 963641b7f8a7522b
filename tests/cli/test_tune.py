"""The command tune; tests/tuning has what it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from diode_engine.cli import tune as command
from diode_engine.collect import local
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.tuning import run as tuning
from diode_engine.tuning.rounds import NONE


def test_what_is_asked_is_passed_on_and_the_page_is_written(run, shapeset, tmp_path, monkeypatch):
    asked: dict[str, Any] = {}
    problem = Problem.make("mm", 64, 64, 64, "float16")

    def tuned(store, request, gpu, torch, **more):
        asked.update(request=request, gpu=gpu, torch=torch, **more)
        document = {"page": "# a page\n", "promoted": True}
        return SimpleNamespace(run=7, document=document)

    monkeypatch.setattr(tuning, "tune", tuned)
    monkeypatch.setattr(local, "devices", lambda: (0, 1))
    monkeypatch.setattr(command, "detect", lambda index: H200)
    monkeypatch.setattr(command, "environment", lambda: Environment(H200, "", "2.11.0", "3.6.0"))
    store = tmp_path / "s.db"
    shapes = shapeset(problem)
    ran = run("tune", "--store", store, "--minutes", "3", "--from", "none", "--shapes", shapes,
              "--name", "mine", "--", "python", "train.py")  # fmt: skip
    assert (ran.code, ran.out) == (0, "# a page\n")
    assert "tune-7.md" in ran.err
    assert next((tmp_path).rglob("tune-7.md")).read_text() == "# a page\n"
    request = asked["request"]
    assert (request.minutes, request.base, request.name) == (3.0, NONE, "mine")
    assert request.own == (problem,)
    assert request.gpus == (0,)
    assert request.spec()["command"] == "python train.py"
    assert (asked["gpu"], asked["torch"]) == (H200, "2.11.0")
    assert asked["capture"] is not None
    executor = asked["executor"]()
    assert executor.spec["direct"] is True
    page = tmp_path / "page.md"
    ran = run("tune", "--store", store, "--json", "-o", page)
    assert ran.json()["promoted"] is True
    assert page.read_text() == "# a page\n"
    assert asked["capture"] is None
