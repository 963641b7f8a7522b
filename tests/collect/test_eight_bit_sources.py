"""Sources of products of 8 bits and of experts."""

from __future__ import annotations

from itertools import islice

import pytest

from diode_engine.core.named_layers import EXPERTS
from diode_engine.problems.sources import mixed
from diode_engine.problems.sources.eight_bit import EightBit
from diode_engine.problems.sources.experts import GroupedExperts
from diode_engine.problems.sources.wanted import Wanted


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b", "qwen3-235b-a22b", "llama-4"])
def test_models_with_experts_have_their_other_layers_in_8_bits(name: str) -> None:
    problems = list(islice(EightBit(models=(name,)).problems(0), 200))
    assert {str(p.op) for p in problems} == {"scaled_mm", "int_mm", "mm_plus_mm"}
    assert len({(p.N, p.K) for p in problems}) > 2


def test_the_models_that_people_serve_have_their_experts() -> None:
    families = {name.partition("-")[0] for name in EXPERTS}
    assert families >= {"deepseek", "qwen3", "gpt", "llama", "mixtral"}
    for name in EXPERTS:
        problems = list(islice(GroupedExperts(models=(name,)).problems(0), 1000))
        ops = {str(p.op) for p in problems}
        kinds = {"grouped_mm_rows", "grouped_mm_depth", "grouped_mm_batch"}
        assert ops == kinds | {f"scaled_{kind}" for kind in kinds}
        assert {p.b.layout for p in problems if p.op == "grouped_mm_rows"} == {"row", "col"}


def test_experts_in_8_bits_are_as_the_library_takes_them() -> None:
    found = mixed(200, 0, ("experts",), Wanted(types=("e4m3",)))
    assert {p.op for p in found} == {f"scaled_grouped_mm_{k}" for k in ("rows", "depth", "batch")}
    assert all(p.N % 16 == p.K % 16 == 0 for p in found)  # strides of operands and of the output
    fast = {(p.op, p.op_fields["fast_accum"]) for p in found}
    assert ("scaled_grouped_mm_depth", True) not in fast
    assert {("scaled_grouped_mm_rows", True), ("scaled_grouped_mm_rows", False)} <= fast


def test_scales_of_blocks_are_drawn() -> None:
    drawn = list(islice(EightBit(ops=("scaled_mm",)).problems(0), 300))
    found = {p.op_fields["scaling"] for p in drawn}
    assert found == {"tensor", "row", "1x128_128x128", "1x128_1x128"}
    by_blocks = [p for p in drawn if "128" in p.op_fields["scaling"]]
    assert all(p.N % 16 == p.K % 16 == 0 and p.bias == "none" for p in by_blocks)
    assert len({(p.N, p.K) for p in by_blocks}) > 10


def test_types_of_8_bits_can_be_asked_for() -> None:
    for types, expected in ((("e4m3",), {"float8_e4m3fn"}), (("int8",), {"int8"})):
        found = mixed(20, 0, ("eight-bit",), Wanted(types=types))
        assert {str(p.dtype) for p in found} == expected
