"""Processes with equal fingerprints choose alike; what differs is found and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config

import diode_engine
from diode_engine.choosing import policy
from diode_engine.choosing.fingerprint import Fingerprint
from diode_engine.cli import doctor
from diode_engine.inductor.hook.fingerprint import read_fingerprint
from diode_engine.location import location_of


def install(predictor: Any, **options: Any) -> Fingerprint:
    assert diode_engine.install_diode_choices(predictor=predictor, **options)
    return read_fingerprint()


def test_a_fingerprint_changes_with_all_that_a_choice_depends_on(
    make_predictor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = install(make_predictor())
    assert install(make_predictor()) == usual
    others = {
        "model": install(make_predictor(identity="another")),
        "top": install(make_predictor(), top_k_configs=2),
    }
    assert diode_engine.install_diode_choices(predictor=make_predictor())
    for name, value in {"diode_top_k": 2, "max_autotune_gemm_backends": "ATEN"}.items():
        with config.patch({name: value}):
            others[name] = read_fingerprint()
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
        others["tf32"] = read_fingerprint()
    with config.patch({"test_configs.max_mm_configs": 3}):
        others["search"] = read_fingerprint()
    monkeypatch.setattr("diode_engine.inductor.choosing.product_chooser.RULES", policy.RULES + "x")
    others["rules"] = install(make_predictor())
    for name, other in others.items():
        assert other.key != usual.key
        assert other.describe_differences(usual) == (
            f"{name} {other.parts[name]}, not {usual.parts[name]}"
        )
    with config.patch(diode_cache_predictions=False):  # changes no choice
        assert read_fingerprint() == others["rules"]
    diode_engine.uninstall_diode_choices()
    assert read_fingerprint().parts["choices"] == "off (Diode's choices were uninstalled)"


@pytest.mark.usefixtures("predictor")
def test_the_status_and_doctor_show_the_fingerprint(tmp_path: Path) -> None:
    status = diode_engine.get_integration_status()
    assert status["fingerprint"] == read_fingerprint().to_dict()
    assert status["fingerprint"]["parts"]["model"] == "fixed"
    checks = {check.what: check.why for check in doctor._checks(location_of(tmp_path / "a.db"))}
    assert status["fingerprint"]["key"] in checks["fingerprint"]
