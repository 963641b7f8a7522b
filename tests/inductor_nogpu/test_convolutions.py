"""1×1 convolutions, which max-autotune computes as products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config

import diode_engine
from diode_engine.inductor.hook import config_keys
from diode_engine.inductor.without_gpu import Lowered, lower
from tests.inductor_nogpu.conftest import FixedPredictor


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with diode_engine.diode_choices(predictor=FixedPredictor(), top_k_configs=1):
        yield


@contextlib.contextmanager
def tf32(*, products: bool, convolutions: bool) -> Iterator[None]:
    """What may use TF32, set by the switches that every version of torch has."""
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if products else "highest")
    cudnn.allow_tf32 = convolutions
    config_keys.invalidate()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32 = before[1]
        config_keys.invalidate()


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
def test_a_convolution_that_may_use_tf32_becomes_no_product_that_may_not(bias: bool) -> None:
    with tf32(products=False, convolutions=True):
        assert not is_product(lower(convolution(bias=bias)))
    assert diode_engine.get_stats()["convolutions_kept"] == 1


def test_a_convolution_becomes_a_product_where_both_round_alike() -> None:
    for products, convolutions in ((True, True), (False, False), (True, False)):
        with tf32(products=products, convolutions=convolutions):
            assert is_product(lower(convolution()))
    assert diode_engine.get_stats()["convolutions_kept"] == 0


def test_other_types_are_left_as_they_are() -> None:
    with tf32(products=False, convolutions=True):
        assert is_product(lower(convolution(torch.bfloat16)))


def test_a_program_may_ask_for_products() -> None:
    with tf32(products=False, convolutions=True):
        lowered = lower(convolution(), options={"conv_1x1_as_mm": True})
    assert is_product(lowered)


def test_without_diode_it_is_a_product() -> None:
    diode_engine.uninstall_diode_choices()
    with tf32(products=False, convolutions=True):
        lowered = lower(convolution(), benchmark=lambda candidate: 1.0)
    assert is_product(lowered)


def test_what_convolutions_may_use_is_in_the_cache_keys() -> None:
    keys = []
    for convolutions in (True, False):
        with tf32(products=False, convolutions=convolutions):
            keys.append(config.get_hash())
    assert len(set(keys)) == 2
