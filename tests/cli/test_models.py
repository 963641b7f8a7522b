"""diode-engine models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diode_engine import registry

pytestmark = pytest.mark.usefixtures("nothing_shipped")

Run = Callable[..., Any]


def test_register_list_and_show(run: Run, model: Path) -> None:
    assert json.loads(run("models", "list", "--json").out) == []
    assert run("models", "register", model).out == "tripled@1\n"
    assert run("models", "register", model, "--name", "mine", "--default").out == "mine@1\n"
    assert run("models", "register", model, "--name", "mine").out == "mine@2\n"
    listed = json.loads(run("models", "list", "--json").out)
    assert [(m["model"], m["default"]) for m in listed] == [
        ("mine@1", True),
        ("mine@2", False),
        ("tripled@1", False),
    ]
    assert listed[0]["timings"] == 48
    text = run("models", "list").out
    for expected in ("mine@1 (default)", "NVIDIA H200", "network", "0.875", "yours"):
        assert expected in text
    shown = run("models", "show", "mine@2").out
    for expected in ("48 timings of 12 problems", "Made by hand.", "2.13.0", "sha256", "a run"):
        assert expected in shown
    details = json.loads(run("models", "show", "tripled", "--json").out)
    assert details["hardware"]["name"] == "NVIDIA H200"
    assert details["identity"] == registry.resolve("tripled").manifest.identity


def test_list_goes_on_after_a_broken_model(run: Run, model: Path) -> None:
    run("models", "register", model)
    run("models", "register", model, "--name", "broken")
    (registry.resolve("broken").folder / "manifest.json").write_text("{")
    ran = run("models", "list")
    assert ran.code == 0
    assert "tripled@1" in ran.out
    assert "cannot be used" in ran.err
    listed = json.loads(run("models", "list", "--json").out)
    assert [m["error"] is None for m in listed] == [False, True]


def test_mistakes_are_sentences(run: Run, model: Path, tmp_path: Path) -> None:
    run("models", "register", model)
    for arguments, code, said in (
        (("show", "nothing"), 3, "registered are: tripled@1"),
        (("register", tmp_path / "nowhere"), 1, "manifest.json"),
        (("register", model, "--name", "Not A Name"), 1, "cannot name a model"),
    ):
        ran = run("models", *arguments)
        assert ran.code == code
        assert ran.out == ""
        assert said in ran.err
        assert "Traceback" not in ran.err
    weights = next(model.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    assert run("models", "register", model).code == 1
    assert len(registry.list_models()) == 1
