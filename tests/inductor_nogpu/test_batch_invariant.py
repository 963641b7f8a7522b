"""Inductor's option batch_invariant: no choice depends on the batch (torch 2.15)."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config

import diode_engine
from tests.inductor_nogpu.conftest import FAST, OPS, program
from tests.inductor_nogpu.test_convolutions import convolution
from tests.inductor_nogpu.test_grouped import experts
from tests.inductor_nogpu.test_guard import sums
from tests.inductor_nogpu.test_options import float32_gemm, pads, times_of_padding

pytestmark = pytest.mark.skipif(
    not hasattr(config, "batch_invariant"), reason="torch before 2.15 has no such option"
)
INVARIANT = {"batch_invariant": True}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("how", [{}, FAST], ids=["max-autotune", "fast_autotune"])
def test_products_get_the_librarys_kernel(op, how, predictor):
    options = {**how.get("options", {}), **INVARIANT}
    source = program(OPS[op], **{**how, "options": options})  # nothing is benchmarked
    assert "extern_kernels" in source
    assert "tl.dot" not in source
    stats = diode_engine.get_stats()
    assert (stats["model_selections"], stats["fallback_batch_invariant"]) == (0, 1)
    assert "tl.dot" in program(OPS[op], **how)  # without the option, also from memory
    assert "tl.dot" not in program(OPS[op], **{**how, "options": options})


def test_products_of_groups_get_the_librarys_kernel(predictor):
    assert "tl.dot" not in program(experts(), options=INVARIANT)
    assert "tl.dot" in program(experts())


def test_sums_and_convolutions_stay_what_they_are(predictor):
    predictor.aten = 1000.0  # else a sum stays a sum anyway
    assert "extern_kernels." not in program(sums)
    assert program(sums, options=INVARIANT).count("extern_kernels.") == 2
    assert "extern_kernels.convolution(" in program(convolution(torch.bfloat16), options=INVARIANT)


@pytest.mark.parametrize("invariant", [True, False])
def test_no_product_is_padded(invariant, monkeypatch):
    predictor = times_of_padding((1000.0, 333.0))
    options = {"batch_invariant": invariant, "shape_padding": True}
    assert pads(predictor, float32_gemm, monkeypatch, options=options) is not invariant
