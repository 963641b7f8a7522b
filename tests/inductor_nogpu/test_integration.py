"""Integrations: discovered, tried, turned on in their order; and what their status tells."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor import compile_fx, lowering
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen import wrapper
from torch._inductor.fx_passes import pad_mm, post_grad
from torch._inductor.kernel import conv, mm_grouped
from torch._inductor.kernel.flex import flex_decoding
from torch._inductor.select_algorithm import ExternKernelCaller
from torch._inductor.virtualized import V

import diode_engine
from diode_engine import registry as registry_of_models
from diode_engine.core.checks import encode_fields
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.errors import DiodeError, IntegrationError
from diode_engine.inductor.choosing import library_algorithms
from diode_engine.inductor.choosing.choice_options import ChoiceOptions
from diode_engine.inductor.hook import choices
from diode_engine.inductor.hook.installation import INSTALLATION
from diode_engine.inductor.hook.integration import (
    BaseIntegration,
    IntegrationRegistry,
    ModelPointer,
)
from diode_engine.models.manifest import GpuRecord
from tests.inductor_nogpu.conftest import FixedPredictor, install


@pytest.fixture
def registry():
    return IntegrationRegistry()


class Noted(BaseIntegration):
    name = "noted"

    def __init__(self, steps: list[str], fails: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.steps, self.fails = steps, fails

    def _step(self, step: str) -> None:
        self.steps.append(f"{self.name} {step}")
        if step == self.fails:
            raise IntegrationError(f"no {step} here")

    def dry_run(self) -> None:
        self._step("dry_run")

    def load(self) -> None:
        self._step("load")

    def enable(self) -> None:
        self._step("enable")

    def disable(self) -> None:
        self._step("disable")


class Early(Noted):
    name = "early"
    execute_order = 1


@pytest.mark.parametrize(
    ("given", "order"), [({}, ["early", "noted"]), ({"execute_order": 0}, ["noted", "early"])]
)
def test_they_are_turned_on_in_their_order_and_once(given, order, registry):
    steps: list[str] = []
    registry.register(Noted(steps), **given)
    registry.register(Early(steps))
    assert registry.integrate_all() == {"early": True, "noted": True}
    parts = ("dry_run", "load", "enable")
    assert steps == [f"{name} {part}" for name in order for part in parts]
    registry.integrate_all()
    assert len(steps) == 6
    assert list(registry.status()) == order


def test_one_whose_imports_turn_all_on_is_turned_on_once(caplog, registry):
    class Imports(Early):
        def dry_run(self) -> None:
            super().dry_run()
            assert registry.integrate_all() == {"early": False, "noted": True}

    steps: list[str] = []
    registry.register(Noted(steps))
    registry.register(Imports(steps))
    assert registry.integrate_all() == {"early": True, "noted": True}
    assert len(steps) == 6
    assert not caplog.text


@pytest.mark.parametrize("step", ["dry_run", "load", "enable"])
def test_one_that_fails_stops_there_and_says_why(step, caplog, registry):
    steps: list[str] = []
    registry.register(Noted(steps, step))
    registry.register(Early(steps))
    assert registry.integrate_all() == {"early": True, "noted": False}
    assert steps[-1] == f"noted {step}"  # nothing after it
    assert registry.status()["noted"]["reason"] == f"no {step} here"
    assert registry.status()["noted"]["state"] == "inactive"
    assert f"no {step} here" in caplog.text


def test_without_fallback_the_failure_is_raised(registry):
    registry.register(Noted([], "load", enable_fallback=False))
    with pytest.raises(IntegrationError, match="no load here"):
        registry.integrate_all()


def test_one_takes_the_place_of_another_of_its_name(caplog, registry):
    steps: list[str] = []
    earlier: list[str] = []
    registry.register(Noted(earlier))
    registry.integrate_all()
    registry.register(Noted([], "load"))
    registry.register(Noted(steps), execute_order=7)
    assert "The integration noted is replaced" in caplog.text
    assert registry.status()["noted"]["execute_order"] == 7
    assert earlier[-1] == "noted enable"  # it chooses until the other one does
    assert registry.integrate_all() == registry.integrate_all() == {"noted": True}
    assert earlier[-1] == "noted disable"
    assert steps == ["noted dry_run", "noted load", "noted enable"]


class Dependent(Noted):
    name = "dependent"
    requires = "noted"


def test_one_is_on_only_where_the_one_that_it_requires_is(caplog, registry):
    steps: list[str] = []
    registry.register(Dependent(steps), execute_order=200)
    assert registry.integrate_all() == {"dependent": False}  # there is none of that name
    registry.register(Noted([], "load"))
    caplog.clear()
    assert registry.integrate_all() == {"noted": False, "dependent": False}
    assert steps == []
    assert len(caplog.records) == 1  # the other's message is enough
    reason = "it requires the integration noted, which is inactive: no load here"
    assert registry.status()["dependent"]["reason"] == reason
    registry.register(Noted([]))
    assert registry.integrate_all() == {"noted": True, "dependent": True}
    registry.turn_off(requiring="noted", reason="it is over")
    assert steps[-1] == "dependent disable"
    assert registry.status()["dependent"]["reason"] == "it is over"


@pytest.mark.usefixtures("_every_model")
def test_all_of_diodes_are_turned_on_with_matmul_and_off(predictor):
    def states():
        status = diode_engine.get_integration_status()["integrations"]
        return {name: status[name]["state"] for name in OWN}

    diode_engine.uninstall_diode_choices()
    before = functions()
    install(predictor)
    assert set(states().values()) == {"active"}
    assert all(ours is not theirs for ours, theirs in zip(functions(), before, strict=True))
    with V.set_choices_handler(InductorChoices()):
        assert set(states().values()) == {"inactive"}  # in this thread
    diode_engine.uninstall_diode_choices()
    assert set(states().values()) == {"inactive"}
    assert all(mine is theirs for mine, theirs in zip(functions(), before, strict=True))


def functions() -> list[Any]:
    """Those of Inductor that Diode wraps."""
    names = ("_tuned_grouped_mm_common", "early_config_prune", "autotune_select_algorithm")
    flex = ("get_flex_attention_fwd_configs", "get_flex_decode_configs")
    found = [getattr(mm_grouped, name) for name in names]
    found += [getattr(InductorChoices, name) for name in flex]
    found += [lowering.lowerings[torch.ops.aten.mm.default], conv.convert_1x1_conv_to_mm]
    return found


# By integration: a module, and what of it the integration needs.
PLACES: dict[str, tuple[Any, str]] = {
    "fast_autotune": (lowering, "lowerings"),
    "grouped_mm": (mm_grouped, "_tuned_grouped_mm_common"),
    "flex_attention": (flex_decoding, "create_flex_decoding_kernel"),
    "convolution": (conv, "convolution"),
    "mm_plus_mm": (post_grad, "pass_patterns"),
    "shape_padding": (pad_mm, "should_pad"),
    "activations": (compile_fx, "_recursive_post_grad_passes"),
    "library_algorithms": (ExternKernelCaller, "output_node"),
    "dynamic_rows": (wrapper, "KernelCallLine"),
}
if torch.__version__ < (2, 11):  # it times padding in another function
    del PLACES["shape_padding"]
OWN = ("matmul", *PLACES)


@pytest.fixture
def _every_model(monkeypatch):
    """A model of the library's algorithms too, which this GPU does not have."""
    monkeypatch.setattr(library_algorithms, "model_for", lambda _: SimpleNamespace(key="some"))


@pytest.mark.usefixtures("_every_model")
@pytest.mark.parametrize("name", PLACES)
def test_a_torch_without_a_place_has_all_but_that_integration(name, monkeypatch):
    owner, attribute = PLACES[name]
    others = {torch.ops.aten._addmm_activation.default: print}  # what `activations` needs
    nothing = {"lowerings": others, "pass_patterns": []}.get(attribute, lambda *_, **__: None)
    monkeypatch.setattr(owner, attribute, nothing)
    install(FixedPredictor())
    status = diode_engine.get_integration_status()["integrations"]
    assert [each for each in OWN if status[each]["state"] != "active"] == [name]
    assert "this torch" in status[name]["reason"]


def test_flex_attention_is_off_where_nothing_was_measured(predictor):
    INSTALLATION.decision.choices.diode_chooser.flex.table = None
    status = diode_engine.get_integration_status()["integrations"]["flex_attention"]
    assert status["reason"] == "nothing was measured for it on NVIDIA H200"


def test_matmul_is_replaced(monkeypatch):
    """As torch-diode's documentation has it."""
    monkeypatch.setattr(INSTALLATION, "integrations", IntegrationRegistry())
    for model in ("first", "second"):
        predictor = FixedPredictor()
        predictor.identity = model
        monkeypatch.setattr(registry_of_models, "load_predictor", lambda *_, p=predictor: p)
        own = diode_engine.create_matmul_integration(enable_fallback=True)
        diode_engine.register_integration(own, execute_order=1)
        assert diode_engine.integrate_all()["matmul"]
        assert diode_engine.get_stats()["model"] == model


@pytest.mark.parametrize(
    ("device", "index"),
    [(None, None), (1, 1), ("cuda", None), ("cuda:1", 1), ("cpu", None)],
)
def test_a_device_is_an_index_or_its_text(device, index):
    assert ChoiceOptions(device=device).index == index


def test_what_is_no_device():
    for device in ("gpu", "cuda:", "cuda:x", "1"):
        with pytest.raises(ValueError, match="it must be an index"):
            diode_engine.install_diode_choices(device=device)


def test_matmul_is_turned_on_and_off(monkeypatch, registry):
    monkeypatch.setattr(registry_of_models, "load_predictor", lambda *_: FixedPredictor())
    registry.register(diode_engine.create_matmul_integration(enable_fallback=False))
    assert registry.status()["matmul"]["state"] == "inactive"
    assert registry.integrate_all() == {"matmul": True}
    assert diode_engine.get_stats()["active"]
    assert registry.status()["matmul"] == {
        "state": "active", "reason": "", "requires": "", "execute_order": 0,
        "models": [{"purpose": "gemm", "reference": None}],
    }  # fmt: skip
    diode_engine.uninstall_diode_choices()  # its status is what is, not what was done
    assert registry.status()["matmul"]["reason"] == "Diode's choices were uninstalled"


def test_matmul_where_the_interface_does_not_ask(monkeypatch):
    monkeypatch.setattr(InductorChoices, "get_template_configs", lambda *_, **__: [])
    with pytest.raises(IntegrationError, match="does not ask"):
        diode_engine.MatmulIntegration().dry_run()


def test_the_dry_run_leaves_everything_as_it_was(predictor):
    before = diode_engine.get_stats()
    diode_engine.MatmulIntegration().dry_run()
    assert diode_engine.get_stats() == before


def test_a_purpose_that_no_model_is_for():
    with pytest.raises(DiodeError, match="no model for NVIDIA H200"):
        ModelPointer(purpose="attention").load(H200)


def test_a_name_that_models_of_several_gpus_have_is_the_one_of_the_gpu_at_hand():
    h100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_gb_s=3352, l2_bytes=52428800)
    for name in ("default", "gemm"):
        pointer = ModelPointer(reference=name)
        assert [pointer.load(gpu).hardware.name for gpu in (H200, h100)] == [H200.name, h100.name]


def test_a_model_of_several_gpus_predicts_for_the_gpu_at_hand(tmp_path, caplog, monkeypatch):
    """The shipped model of the H200, with a record of the H100 added."""
    h100 = KNOWN["NVIDIA H100 80GB HBM3"]
    shutil.copytree(registry_of_models.resolve_for("gemm", H200.slug).folder, tmp_path / "both")
    path = tmp_path / "both" / "manifest.json"
    records = [encode_fields(GpuRecord(each)) for each in (H200, h100)]
    path.write_text(json.dumps({**json.loads(path.read_text()), "gpus": records}))
    reference = str(tmp_path / "both")
    assert ModelPointer(reference=reference).load(h100).hardware == h100
    for here in (h100, replace(h100, clock_mhz=1755)):  # an H100 with another clock, too
        monkeypatch.setattr(choices, "detect", lambda device, here=here: here)
        diode_engine.install_diode_choices(model_path=reference)
        assert diode_engine.get_stats()["trained_on"] == h100.name
    assert "There is no model" not in caplog.text


# A distribution as pip installs one: an importable module and its entry points.
MODULE = """
from diode_engine import BaseIntegration
from diode_engine.errors import IntegrationError

class Sorting(BaseIntegration):
    name = "sorting"
    execute_order = 50
    def dry_run(self): pass
    def load(self): pass
    def enable(self): pass
    def disable(self): pass

def broken():
    raise IntegrationError("it was made for another place")

def nothing():
    return 3
"""
POINTS = """[diode_engine.integrations]
sorting = dummy_integration:Sorting
broken = dummy_integration:broken
nothing = dummy_integration:nothing
missing = dummy_integration_that_is_not:there
"""


def test_one_of_another_distribution(tmp_path, monkeypatch):
    (tmp_path / "dummy_integration.py").write_text(MODULE)
    info = tmp_path / "dummy_integration-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dummy-integration\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(INSTALLATION, "integrations", IntegrationRegistry())
    assert diode_engine.discover_and_register_integrations() == ["sorting"]
    assert diode_engine.discover_and_register_integrations() == []
    assert diode_engine.integrate_all() == {"sorting": True}
    told = diode_engine.get_integration_status()["integrations"]
    assert told["sorting"]["state"] == "active"
    assert "made for another place" in told["broken"]["reason"]
    assert "no BaseIntegration" in told["nothing"]["reason"]
    assert "dummy_integration_that_is_not" in told["missing"]["reason"]
    del sys.modules["dummy_integration"]
