"""scaled_mm, int_mm and mm_plus_mm without Inductor: problems, operands, features, files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from diode_engine import features
from diode_engine.collect.workers.inputs import empty_output, random_inputs, reference
from diode_engine.collect.workers.timer import is_right, spoil
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.operand import DType
from diode_engine.core.operators import OPERATORS
from diode_engine.core.operators.specification import TensorShape
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits, shared_bytes
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.errors import RecordError
from diode_engine.inductor.lowering.kernel_class import class_of
from diode_engine.models.coverage import Coverage
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.store import (
    Store,
    import_dataset,
    problem_counts,
    query,
    read_dataset,
    write_dataset,
)

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
CPU = torch.device("cpu")
TENSOR = Problem.make("scaled_mm", 64, 48, 256, E4M3)
ROW = Problem.make("scaled_mm", 64, 48, 256, E4M3, scaling="row", fast_accum=True)
BIAS = Problem.make("scaled_mm", 64, 48, 256, E4M3, b_dtype=E5M2, bias="vector")
BLOCKS = Problem.make("scaled_mm", 200, 300, 320, E5M2, scaling="1x128_128x128")
STRIPS = Problem.make("scaled_mm", 64, 48, 256, E4M3, scaling="1x128_1x128", out_dtype="float32")
WHOLE = Problem.make("int_mm", 64, 48, 256, "int8", b_layout="col")
TWO = Problem.make("mm_plus_mm", 64, 48, 256, "bfloat16", d_layout="col")
ALL = [TENSOR, ROW, BIAS, BLOCKS, STRIPS, WHOLE, TWO]
TILE = {"GROUP_M": 8, "num_stages": 3, "num_warps": 8}


def test_what_is_usual_is_in_no_key():
    mm = Problem.make("mm", 64, 48, 256, "bfloat16").to_dict()
    assert set(TENSOR.to_dict()) == set(WHOLE.to_dict()) == set(mm)
    usual = {"scaling": "tensor", "fast_accum": False, "b_dtype": E4M3}
    assert Problem.from_dict({**TENSOR.to_dict(), **usual}).key == TENSOR.key
    assert ROW.to_dict().items() >= {"scaling": "row", "fast_accum": True}.items()
    assert (str(TENSOR.out_dtype), str(WHOLE.out_dtype)) == ("bfloat16", "int32")
    assert len({problem.key for problem in ALL}) == len(ALL)
    for problem in ALL:
        assert Problem.from_dict(json.loads(json.dumps(problem.to_dict()))) == problem


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dtype": "bfloat16"}, "must be one of float8_e4m3fn, float8_e5m2"),
        ({"b_layout": "row"}, "has the layouts row/row; they must be row/col"),
        ({"bias": "matrix"}, "must be one of none, vector"),
        ({"scaling": "column"}, "must be one of 'tensor', 'row'"),
        ({"fast_accum": 1}, "must be one of False, True"),
    ],
)
def test_impossible_problems_are_refused(fields, says):
    with pytest.raises(RecordError, match=says):
        Problem.from_dict({**TENSOR.to_dict(), **fields})


@pytest.mark.parametrize("problem", ALL, ids=str)
def test_what_inductor_gives_is_read(problem):
    """The attributes that tensors tell, from the tensors that the problem has."""
    told = problem.op.read(problem.input_shapes())
    assert told is not None
    kwargs = problem.op.read_kwargs({"USE_FAST_ACCUM": problem.op_fields.get("fast_accum")})
    assert {**told, **(kwargs or {})} == {
        name: value
        for name, value in problem.op_fields.items()
        if name not in ("bias", "out_dtype")
    }


def test_what_is_no_problem_of_diodes_is_not_read():
    shapes = TENSOR.input_shapes()
    scale = TensorShape((64, 8), (8, 1), None)  # microscaling: of a type that Diode does not name
    assert OPERATORS["scaled_mm"].read({**shapes, "scale_a": scale}) is None
    odd = TensorShape((7, 3), (3, 1), DType.FLOAT32)
    assert OPERATORS["scaled_mm"].read({**shapes, "scale_a": odd}) is None
    experts = Problem.make("scaled_grouped_mm_rows", 64, 48, 256, E4M3, B=4).input_shapes()
    assert OPERATORS["scaled_grouped_mm_rows"].read(experts) == {}
    assert OPERATORS["scaled_grouped_mm_rows"].read({**experts, "scale_a": scale}) is None
    gaps = TensorShape((64, 256), (300, 1), DType.BFLOAT16)
    assert OPERATORS["mm_plus_mm"].read({**TWO.input_shapes(), "c": gaps}) is None


@pytest.mark.parametrize("problem", ALL, ids=str)
def test_the_reference_and_what_it_tolerates(problem):
    inputs = random_inputs(problem, CPU)
    shapes = problem.input_shapes()
    assert [(x.shape, x.stride(), str(x.dtype)) for x in inputs] == [
        (torch.Size(s.size), s.stride, f"torch.{s.dtype}") for s in shapes.values()
    ]
    right = reference(problem, inputs)
    assert (right.shape, right.dtype) == (
        problem.output_size, getattr(torch, problem.out_dtype),
    )  # fmt: skip
    by_name = dict(zip(shapes, [x.double() for x in inputs], strict=True))
    a, b = by_name["a"], by_name["b"]
    if problem.op == "scaled_mm":
        a = _scaled(a, by_name["scale_a"])
        b = _scaled(b, by_name["scale_b"])
    exact = a @ b
    if "c" in by_name:
        exact += by_name["c"] @ by_name["d"]
    if "bias" in by_name:
        exact += by_name["bias"]
    dtype = getattr(torch, problem.dtype)
    assert is_right(right, exact.to(right.dtype), tf32=False, dtype=dtype)
    out = empty_output(problem, CPU)
    spoil(out)
    assert not is_right(out, right, tf32=False, dtype=dtype)
    # without one of its inputs it is another product
    inputs[-1].zero_()
    assert not is_right(reference(problem, inputs), right, tf32=False, dtype=dtype)


def _scaled(matrix: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Element by element, from what the blocks are."""
    out = matrix.clone()
    if scale.ndim == 0:
        return out * scale
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            row = i if scale.shape[0] == matrix.shape[0] else i // 128
            col = j if scale.shape[1] == matrix.shape[1] else j // 128
            out[i, j] *= scale[min(row, scale.shape[0] - 1), min(col, scale.shape[1] - 1)]
    return out


@pytest.mark.parametrize("problem", ALL, ids=str)
def test_features_tell_the_ops_apart(problem):
    space = exhaustive_space(problem)
    rows = np.zeros(len(space), np.intp), np.arange(len(space))
    assert features.supported((problem,), space, *rows).all()
    x = features.matrix((problem,), space, *rows, H200)
    assert np.isfinite(x).all()
    assert fits(problem, space, H200).any()
    mine = features.space(problem, space[:1], H200).problem
    others = [Problem.make("mm", 64, 48, 256, dtype) for dtype in ("bfloat16", "float16")]
    for other in (*others, *(p for p in ALL if p != problem)):
        theirs = features.space(other, exhaustive_space(other)[:1], H200).problem
        assert not np.array_equal(mine, theirs), other


def test_what_a_tile_of_the_tma_template_needs():
    """As ptxas has it for sm_90 of kernels that torch 2.11 renders (bytes of shared memory)."""
    name = "triton::scaled_mm_device_tma_epilogue_scaling"
    built = {
        (256, 32, 256, 3, 8): 229400, (64, 128, 256, 3, 4): 155672, (128, 128, 256, 3, 8): 229400,
        (128, 256, 128, 3, 8): 180248, (16, 256, 256, 3, 4): 143392,
    }  # fmt: skip
    candidates = [
        Candidate.make(name, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_stages=s, num_warps=w, GROUP_M=8)
        for m, n, k, s, w in built
    ]
    problem = Problem.make("scaled_mm", 512, 4096, 4096, E4M3, scaling="row")
    said = shared_bytes(problem, candidates, H200)
    assert (said >= list(built.values())).all()
    assert (said <= 1.2 * np.array(list(built.values()))).all()
    assert fits(problem, candidates, H200).sum() >= 3


def test_a_class_of_kernels_knows_what_its_problems_have_in_common():
    tile = Candidate.make("triton::mm", BLOCK_M=64, BLOCK_N=32, BLOCK_K=64, **TILE)
    classes = [class_of(p, tile) for p in (TENSOR, ROW, BIAS, WHOLE)]
    assert None not in classes
    assert len({c.key for c in classes if c is not None}) == 4
    wider = Problem.make("scaled_mm", 64, 96, 512, E4M3, scaling="row", fast_accum=True)
    assert class_of(wider, tile) == classes[1]
    slow = Problem.make("scaled_mm", 64, 96, 512, E4M3, scaling="row")
    assert class_of(slow, tile) != classes[1]
    two = Candidate.make("triton::mm_plus_mm", BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, **TILE)
    assert class_of(TWO, two) is None  # few kernels: each is compiled for its problem


def test_a_store_and_a_file(tmp_path):
    here = Environment(H200, "570.1", "2.11.0", "3.6.0")
    table = TimingTable.from_records(
        (problem, candidate, here, Timing(min_us=1.0 + i))
        for problem in ALL
        for i, candidate in enumerate(exhaustive_space(problem)[:3])
    )
    file = tmp_path / "timings.packed.zst"
    write_dataset(table, file)
    assert read_dataset(file).problems == tuple(ALL)
    with Store.open(tmp_path / "diode.db") as store:
        import_dataset(store, file)
        assert set(store.read().problems) == set(ALL)
        for asked, found in (
            ("op:scaled_mm scaling:row fast_accum:yes", {ROW}), ("b_dtype:float8_e5m2", {BIAS}),
            ("scaling:1x128_128x128", {BLOCKS}), ("d_layout:col", {TWO}), ("dtype:int8", {WHOLE}),
            ("fast_accum:no -scaling:tensor", {BLOCKS, STRIPS}),
        ):  # fmt: skip
            assert {row.problem for row in query.problems(store, asked)} == found, asked
        by_op = {group.values[0] for group in problem_counts.statistics(store, by=("op",))}
    assert by_op == {"scaled_mm", "int_mm", "mm_plus_mm"}
    coverage = Coverage.make(table)
    assert "scaled_mm aten::_scaled_mm" in coverage.kernels
    assert set(coverage.types) == {E4M3, E5M2, "int8", "bfloat16"}
