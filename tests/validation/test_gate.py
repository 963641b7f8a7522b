"""The gate before the default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diode_engine import registry
from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import decode
from diode_engine.core.hardware import H200, KNOWN, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.artifact import save_artifact
from diode_engine.models.confidence import INPUTS, MAX_K, Confidence
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, GpuRecord, Manifest
from diode_engine.models.neighbours import COORDINATES
from diode_engine.problems.splits import is_held_out_by_size
from diode_engine.registry import ModelStatus, ModelVersion, choice
from diode_engine.validation import gate
from tests.samples import table_of, tile, weighing

CANDIDATES = (
    Candidate.make("aten::mm"),
    *(tile(m, m, 32) for m in (16, 64, 128)),
)
Times = tuple[float, float, float, float]
SLUG = H200.slug
H100 = KNOWN["NVIDIA H100 80GB HBM3"]
BOTH = (GpuRecord(H200, 12, 48), GpuRecord(H100, 6, 24))


@pytest.fixture(autouse=True)
def here(nothing_shipped, monkeypatch):
    """Nothing is shipped, and torch 2.13 with Triton 3.7 is installed."""
    monkeypatch.setattr(choice, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr(choice, "triton_version", lambda: "3.7.1")


def timings(
    problems: int = 240,
    of: Callable[[int], tuple[str, Times]] = lambda i: ("bfloat16", (20.0, 40.0, 15.0, 10.0)),
    **environment: Any,
) -> TimingTable:
    """ATen takes twice as long as the largest tile, the smallest four times. `of` gives the type of
    problem i, and the microseconds of the CANDIDATES."""
    asked = tuple(
        Problem.make("mm", 64 + 8 * i, 256 + 64 * (i % 7), 512, of(i)[0]) for i in range(problems)
    )
    there = Environment(**{"hardware": H200, "driver": "", "torch": "2.13.0", "triton": "3.7.1",
                           **environment})  # fmt: skip
    return table_of(asked, CANDIDATES, [of(i)[1] for i in range(problems)], there)


BEST = {"log2_block_m": -1.0, "aten": 99.0}  # takes the largest tile
ATEN = {"aten": -1.0}
WORST = {"log2_block_m": 1.0, "aten": 99.0}


@pytest.fixture
def register(tmp_path):
    """Registers a model that likes candidates by these weights of their features."""

    def _register(
        likes: dict[str, float], confidence: Confidence | None = None, **changes: Any
    ) -> ModelVersion:
        given = {
            "name": "mine", "family": "", "hardware": H200,
            "coverage": Coverage.make(
                timings(2, lambda i: (("bfloat16", "float32")[i], (20.0, 40.0, 15.0, 10.0)))
            ),
            "data": Data(("d" * 32,), (), 12, 48), "torch": ("2.13.0",), "triton": ("3.7.1",),
            "everything": False, **changes,
        }  # fmt: skip
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        save_artifact(folder, Manifest(**given), (weighing(likes),), confidence)
        return registry.register(folder)

    return _register


def found(verdict: gate.GateVerdict) -> dict[str, bool]:
    return {check.name: check.passed for check in verdict.checks}


def sentence(verdict: gate.GateVerdict, name: str) -> str:
    return next(check.found for check in verdict.checks if check.name == name)


ALL_PASSED = {
    "loads": True, "software": True, "problems": True, "efficiency": True, "slower": True,
}  # fmt: skip


def test_a_better_model_takes_the_place_of_the_default(register):
    table = timings()
    aten = register(ATEN)
    verdict = gate.promote(aten, table)  # as good as ATen, which there is without a model
    assert (verdict.against, found(verdict)) == ("ATen", ALL_PASSED)
    assert registry.default_for(SLUG) == aten
    best = register(BEST)
    verdict = gate.promote(best, table, reason="a test")
    assert (verdict.against, found(verdict)) == ("mine@1", ALL_PASSED)
    assert "Its efficiency is 1.000" in sentence(verdict, "efficiency")
    assert "that of mine@1 0.500" in sentence(verdict, "efficiency")
    assert registry.default_for(SLUG) == best
    assert registry.status_of(best) is ModelStatus.VALIDATED
    assert registry.facts_of(best).gate == verdict.to_dict()
    last = registry.history(SLUG)[-1]
    assert (str(last.event), last.before, last.reason, last.forced) == (
        "promote", "mine@1", "a test", False,
    )  # fmt: skip
    with pytest.raises(RegistryError, match="already"):
        gate.promote(best, table)


def test_a_worse_model_is_refused(register):
    table = timings()
    best, worst = register(BEST), register(WORST)
    assert not gate.promote(worst, table).passed
    registry.set_default(best)
    verdict = gate.promote(register(ATEN), table)
    assert found(verdict) == {**ALL_PASSED, "efficiency": False}
    assert registry.default_for(SLUG) == best
    verdict = gate.promote(worst, table)
    assert verdict.reasons == (
        "Its efficiency is 0.250 (10th percentile 0.250), that of mine@1 1.000 (10th percentile "
        "1.000).",
        "On 100.0 % of the problems the kernel that it takes is over 5 % slower than the "
        "library's; with mine@1 on 0.0 %.",
    )
    assert registry.default_for(SLUG) == best
    assert registry.status_of(worst) is ModelStatus.REJECTED
    forced = gate.promote(worst, table, force=True, reason="to see")
    assert not forced.passed
    assert registry.default_for(SLUG) == worst
    assert registry.history(SLUG)[-1].forced


def test_only_held_out_problems_of_its_hardware_and_software_count(register):
    model = register(BEST)
    table = timings()
    rows = gate.gate_problems(table, model.manifest)
    there = {rows.problems[i] for i in rows.problem.tolist()}
    assert there == {problem for problem in table.problems if is_held_out_by_size(problem)}
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


def test_other_software_is_a_warning(register):
    """What was measured with the installed software decides; a torch that is newer than the shipped
    timings is no reason to refuse every model that learned from them."""
    model = register(BEST, triton=("3.6.0",))
    verdict = gate.promote(model, timings())
    assert found(verdict) == ALL_PASSED
    assert sentence(verdict, "software").startswith("Warning: it was trained with other versions")
    assert "Triton 3.6.0, here 3.7.1" in sentence(verdict, "software")
    assert registry.default_for(SLUG) == model


def test_a_kind_that_becomes_worse_is_shown_and_refused(register):
    """The candidate is better by far over all problems, and twice as slow in float32."""

    def of(i: int) -> tuple[str, Times]:
        return ("bfloat16", (80.0, 40.0, 20.0, 10.0)) if i % 2 else ("float32", (10, 40, 30, 20))

    table = timings(480, of)
    registry.set_default(register(ATEN))
    best = register(BEST)
    verdict = gate.promote(best, table)
    assert found(verdict)["efficiency"]
    assert found(verdict)["half"]
    assert not found(verdict)["float32"]
    assert sentence(verdict, "float32").startswith("0.500 on ")
    assert " problems; mine@1: 1.000" in sentence(verdict, "float32")
    assert registry.default_for(SLUG) != best
    assert registry.status_of(best) is ModelStatus.REJECTED
    assert gate.promote(best, table, force=True, reason="no float32 here").reasons
    assert registry.default_for(SLUG) == best
    # What is better everywhere has its kinds shown too.
    assert found(gate.judge(register(ATEN), table, None))["float32"]


def test_few_problems_of_a_kind_decide_nothing(register):
    def of(i: int) -> tuple[str, Times]:
        return ("float32", (10, 40, 30, 20)) if i % 8 == 0 else ("bfloat16", (80, 40, 20, 10))

    registry.set_default(register(ATEN))
    verdict = gate.promote(register(BEST), timings(240, of))
    assert "float32" not in found(verdict)  # 6 of them are held out
    assert found(verdict)["efficiency"]


def test_a_kind_may_differ_by_what_chance_makes(register):
    """The differences of the problems are large, and their mean is within two standard errors."""

    def of(i: int) -> tuple[str, Times]:
        if i % 2:
            return "bfloat16", (80.0, 40.0, 20.0, 10.0)
        return "float32", (10, 40, 30, 14.5 if i % 4 else 7.5)

    registry.set_default(register(ATEN))
    verdict = gate.judge(register(BEST), timings(480, of), registry.default_for(SLUG))
    assert found(verdict)["float32"]
    assert sentence(verdict, "float32").startswith("0.8")


def test_more_problems_slower_than_the_library_are_refused(register):
    """Every tenth choice is 1.3 times as slow as the library's kernel; the mean is better."""

    def of(i: int) -> tuple[str, Times]:
        return "bfloat16", (20.0, 40.0, 15.0, 26.0 if i % 10 == 0 else 10.0)

    table = timings(480, of)
    registry.set_default(register(ATEN))
    verdict = gate.promote(register(BEST), table)
    assert found(verdict) == {**found(verdict), **ALL_PASSED, "slower": False}
    assert "with mine@1 on 0.0 %" in sentence(verdict, "slower")
    # Without another model it is shown: the library is never slower than itself.
    assert found(gate.judge(register(BEST), table, None))["slower"]


def test_a_model_of_several_gpus_is_judged_on_each(register):
    """On the H100 the largest tile is the slowest kernel."""
    there = {"hardware": H100}
    on_h200, on_h100 = timings(), timings(of=lambda i: ("bfloat16", (9.0, 8.0, 9.0, 40.0)), **there)
    table = TimingTable.joined([on_h200, on_h100])
    registry.set_default(register(ATEN, gpus=BOTH))
    best = register(BEST, gpus=BOTH)
    refused = gate.promote(best, table, H100.slug)
    assert not found(refused)["efficiency"]
    assert refused.hardware == H100.slug
    assert gate.promote(best, table).passed  # on the hardware of its folder
    assert registry.default_for(SLUG) == best
    assert registry.default_for(H100.slug) != best
    assert registry.status_of(best) is ModelStatus.VALIDATED
    assert registry.status_of(best, H100.slug) is ModelStatus.REJECTED
    assert registry.facts_of(best, H100.slug).gate == refused.to_dict()
    with pytest.raises(RegistryError, match="has no record of nvidia-a100"):
        gate.promote(best, table, "nvidia-a100")


def test_both_gpus_hold_the_same_problems_out(register):
    """What was learned on one GPU tells the times on another."""
    model = register(BEST, gpus=BOTH)
    held = []
    for hardware in (H200, H100):
        rows = gate.gate_problems(timings(hardware=hardware), model.manifest, hardware.slug)
        held.append({rows.problems[i] for i in rows.problem.tolist()})
    assert held[0] == held[1] != set()
    # One that has learned the timings of all problems is not judged on any GPU's.
    everything = register(BEST, gpus=BOTH, everything=True)
    verdict = gate.judge(everything, timings(hardware=H100), None, H100.slug)
    assert not found(verdict)["efficiency"]
    assert "It was trained on the held-out" in sentence(verdict, "efficiency")


def test_figures_of_the_gpus_own_record_count(register):
    metrics = {"efficiency": 0.9, "efficiency_p10": 0.8}
    gpus = (BOTH[0], GpuRecord(H100, 6, 24, metrics))
    model = register(BEST, gpus=gpus, everything=True, metrics={})
    verdict = gate.judge(model, timings(hardware=H100), None, H100.slug)
    assert "0.900 (10th percentile 0.800, by its manifest)" in sentence(verdict, "efficiency")


def test_it_is_compared_with_what_the_gpu_takes_otherwise(register):
    """Whatever that was made on: here another GPU's, which the H200 would borrow."""
    borrowed = register(BEST, hardware=H100, name="other")
    verdict = gate.promote(register(ATEN), timings())
    assert (verdict.against, verdict.passed) == (borrowed.reference, False)


def test_an_earlier_verdict_can_be_read():
    given = {"model": "mine@1", "against": "ATen", "at": "2026-11-21T04:36:18+00:00",
             "passed": False,
             "checks": [{"name": "software", "passed": False, "found": "Other."}]}  # fmt: skip
    verdict = decode(gate.GateVerdict, given)
    assert (verdict.hardware, verdict.passed, verdict.reasons) == ("", False, ("Other.",))


def test_a_model_that_saw_the_problems_is_taken_at_its_word(register):
    """What it reaches on them would say nothing."""
    metrics = {"efficiency": 0.4, "efficiency_p10": 0.3}
    told = register(BEST, everything=True, metrics=metrics)
    table = timings()
    assert not gate.promote(told, table).passed
    assert not gate.promote(register(BEST, everything=True), table).passed
    registry.set_default(told)
    verdict = gate.promote(register(ATEN), table)
    assert verdict.passed
    assert "0.400 (10th percentile 0.300, by its manifest)" in sentence(verdict, "efficiency")


def test_a_model_that_is_surer_than_it_may_be_is_refused(register):
    sure = Confidence(
        np.zeros((MAX_K, len(INPUTS)), np.float32), np.full(MAX_K, 5, np.float32),
        np.zeros((COORDINATES, 1), np.float32),
    )  # fmt: skip
    verdict = gate.judge(register(BEST, sure), timings(), None)
    assert found(verdict) == {**ALL_PASSED, "calibration": True}
    verdict = gate.judge(register(ATEN, sure), timings(), None)  # and never within 5 %
    assert found(verdict) == {**ALL_PASSED, "calibration": False}
    assert "calibration error of its confidence is 0.993" in verdict.reasons[0]


def test_what_cannot_be_loaded_is_no_default(register):
    damaged, aten = register(BEST), register(ATEN)
    registry.set_default(damaged)
    weights = next(damaged.folder.glob("*.safetensors"))
    weights.write_bytes(b"x")
    verdict = gate.promote(aten, timings())
    assert (verdict.against, verdict.passed) == ("ATen", True)
    with pytest.raises(ModelError):
        gate.promote(damaged, timings(), force=True)
    assert registry.default_for(SLUG) == aten
