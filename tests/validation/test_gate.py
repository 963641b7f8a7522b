"""The gate before the default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diode_engine import features, paths, registry
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.artifact import save_artifact
from diode_engine.models.confidence import INPUTS, MAX_K, Confidence
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.neighbours import COORDINATES
from diode_engine.models.network import Network
from diode_engine.problems.splits import held_out
from diode_engine.registry import ModelStatus, ModelVersion, choice
from diode_engine.validation import gate

CANDIDATES = (
    Candidate.make("aten::mm"),
    *(
        Candidate.make(
            "triton::mm", BLOCK_M=m, BLOCK_N=m, BLOCK_K=32, num_stages=3, num_warps=4, GROUP_M=8
        )
        for m in (16, 64, 128)
    ),
)
SLUG = H200.slug


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shipped, and torch 2.13 with Triton 3.7 is installed."""
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")
    monkeypatch.setattr(choice, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr(choice, "triton_version", lambda: "3.7.1")


def timings(problems: int = 240, **environment: Any) -> TimingTable:
    """ATen takes twice as long as the largest tile, the smallest four times."""
    asked = tuple(
        Problem.make("mm", 64 + 8 * i, 256 + 64 * (i % 7), 512, "bfloat16") for i in range(problems)
    )
    k, n = len(CANDIDATES), problems * len(CANDIDATES)
    unknown = np.full(n, np.nan)
    there = Environment(**{"hardware": H200, "driver": "", "torch": "2.13.0", "triton": "3.7.1",
                           **environment})  # fmt: skip
    return TimingTable(
        asked, CANDIDATES, (there,), np.repeat(np.arange(problems, dtype=np.int32), k),
        np.tile(np.arange(k, dtype=np.int32), problems), np.zeros(n, np.int32),
        np.tile([20.0, 40.0, 15.0, 10.0], problems), unknown, unknown, np.zeros(n, np.int32),
        np.zeros(n, np.uint8),
    )  # fmt: skip


BEST = {"log2_block_m": -1.0, "aten": 99.0}  # takes the largest tile
ATEN = {"aten": -1.0}
WORST = {"log2_block_m": 1.0, "aten": 99.0}


@pytest.fixture
def register(tmp_path: Path) -> Callable[..., ModelVersion]:
    """Registers a model that likes candidates by these weights of their features."""

    def _register(
        likes: dict[str, float], confidence: Confidence | None = None, **changes: Any
    ) -> ModelVersion:
        width = len(features.NAMES)
        weight = np.zeros((width, 1), np.float32)
        for name, value in likes.items():
            weight[features.NAMES.index(name)] = value
        network = Network(
            np.full(width, -1e30, np.float32), np.full(width, 1e30, np.float32),
            np.zeros(width, np.float32), np.ones(width, np.float32),
            ((weight, np.zeros(1, np.float32)),), residual=False,
        )  # fmt: skip
        given = {
            "name": "mine", "family": "", "hardware": H200, "coverage": Coverage.of(timings(2)),
            "data": Data(("d" * 32,), (), 12, 48), "torch": ("2.13.0",), "triton": ("3.7.1",),
            "everything": False, **changes,
        }  # fmt: skip
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        save_artifact(folder, Manifest(**given), (network,), confidence)
        return registry.register(folder)

    return _register


Register = Callable[..., ModelVersion]


def found(verdict: gate.GateVerdict) -> dict[str, bool]:
    return {check.name: check.passed for check in verdict.checks}


ALL_PASSED = {"loads": True, "software": True, "problems": True, "efficiency": True}


def test_a_better_model_takes_the_place_of_the_default(register: Register) -> None:
    table = timings()
    aten = register(ATEN)
    verdict = gate.promote(aten, table)  # as good as ATen, which there is without a model
    assert (verdict.against, found(verdict)) == ("ATen", ALL_PASSED)
    assert registry.default_for(SLUG) == aten
    best = register(BEST)
    verdict = gate.promote(best, table, reason="a test")
    assert (verdict.against, found(verdict)) == ("mine@1", ALL_PASSED)
    assert "Its efficiency is 1.000" in verdict.checks[-1].found
    assert "that of mine@1 0.500" in verdict.checks[-1].found
    assert registry.default_for(SLUG) == best
    assert registry.status_of(best) is ModelStatus.VALIDATED
    assert registry.facts_of(best).gate == verdict.to_dict()
    last = registry.history(SLUG)[-1]
    assert (str(last.event), last.before, last.reason, last.forced) == (
        "promote", "mine@1", "a test", False,
    )  # fmt: skip
    with pytest.raises(RegistryError, match="already"):
        gate.promote(best, table)


def test_a_worse_model_is_refused(register: Register) -> None:
    table = timings()
    best, worst = register(BEST), register(WORST)
    assert not gate.promote(worst, table).passed  # than ATen
    registry.set_default(best)
    verdict = gate.promote(register(ATEN), table)
    assert found(verdict) == {**ALL_PASSED, "efficiency": False}
    assert registry.default_for(SLUG) == best
    verdict = gate.promote(worst, table)
    assert verdict.reasons == (
        "Its efficiency is 0.250 (10th percentile 0.250), that of mine@1 1.000 (10th percentile "
        "1.000).",
    )
    assert registry.default_for(SLUG) == best
    assert registry.status_of(worst) is ModelStatus.REJECTED
    forced = gate.promote(worst, table, force=True, reason="to see")
    assert not forced.passed
    assert registry.default_for(SLUG) == worst
    assert registry.history(SLUG)[-1].forced


def test_only_held_out_problems_of_its_hardware_and_software_count(register: Register) -> None:
    model = register(BEST)
    table = timings()
    rows = gate.gate_problems(table, model.manifest)
    there = {rows.problems[i] for i in rows.problem.tolist()}
    assert there == {problem for problem in table.problems if held_out(problem)}
    for environment, problems in (
        ({"triton": "3.6.0"}, len(there)),  # better than nothing
        ({"hardware": replace(H200, name="NVIDIA A100")}, 0),
    ):
        rows = gate.gate_problems(timings(**environment), model.manifest)
        assert len(set(rows.problem.tolist())) == problems
    verdict = gate.judge(model, timings(30), None)
    assert found(verdict) == {"loads": True, "software": True, "problems": False}
    gate.promote(model, timings(30))
    assert registry.status_of(model) is ModelStatus.DRAFT  # it was not judged


def test_a_model_of_other_software_is_refused(register: Register) -> None:
    model = register(BEST, triton=("3.6.0",))
    verdict = gate.promote(model, timings())
    assert found(verdict) == {**ALL_PASSED, "software": False}
    assert "Triton 3.6.0, here 3.7.1" in verdict.reasons[0]


def test_a_model_that_saw_the_problems_is_taken_at_its_word(register: Register) -> None:
    """What it reaches on them would say nothing."""
    metrics = {"efficiency": 0.4, "efficiency_p10": 0.3}
    told = register(BEST, everything=True, metrics=metrics)
    table = timings()
    assert not gate.promote(told, table).passed
    assert not gate.promote(register(BEST, everything=True), table).passed
    registry.set_default(told)
    verdict = gate.promote(register(ATEN), table)
    assert verdict.passed
    assert "0.400 (10th percentile 0.300, by its manifest)" in verdict.checks[-1].found


def test_a_model_that_is_surer_than_it_may_be_is_refused(register: Register) -> None:
    sure = Confidence(
        np.zeros((MAX_K, len(INPUTS)), np.float32), np.full(MAX_K, 5, np.float32),
        np.zeros((COORDINATES, 1), np.float32),
    )  # fmt: skip
    verdict = gate.judge(register(BEST, sure), timings(), None)
    assert found(verdict) == {**ALL_PASSED, "calibration": True}
    verdict = gate.judge(register(ATEN, sure), timings(), None)  # and never within 5 %
    assert found(verdict) == {**ALL_PASSED, "calibration": False}
    assert "calibration error of its confidence is 0.993" in verdict.reasons[0]


def test_what_cannot_be_loaded_is_no_default(register: Register) -> None:
    damaged, aten = register(BEST), register(ATEN)
    registry.set_default(damaged)
    weights = next(damaged.folder.glob("*.safetensors"))
    weights.write_bytes(b"x")
    verdict = gate.promote(aten, timings())
    assert (verdict.against, verdict.passed) == ("ATen", True)
    with pytest.raises(ModelError):
        gate.promote(damaged, timings(), force=True)
    assert registry.default_for(SLUG) == aten
