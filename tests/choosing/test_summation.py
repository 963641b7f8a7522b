"""The order in which a kernel adds up, by its template and config."""

from __future__ import annotations

import pytest

from diode_engine.choosing import proofs
from diode_engine.choosing.proofs import Proof, proven_orders
from diode_engine.choosing.summation import Instruction, SummationOrder, order_of, orders_of
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.problems.spaces import exhaustive_space
from tests import samples

HALF = Problem.make("mm", 512, 1024, 4096, "bfloat16")
WGMMA = SummationOrder(Instruction.WGMMA, "bfloat16", "float32", 16)
MMA = SummationOrder(Instruction.MMA, "bfloat16", "float32", 16)


def tile(k: int = 64, warps: int = 4, name: str = "triton::mm") -> Candidate:
    return samples.tile(64, 64, k, 3, warps, name)


@pytest.mark.parametrize("op", ["mm", "addmm", "bmm", "baddbmm"])
def test_half_precision_has_one_order_for_each_instruction(op):
    problem = Problem.make(op, 512, 1024, 4096, "bfloat16")
    space = exhaustive_space(problem, "2.13.0")
    orders, places = orders_of(problem, space, H200)
    assert set(orders) == {WGMMA, MMA}
    for candidate, place in zip(space, places.tolist(), strict=True):
        tiled = candidate.template in ("triton::mm", "triton::bmm")
        assert (place >= 0) is tiled
        if tiled:
            config = candidate.config
            wide = int(config["BLOCK_M"] or 0) >= 64 and int(config["num_warps"] or 0) >= 4
            assert orders[place] == (WGMMA if wide else MMA)
            assert order_of(problem, candidate, H200) == orders[place]


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate.make("aten::mm"),
        Candidate.make("decompose_k", k_split=4),
        tile(name="triton::mm_persistent_tma"),
        Candidate.make("triton::mm_of_tomorrow", BLOCK_M=64, BLOCK_N=64, BLOCK_K=64),
    ],
    ids=str,
)
def test_no_order_is_known_of_what_is_not_one_loop(candidate):
    assert order_of(HALF, candidate, H200) is None


def test_no_order_is_known_of_8_bit_floats_without_scales():
    assert order_of(Problem.make("mm", 512, 1024, 4096, "float8_e4m3fn"), tile(), H200) is None


@pytest.mark.parametrize(
    ("tf32", "expected"),
    [
        (True, "wgmma tf32 k8 float32"),
        (False, "fma float32 k1 float32 BLOCK_K 32"),
    ],
)
def test_float32_depends_on_block_k_without_tensor_cores_alone(tf32, expected):
    problem = Problem.make("mm", 512, 1024, 4096, "float32", allow_tf32=tf32)
    narrow, wide = (order_of(problem, tile(k=k), H200) for k in (32, 128))
    assert str(narrow) == expected
    assert (narrow == wide) is tf32


def test_products_of_groups_have_orders_of_their_own():
    problem = Problem.make("grouped_mm_rows", 512, 1024, 4096, "bfloat16", B=8)
    sizes = {"BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 3, "num_warps": 4}
    low, high = (Candidate.make("triton::grouped_mm", BLOCK_M=m, **sizes) for m in (32, 64))
    assert str(order_of(problem, low, H200)) == "mma.sync bfloat16 k16 float32 in groups"
    assert str(order_of(problem, high, H200)) == "wgmma bfloat16 k16 float32 in groups"
    assert order_of(problem, Candidate.make("aten::_grouped_mm"), H200) is None


def test_8_bit_floats_are_promoted_after_each_block_unless_they_are_to_be_fast():
    def order(*, fast: bool, warps: int = 4) -> str:
        problem = Problem.make("scaled_mm", 512, 1024, 4096, "e4m3", scaling="row", fast_accum=fast)
        return str(order_of(problem, tile(k=128, warps=warps), H200))

    assert order(fast=True) == "wgmma float8_e4m3fn k32 float32"
    assert order(fast=False) == "wgmma float8_e4m3fn k32 float32 promoted after 128"
    assert order(fast=True, warps=2) == "mma.sync float16 k16 float32"


@pytest.mark.parametrize(
    ("arch", "torch", "triton", "proven"),
    [
        ("9.0", "2.11.0+cu130", "3.6.0", {(WGMMA, MMA)}),
        ("10.0", "2.11.0", "3.6.0", set()),
        ("9.0", "2.12.0", "3.6.0", set()),
        ("9.0", "2.9.1", "3.6.0", set()),
        ("9.0", "2.11.0", "3.7.1", set()),
    ],
)
def test_an_order_is_proven_for_a_gpu_and_versions(arch, torch, triton, proven, monkeypatch):
    proof = Proof((WGMMA, MMA), "9.0", ("2.10", "2.11"), ("3.6", "3.6"), 40, 1000, "a.json")
    monkeypatch.setattr(proofs, "PROOFS", (proof,))
    assert proven_orders(arch, torch, triton) == proven
