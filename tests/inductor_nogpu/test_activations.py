"""Activations that the library's product computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

import diode_engine
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import FixedPredictor

LIBRARY, TRITON = 0.5, 1000.0  # what ATen takes so that it, or Triton's kernel, is taken
FUSED = "_addmm_activation"
Activation = Callable[[torch.Tensor], torch.Tensor]


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def written_out(x: torch.Tensor) -> torch.Tensor:
    """GELU by tanh as the first GPT-2 had it."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def called(act: Activation, *, rows: Sequence[int] = (4, 512), wide: int = 1024, **how: Any) -> str:
    """The lines that call kernels in a perceptron with this activation."""
    dtype, then = how.get("dtype", torch.bfloat16), how.get("then", functional.linear)
    sizes = [(*rows, 512), (wide, 512), (wide,), (256, wide)]

    def perceptron(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> Any:
        return then(act(functional.linear(x, w, b if how.get("bias", True) else None)), v)

    def build() -> tuple[Any, Sequence[torch.Tensor]]:
        return perceptron, [torch.empty(size, dtype=dtype, device="cuda") for size in sizes]

    options = {"max_autotune_gemm": True} | how.get("options", {})
    (source,) = lower(build, mode="default", options=options).sources
    return "\n".join(x for x in source.splitlines() if "extern_kernels." in x or ".run(" in x
                     or "torch.ops.aten." in x)  # fmt: skip


def install(aten: float = LIBRARY) -> None:
    predictor = FixedPredictor(best={"BLOCK_M": 0}, aten=aten)
    assert diode_engine.install_diode_choices(predictor=predictor, top_k_configs=1)


@pytest.mark.parametrize("rows", [(2048,), (4, 512)])
@pytest.mark.parametrize(
    ("act", "gelu"),
    [
        (torch.relu, False), (lambda x: x.clamp(min=0), False), (tanh_gelu, True),
        (written_out, True),
    ],
)  # fmt: skip
def test_an_activation_moves_into_the_librarys_product(
    act: Activation, gelu: bool, rows: Sequence[int]
) -> None:
    install()
    lines = called(act, rows=rows)
    assert FUSED in lines
    assert f"use_gelu={gelu}" in lines
    assert ".run(" not in lines  # no kernel is left for it
    assert diode_engine.get_stats()["activations_moved"] == 1


@pytest.mark.parametrize(
    ("act", "how"),
    [
        (functional.gelu, {}),  # by the error function
        (functional.silu, {}),
        (lambda x: torch.relu(x) * 2, {}),
        (lambda x: torch.relu(x) + x, {}),
        (lambda x: (x.int() ^ x.int()).to(x.dtype), {}),  # not a function of floats
        (torch.relu, {"then": lambda x, v: x.amax(-1)}),  # one kernel computes both
        (torch.relu, {"bias": False}),
        (torch.relu, {"dtype": torch.float32}),
        (torch.relu, {"wide": 1028}),
        (torch.relu, {"options": {"diode_batch_invariant": True}}),
        (torch.relu, {"options": {"emulate_precision_casts": True}}),
        (torch.relu, {"options": {"max_autotune_gemm": False}}),
    ],
)
def test_the_activation_stays_where_it_is(act: Activation, how: dict[str, Any]) -> None:
    install()
    assert FUSED not in called(act, **how)
    assert diode_engine.get_stats()["activations_moved"] == 0
    assert diode_engine.get_stats()["fallback_error"] == 0


def test_a_kernel_of_tritons_computes_its_activation_itself() -> None:
    install(aten=TRITON)
    assert FUSED not in called(torch.relu)
    assert diode_engine.get_stats()["activations_moved"] == 0
