"""The package's public names, and the small functions among them."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import diode_engine
from diode_engine.errors import ModelError, RegistryError
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import FixedPredictor, build_of, install

PUBLIC = {
    "BaseIntegration", "Candidate", "DiodeError", "DiodeInductorChoices", "Environment",
    "Hardware", "IntegrationRegistry", "MatmulIntegration", "ModelPointer", "Problem", "Timing",
    "__version__", "compare_ranks", "create_diode_choices", "create_matmul_integration",
    "diode_choices", "discover_and_register_integrations", "get_detected_hardware",
    "get_integration_status", "get_prediction_stats", "get_stats", "install_diode_choices",
    "integrate_all", "list_available_models", "predict_choice", "profile_predictions",
    "register_integration", "register_model", "report", "set_log_level",
    "uninstall_diode_choices",
}  # fmt: skip


def gemm(n: int = 768) -> Any:
    return build_of(torch.mm, (512, 1024), (1024, n))


def test_the_public_names():
    assert set(diode_engine.__all__) == PUBLIC
    assert set(diode_engine.__all__) <= set(dir(diode_engine))
    for name in diode_engine.__all__:
        thing = getattr(diode_engine, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert inspect.getdoc(thing), name
    with pytest.raises(AttributeError):
        _ = diode_engine.no_such_name


def test_the_log_level():
    logger = logging.getLogger("diode_engine")
    diode_engine.set_log_level("debug")
    assert logger.level == logging.DEBUG
    diode_engine.set_log_level(logging.ERROR)
    assert logger.level == logging.ERROR
    with pytest.raises(ValueError, match="LOUD"):
        diode_engine.set_log_level("loud")


def test_a_context_puts_back_what_chose_before():
    outer, inner = FixedPredictor(identity="outer"), FixedPredictor(identity="inner")
    install(outer)
    lower(gemm())
    before = diode_engine.get_stats()
    with diode_engine.diode_choices(predictor=inner, top_k_configs=1) as installed:
        assert installed
        lower(gemm())
        assert diode_engine.get_stats()["model"] == "inner"
    assert diode_engine.get_stats() == before
    lower(gemm())
    assert len(outer.asked) == 1  # it has even kept its memory
    assert diode_engine.get_stats()["model_selections"] == 2


def test_a_context_where_nothing_was_installed():
    reason = diode_engine.get_stats()["reason"]
    with diode_engine.diode_choices(predictor=FixedPredictor()):
        assert diode_engine.get_stats()["active"]
    stats = diode_engine.get_stats()
    assert (stats["active"], stats["reason"]) == (False, reason)
    assert len(lower(gemm(), benchmark=lambda _: 1.0).seen[0].candidates) > 10


def test_a_profile_has_every_choice_in_its_order(predictor):
    lower(gemm(256))
    with diode_engine.profile_predictions() as profile:
        lower(gemm(512))
        lower(gemm(768))
        lower(gemm(512))
    lower(gemm(1024))
    assert [s.problem.N for s in profile.selections] == [512, 768, 512]
    assert [s.remembered for s in profile.selections] == [False, False, True]
    assert profile.selections[0].predicted_us == (1.0,)
    assert profile.selections[0].candidates[0].template == "triton::mm"
    assert profile.seconds > 0
    stats = diode_engine.get_prediction_stats()
    assert stats["total_predictions"] == 5
    assert f"{stats['avg_confidence']:.3f}" == "nan"  # this model cannot tell
    assert stats["cache_hits"] == 1
    assert stats["avg_ms"] > 0


def test_the_models_here(tmp_path):
    shipped = [m for m in diode_engine.list_available_models() if m["source"] == "shipped"]
    assert {m["model"] for m in shipped} == {"gemm@16", "gemm@17"}
    folder = next(m["folder"] for m in shipped if m["taken"])
    taken = diode_engine.register_model(folder)  # a folder is copied into the user's registry
    found = next(m for m in diode_engine.list_available_models() if m["source"] == "user")
    assert (found["model"], found["taken"]) == (taken, True)
    with pytest.raises((ModelError, RegistryError)):
        diode_engine.register_model(tmp_path / "nothing")


def test_the_docs_say_what_becomes_of_all_that_inductor_asks_for():
    from torch._inductor import choices, kernel
    from torch._inductor.choices import InductorChoices

    from diode_engine.core.operators import OPERATORS

    docs = (Path(__file__).parents[2] / "docs/integration.md").read_text()
    table = docs[docs.index("### What is left to Inductor") : docs.index("### Never slower")]
    asked = {name for name in vars(InductorChoices) if re.fullmatch("get_.*_configs", name)}
    assert {name for name in asked if f"`{name}`" not in table} == set()
    assert len(asked) >= 5
    # the ops that the kernels' modules ask get_template_configs for
    folder = Path(kernel.__file__).parent
    ops: set[str] = set()
    for file in folder.rglob("*.py"):
        text = file.read_text()
        if "V.choices.get_template_configs(" in text:
            ops |= set(re.findall(r'^    name = "(\w+)"$', text, re.M))
            ops |= set(re.findall(r'templates_to_use, "(\w+)"\)', text))
    assert ops == {op for op in OPERATORS if not OPERATORS[op].bypasses_hook}
    assert {op for op in ops if f"`{op}`" not in table} == set()
    assert inspect.getsource(choices).count("def get_template_configs") == 1
