"""Products of groups without Inductor: operands, reference, features, spaces."""

from __future__ import annotations

import pytest
import torch

from diode_engine import features
from diode_engine.collect.workers.inputs import other_inputs, random_inputs, reference
from diode_engine.collect.workers.timer import is_right
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.operators import GROUPED, OPERATORS, SCALED_GROUPED
from diode_engine.core.operators.grouped_mm import ROUTED, offsets_of
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits, shared_bytes
from diode_engine.problems.spaces import default_space

CPU = torch.device("cpu")
TILE = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 3, "num_warps": 4}


def made(op: str, **fields: object) -> Problem:
    return Problem.make(op, 96, 80, 64, OPERATORS[op].dtypes[0], B=5, **fields)  # type: ignore[arg-type]


def exact(problem: Problem, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The product in float64, element by element of the output: each has one group."""
    given = dict(zip(problem.input_shapes(), inputs, strict=True))
    a, b = given["a"].double(), given["b"].double()
    ends = given["offsets"] if problem.op.divided else torch.zeros(0)
    m, n, k, groups = problem.M, problem.N, problem.K, problem.B
    of_rows = (m,) if problem.op.divided == "M" else (groups, m)
    of_columns = (n,) if problem.op.divided == "N" else (groups, n)
    scale_a = given.get("scale_a", torch.ones(of_rows))
    scale_b = given.get("scale_b", torch.ones(of_columns))
    if problem.op.divided == "M":
        of = torch.bucketize(torch.arange(m), ends, right=True)
        out = torch.einsum("mk,mkn->mn", a, b[of]) * scale_a[:, None] * scale_b[of]
    elif problem.op.divided == "N":
        of = torch.bucketize(torch.arange(n), ends, right=True)
        out = torch.einsum("nmk,kn->mn", a[of], b) * scale_a[of].T * scale_b
    else:
        if problem.op.divided == "K":
            of = torch.bucketize(torch.arange(k), ends, right=True)
            mine = (of == torch.arange(groups)[:, None]).double()
            out = torch.einsum("mk,gk,kn->gmn", a, mine, b)
        else:
            out = a @ b
        out = out * scale_a.reshape(groups, m, 1) * scale_b.reshape(groups, 1, n)
    return out


@pytest.mark.parametrize("op", [*GROUPED, *SCALED_GROUPED])
def test_the_reference_is_the_product_of_each_group(op):
    problem = made(op)
    inputs = random_inputs(problem, CPU)
    shapes = problem.input_shapes()
    assert [(x.shape, x.stride(), str(x.dtype)) for x in inputs] == [
        (torch.Size(s.size), s.stride, f"torch.{s.dtype}") for s in shapes.values()
    ]
    others = other_inputs(problem, inputs)
    assert len(others) == (1 if problem.op.divided else 0)
    for given in (inputs, *others):
        result = reference(problem, given)
        assert (result.shape, result.dtype) == (problem.output_size, torch.bfloat16)
        assert is_right(
            result,
            exact(problem, given).bfloat16(),
            tf32=False,
            dtype=getattr(torch, problem.dtype),
        )


@pytest.mark.parametrize("division", ROUTED)
@pytest.mark.parametrize("op", SCALED_GROUPED[1:3])
def test_groups_of_8_bits_begin_at_addresses_that_are_divisible_by_16(op, division):
    assert {end % 16 for end in offsets_of(made(op), division)} == {0}


def test_scales_tell_the_products_of_8_bits_apart():
    def row(op: str, **fields: object) -> dict[str, float]:
        kind = Candidate.make(f"triton::{OPERATORS[op].aten[1:]}", **TILE)
        x = features.space(made(op, **fields), [kind], H200).rows()[0]
        return dict(zip(features.NAMES, x.tolist(), strict=True))

    rows = {}
    for plain, scaled in zip(GROUPED, SCALED_GROUPED, strict=True):
        rows[plain], rows[scaled] = row(plain), row(scaled)
        for column in ("mm", "addmm", "bmm", "baddbmm", "bfloat16", "log2_tiles"):
            assert rows[plain][column] == rows[scaled][column]
        assert (rows[plain]["itemsize"], rows[scaled]["itemsize"]) == (2, 1)
        assert (rows[plain]["bias_other"], rows[scaled]["bias_other"]) == (0, 1)
        assert (rows[scaled]["tf32"], row(scaled, fast_accum=True)["tf32"]) == (0, 1)
    assert len({tuple(each.values()) for each in rows.values()}) == len(rows)


@pytest.mark.parametrize("op", SCALED_GROUPED)
def test_what_inductor_offers_of_8_bits_fits(op):
    """Inductor itself leaves out what needs more shared memory, and offers accumulators that are
    too large."""
    problem = Problem.make(op, 600, 80, 64, "float8_e4m3fn", B=5)
    candidates = default_space(problem)
    need = shared_bytes(problem, candidates, H200)
    assert 0.8 * H200.shared_bytes_block < need.max() <= H200.shared_bytes_block
    fit = fits(problem, candidates, H200).tolist()
    assert {
        tuple(c.config[name] for name in ("BLOCK_M", "BLOCK_N", "num_warps"))
        for c, fitting in zip(candidates, fit, strict=True)
        if not fitting
    } == {(128, 256, 4)}
