"""1×1 convolutions, which max-autotune computes as products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config

import diode_engine
from diode_engine.inductor.hook import options
from diode_engine.inductor.without_gpu import Lowered, lower
from tests.inductor_nogpu.conftest import LIBRARY, TRITON, install_times


@pytest.fixture(autouse=True)
def _with_triton():
    install_times(TRITON)


@contextlib.contextmanager
def tf32(*, products: bool, convolutions: bool) -> Iterator[None]:
    """What may use TF32, set by the switches that every version of torch has."""
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if products else "highest")
    cudnn.allow_tf32 = convolutions
    options.invalidate()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32 = before[1]
        options.invalidate()


def convolution(dtype: torch.dtype = torch.float32, *, bias: bool = True) -> Any:
    def build() -> Any:
        x = torch.empty(8, 256, 28, 28, dtype=dtype, device="cuda")
        weight = torch.empty(512, 256, 1, 1, dtype=dtype, device="cuda")
        added = torch.empty(512, dtype=dtype, device="cuda") if bias else None
        last = torch.channels_last
        return torch.nn.functional.conv2d, (x.to(memory_format=last), weight, added)

    return build


def is_product(lowered: Lowered) -> bool:
    """Whether a product was asked for; else a convolution of the library must be there."""
    source = "\n".join(lowered.sources)
    assert ("extern_kernels.convolution(" in source) == (not lowered.seen)
    return bool(lowered.seen)


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_that_may_use_tf32_becomes_no_product_that_may_not(bias):
    with tf32(products=False, convolutions=True):
        assert not is_product(lower(convolution(bias=bias)))
    assert diode_engine.get_stats()["convolutions_kept"] == 1


def test_a_convolution_becomes_a_product_where_both_round_alike():
    for products, others in ((True, True), (False, False), (True, False)):
        with tf32(products=products, convolutions=others):
            assert is_product(lower(convolution()))
    assert diode_engine.get_stats()["convolutions_kept"] == 0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("top_k", [1, 3])
def test_a_product_that_a_library_would_compute_stays_a_convolution(bias, top_k):
    build = convolution(torch.bfloat16, bias=bias)
    install_times(TRITON, top_k_configs=top_k)
    assert is_product(lower(build, benchmark=lambda _: 1.0))
    assert diode_engine.get_stats()["convolutions_kept"] == 0
    predictor = install_times(LIBRARY, top_k_configs=top_k)
    assert not is_product(lower(build))
    assert diode_engine.get_stats()["convolutions_kept"] == 1
    asked = {problem for problem, _ in predictor.asked}
    assert [(p.op, p.M, p.N, p.K, p.b.layout) for p in asked] == [
        ("addmm" if bias else "mm", 8 * 28 * 28, 512, 256, "col")
    ]


@pytest.mark.parametrize("aten", [LIBRARY, TRITON])
def test_a_weight_may_be_computed(aten):
    def build():
        function, (x, weight, bias) = convolution(torch.bfloat16)()
        return lambda x, w, b: function(x, w.to(x.dtype), b), (x, weight.float(), bias)

    install_times(aten)
    assert is_product(lower(build)) == (aten == TRITON)
    assert diode_engine.get_stats()["fallback_error"] == 0


def test_what_was_decided_under_other_options_does_not_count():
    build = convolution(torch.bfloat16)
    assert is_product(lower(build))
    with config.patch(max_autotune_gemm_backends="ATEN"):
        assert not is_product(lower(build))
    assert is_product(lower(build))
    assert diode_engine.get_stats()["convolutions_kept"] == 1


def test_an_op_that_the_model_does_not_know_is_left_to_inductor():
    install_times(LIBRARY).ops = frozenset({"mm"})
    assert is_product(lower(convolution(torch.bfloat16), benchmark=lambda candidate: 1.0))


@pytest.mark.parametrize(
    "options", [{"conv_1x1_as_mm": True}, {"max_autotune_gemm_backends": "TRITON"}]
)
def test_a_program_may_ask_for_products(options):
    install_times(LIBRARY)
    with tf32(products=False, convolutions=True):
        assert is_product(lower(convolution(), options=options, benchmark=lambda candidate: 1.0))
        assert is_product(lower(convolution(torch.bfloat16), options=options))


def test_what_convolutions_may_use_is_in_the_cache_keys():
    keys = []
    for allowed in (True, False):
        with tf32(products=False, convolutions=allowed):
            keys.append(config.get_hash())
    assert len(set(keys)) == 2
