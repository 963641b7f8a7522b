"""Activations that the library's product computes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

import diode_engine
from diode_engine.core.hardware import H200, Hardware
from diode_engine.inductor.choosing import outside_graph, search
from diode_engine.inductor.torch_internals.dispatcher import PRODUCT_WITH_ACTIVATION
from diode_engine.inductor.without_gpu import lower
from diode_engine.reports.record import read
from tests.inductor_nogpu.conftest import (
    LIBRARY,
    TRITON,
    build_of,
    empty,
    install,
    install_times,
    lower_step,
    perceptron,
    state_in_keys,
    sure,
)

FUSED = "_addmm_activation"
NO_BACKEND = {"max_autotune_gemm_backends": ""}
Activation = Callable[[torch.Tensor], torch.Tensor]


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def written_out(x: torch.Tensor) -> torch.Tensor:
    """GELU by tanh as the first GPT-2 had it."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def called(act: Activation, *, rows: Sequence[int] = (4, 512), wide: int = 1024, **how: Any) -> str:
    """The lines that call kernels in a perceptron with this activation."""
    dtype, then = how.get("dtype", torch.bfloat16), how.get("then", functional.linear)
    first = how.get("first", functional.linear)
    sizes = [(*rows, 512), (wide, 512), (how.get("bias", wide),), (256, wide)]

    def perceptron(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> Any:
        return then(act(first(x, w, b)), v)

    build = build_of(perceptron, *sizes, dtype=dtype)
    options = {"max_autotune_gemm": True} | how.get("options", {})
    (source,) = lower(build, mode="default", options=options, dynamic=how.get("dynamic")).sources
    return "\n".join(x for x in source.splitlines() if "extern_kernels." in x or ".run(" in x
                     or "torch.ops.aten." in x)  # fmt: skip


def added(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, **scale: float) -> torch.Tensor:
    return torch.addmm(b, x.flatten(0, -2), w.t(), **scale)


@pytest.mark.parametrize(
    ("act", "gelu"),
    [
        (torch.relu, False), (lambda x: x.clamp(min=0), False), (torch.relu_, False),
        (lambda x: functional.dropout(torch.relu(x), training=False), False),
        (tanh_gelu, True), (written_out, True),
        (lambda x: tanh_gelu(x.float()).to(x.dtype), True),  # as with autocast
    ],
)  # fmt: skip
def test_an_activation_moves_into_the_librarys_product(act, gelu):
    install_times(LIBRARY)
    lines = called(act)
    assert FUSED in lines
    assert f"use_gelu={gelu}" in lines
    assert ".run(" not in lines  # no kernel is left for it
    assert diode_engine.get_stats()["activations_moved"] == 1


@pytest.mark.parametrize(
    "how",
    [
        {"first": lambda x, w, b: torch.addmm(b, x, w.view(512, 1024))},  # as GPT-2 has its weights
        {"first": lambda x, w, b: functional.linear(x.view(512, 2048).t(), w, b)},
        {"then": lambda x, v: v @ x.t()},
        {"then": lambda x, v: (x, x.t() @ x)},
        {"then": lambda x, v: torch.bmm(x.view(4, 512, 1024).transpose(1, 2), x.view(4, 512, -1))},
        {"then": lambda x, v: x},
        {"dtype": torch.float16},
        {"options": {"max_autotune_gemm_backends": "ATEN"}},
        {"options": {"max_autotune_gemm": False, "fast_autotune": True}},
    ],
)
def test_it_moves_whatever_the_operands_and_the_readers_are(how):
    install_times(LIBRARY)
    assert FUSED in called(torch.relu, rows=(2048,), **how)
    assert diode_engine.get_stats()["activations_moved"] == 1


# Other functions than ReLU and GELU by tanh.
OTHERS: list[Activation] = [
    functional.gelu,  # by the error function
    functional.silu,
    functional.relu6,
    functional.hardswish,
    lambda x: functional.leaky_relu(x, 1e-7),
    lambda x: x * torch.sigmoid(1.702 * x),  # CLIP's
    lambda x: torch.relu(x) ** 2,
    lambda x: torch.relu(x) * 2,
    lambda x: torch.relu(x) + x,
    # These differ from ReLU for some values only.
    lambda x: x.clamp(0, 20),
    lambda x: x * (x > 0.1),
    lambda x: torch.round(torch.relu(x) * 25) / 25,
    # These round to another type.
    lambda x: torch.relu(x).to(torch.float8_e4m3fn).to(x.dtype),
    lambda x: torch.relu(x).int().to(x.dtype),
    lambda x: torch.relu(x.to(torch.int8).to(x.dtype)),
    lambda x: (x.int() ^ x.int()).to(x.dtype),  # not a function of floats
]


def test_an_op_that_is_not_torchs_is_not_computed_for_its_values():
    computed: list[int] = []

    @torch.library.custom_op("diode_test::act", mutates_args=(), tags=(torch.Tag.pointwise,))
    def act(x: torch.Tensor) -> torch.Tensor:
        computed.append(1)
        return x.relu()

    act.register_fake(torch.empty_like)
    install_times(LIBRARY)
    assert FUSED not in called(act)
    assert computed == []


@pytest.mark.parametrize(
    "how",
    [
        *({"act": act} for act in OTHERS),
        {"then": lambda x, v: x.amax(-1)},  # one kernel computes both
        {"then": lambda x, v: (functional.linear(x, v), x + 1)},
        {"rows": (1024,), "then": lambda x, v: torch.addmm(x, v.view(1024, 256), v)},
        {"first": lambda x, w, _: functional.linear(x, w)},
        {"rows": (2048,), "first": added, "bias": 1},  # cuBLASLt wants it whole
        {"first": functools.partial(added, alpha=0.5)},
        {"first": lambda x, w, b: added(x, w, b.expand(2048, 1024))},
        {"dtype": torch.float32},
        {"wide": 1028},
        {"dynamic": True},
        {"rows": (1,)},  # torch would not call cuBLASLt
        {"rows": (63,)},  # fewer than were measured
        {"rows": (0,)},
        {"options": {"diode_batch_invariant": True}},
        {"options": {"emulate_precision_casts": True}},
        {"options": {"max_autotune_gemm": False}},
        {"options": {"max_autotune_gemm_backends": "TRITON"}},
        {"options": {"max_autotune_gemm": False, "fast_autotune": True, **NO_BACKEND}},
        {"aten": TRITON},  # whose kernel computes its activation itself
    ],
)
def test_the_activation_stays_where_it_is(how):
    install_times(how.get("aten", LIBRARY))
    assert FUSED not in called(**{"act": torch.relu, **how})
    assert diode_engine.get_stats()["activations_moved"] == 0
    assert diode_engine.get_stats()["fallback_error"] == 0


def test_it_stays_where_torch_does_not_call_cublaslt(monkeypatch):
    install_times(LIBRARY)
    key = state_in_keys()
    monkeypatch.setenv("DISABLE_ADDMM_CUDA_LT", "1")
    assert FUSED not in called(torch.relu)
    assert state_in_keys() != key  # so Inductor's caches keep both programs apart


def test_it_stays_where_the_model_is_for_another_gpu(monkeypatch):
    install_times(LIBRARY)
    other = Hardware.from_dict({**H200.to_dict(), "name": "NVIDIA H100"})
    monkeypatch.setattr(outside_graph, "detect", lambda index: other)
    assert FUSED not in called(torch.relu)


def test_it_stays_where_the_model_is_not_as_sure_as_the_program_wants():
    install(sure(best={"BLOCK_M": 0}, aten=LIBRARY))  # 0.9
    assert FUSED in called(torch.relu, options={"diode_confidence_threshold": 0.5})
    options = {"diode_confidence_threshold": 0.95, "diode_fallback_to_autotune": True}
    with pytest.raises(Exception, match="left to be timed"):
        called(torch.relu, options=options)
    assert diode_engine.get_stats()["activations_moved"] == 1


def test_in_training_relu_moves_and_gelu_which_keeps_its_input_does_not():
    for act, moved in ((torch.nn.ReLU(), 1), (torch.nn.GELU("tanh"), 0)):
        install_times(LIBRARY)
        layers = (torch.nn.Linear(512, 1024), act, torch.nn.Linear(1024, 256))
        x = torch.randn(128, 512, dtype=torch.bfloat16)
        sources = lower_step(torch.nn.Sequential(*layers).bfloat16(), x, max_autotune_gemm=True)
        assert [FUSED in source for source in sources.sources] == [bool(moved), False]
        assert diode_engine.get_stats()["activations_moved"] == moved


def test_a_program_in_cpp_calls_it():
    install_times(LIBRARY)
    (source,) = lower(build_program, options={"cpp_wrapper": True}).sources
    assert "aoti_torch_cuda__addmm_activation(" in source


def build_program() -> tuple[Any, Sequence[torch.Tensor]]:
    return perceptron(512, 1024, 256), [empty(2048, 512)]


def test_a_report_lists_the_product_with_its_activation():
    install_times(LIBRARY)
    with diode_engine.report() as report:
        lower(build_program)
    assert report.path is not None
    first, second = read(report.path).products
    assert first.name == "addmm 2048×1024×512 bfloat16 row16/col16 with ReLU"
    assert first.kernel is not None
    assert first.kernel.is_extern
    assert (first.predicted_us, first.saved_us) == (LIBRARY, 0)
    assert first.why.endswith("; aten::_addmm_activation computes ReLU as well")
    assert [(place.module, place.kind) for place in first.places] == [("0", "Linear")]
    assert "with" not in second.name
    assert first.name in str(report)


def test_frozen_choices_move_it_again(tmp_path, monkeypatch):
    install_times(LIBRARY)
    path = tmp_path / "frozen.toml"
    with diode_engine.report() as report:
        lower(build_program)
        report.freeze(path)
    frozen = {"diode_frozen_choices": str(path)}
    # Nothing is searched with frozen choices, so that a changed search does not matter.
    monkeypatch.setattr(search, "find_alteration", lambda: "somebody watches it")
    with diode_engine.report() as report:
        (source,) = lower(build_program, options=frozen).sources
    assert FUSED in source
    first = read(report.path).products[0]
    assert first.name.endswith("with ReLU")
    assert first.why.startswith("the file of frozen choices has it")
    text = path.read_text()
    assert text.count('op = "addmm"') == 2  # the decision and the second product
    path.write_text(text.replace("move the activation", "another decision"))
    with pytest.raises(Exception, match="does not say whether to move the activation"):
        lower(build_program, options=frozen)


def test_a_program_of_one_product_with_an_activation_can_be_frozen(tmp_path):
    install_times(LIBRARY)
    with diode_engine.report() as report:
        assert FUSED in called(torch.relu, then=lambda x, v: x)
        report.freeze(tmp_path / "frozen.toml")
    assert "[[product]]" not in (tmp_path / "frozen.toml").read_text()


def test_what_it_becomes_is_what_the_program_computes():
    """On the CPU, where the op's GELU is the exact one; errors beside float64."""
    for dtype, gelu in ((torch.bfloat16, False), (torch.float16, False), (torch.float16, True)):
        generator = torch.Generator().manual_seed(0)
        b, x, w = (
            torch.randn(size, generator=generator).to(dtype) for size in (64, (96, 128), (128, 64))
        )
        function = functional.gelu if gelu else torch.relu
        exact = function(torch.addmm(*(each.double() for each in (b, x, w))))
        plain = (function(torch.addmm(b, x, w)).double() - exact).abs().max()
        moved = (PRODUCT_WITH_ACTIVATION(b, x, w, use_gelu=gelu).double() - exact).abs().max()
        assert moved <= plain
