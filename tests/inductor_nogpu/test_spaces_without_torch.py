"""The spaces and their sizes as validation and plans say them, against what Inductor offers."""

from __future__ import annotations

import pytest
import torch

from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import find_operator
from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering import kernels
from diode_engine.problems.sources import mixed
from diode_engine.problems.spaces import SpaceSize, default_space, exhaustive_space, space_size
from tests.inductor_nogpu.conftest import SPACES, whole_spaces

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
TORCH = torch.__version__

OTHER_PRODUCTS = [
    Problem.make("scaled_mm", 512, 256, 1024, E4M3),
    Problem.make("scaled_mm", 17, 256, 1024, E4M3, scaling="row", fast_accum=True),
    Problem.make("scaled_mm", 512, 256, 1024, E4M3, scaling="row", bias="vector"),
    Problem.make("scaled_mm", 512, 256, 1024, E4M3, scaling="1x128_128x128"),
    Problem.make("scaled_mm", 512, 256, 1024, E4M3, scaling="1x128_1x128"),
    Problem.make("scaled_mm", 1, 4096, 48, E4M3, scaling="row"),
    Problem.make("scaled_mm", 64, 128, 16, E4M3),  # too short for Triton
    Problem.make("scaled_mm", 512, 256, 1024, E5M2, out_dtype="float32"),
    Problem.make("scaled_mm", 64, 256, 1024, E4M3, b_dtype=E5M2, out_dtype="float16"),
    Problem.make("int_mm", 512, 256, 1024, "int8", b_layout="col"),
    Problem.make("int_mm", 17, 24, 40, "int8"),
    Problem.make("int_mm", 32, 64, 16, "int8"),
    Problem.make("mm_plus_mm", 512, 256, 1024, "bfloat16", c_layout="col"),
    Problem.make("mm_plus_mm", 17, 24, 64, "float32", b_layout="col", d_layout="col"),
]


# M, N and K of the DEFAULT space's cases, by op.
SIZES = {
    "mm": [
        (1024, 1024, 1024), (17, 4096, 1000), (8, 24, 256), (300, 33, 47),
        (64, 96, 3072), (16, 32, 2040), (32, 48, 8192), (16, 16, 6000), (32, 96, 20160),
    ],
    "addmm": [(512, 768, 640), (5, 1000, 2048)],
    "bmm": [(128, 64, 128), (20, 20, 20)],
    "baddbmm": [(128, 64, 128), (33, 16, 8192)],
}  # fmt: skip


def offered(problem: Problem, space: str, *, optional: bool) -> set[Candidate]:
    """What Inductor offers for the problem."""
    with whole_spaces(), kernels.graph_for(problem, torch.device("cuda:0")) as operands:
        found = kernels.offered(
            problem.op, operands, fields=problem.op_fields, space=space, optional=optional
        )
    if torch.__version__ < (2, 11) and "x" in str(problem.op_fields.get("scaling")):
        # offered for scales of blocks too, which it cannot apply; Diode never takes it there
        return {c for c in found if c.template != "triton::mm"}
    return set(found)


@pytest.mark.parametrize("problem", SPACES + mixed(12, 5), ids=str)
def test_the_exhaustive_space_is_what_inductor_offers(problem):
    expected = offered(problem, "EXHAUSTIVE", optional=True)
    expected |= offered(problem, "DEFAULT", optional=True)
    space = exhaustive_space(problem, TORCH)
    assert len(space) == len(set(space))
    assert set(space) == expected
    libraries = sum(candidate.is_extern for candidate in expected)
    assert space_size(problem, TORCH) == SpaceSize(libraries, len(expected) - libraries)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("op", SIZES)
def test_the_default_space_is_what_inductor_offers(op, dtype):
    for sizes in SIZES[op]:
        problem = Problem.make(op, *sizes, dtype, B=3 if find_operator(op).batched else 1)
        assert set(default_space(problem, TORCH)) == offered(problem, "DEFAULT", optional=False)


@pytest.mark.parametrize("problem", OTHER_PRODUCTS, ids=str)
def test_the_spaces_of_other_products_are_what_inductor_offers(problem):
    default = offered(problem, "DEFAULT", optional=False)
    assert set(default_space(problem, TORCH)) == default
    assert set(exhaustive_space(problem, TORCH)) == offered(problem, "EXHAUSTIVE", optional=True)
