"""What records refuse, which of two names for the same thing they keep, and candidates that are
held as columns."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, CandidateTable, encode
from diode_engine.core.hardware import H200, MAX_VALUES, Environment, Hardware
from diode_engine.core.operand import Layout, Operand
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import KernelFacts, Timing
from diode_engine.errors import RecordError
from tests.samples import timing_at

USUAL = {"op": "mm", "M": 48, "N": 80, "K": 96, "dtype": "float16"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"M": 1, "a_layout": "row"}, {"M": 1, "a_layout": "col"}),
        ({"M": 1, "a_layout": "row", "a_align": 1}, {"M": 1}),
        ({"K": 1, "a_layout": "row"}, {"K": 1, "a_layout": "col"}),
        ({"K": 1, "b_layout": "row"}, {"K": 1, "b_layout": "col", "b_align": 1}),
        ({"N": 1, "b_layout": "row"}, {"N": 1, "b_layout": "col", "b_align": 4}),
        ({"op": "addmm", "M": 1, "bias": "vector"}, {"op": "addmm", "M": 1, "bias": "matrix"}),
        ({"op": "addmm", "N": 1, "bias": "column"}, {"op": "addmm", "N": 1, "bias": "matrix"}),
        ({"op": "addmm", "N": 1, "bias": "vector"}, {"op": "addmm", "N": 1, "bias": "scalar"}),
        ({"op": "baddbmm", "B": 1, "M": 1, "bias": "vector"}, {"op": "baddbmm", "B": 1, "M": 1}),
        ({"op": "bmm", "B": 4, "a_batch": "outer"}, {"op": "bmm", "B": 4}),
        ({"op": "bmm", "B": 1, "a_batch": "inner", "a_align": 1}, {"op": "bmm"}),
        (
            {"op": "bmm", "B": 4, "M": 1, "a_batch": "inner"},
            {"op": "bmm", "B": 4, "M": 1, "a_layout": "col", "a_align": 4},
        ),
        (
            {"op": "bmm", "B": 4, "a_batch": "inner", "a_align": 8},
            {"op": "bmm", "B": 4, "a_batch": "inner"},
        ),
    ],
)
def test_a_dimension_of_one_leaves_one_name(one, other):
    problem, same = Problem.make(**(USUAL | one)), Problem.make(**(USUAL | other))
    assert problem == same
    assert problem.to_dict() == same.to_dict()
    assert problem.key == Problem.from_dict(problem.to_dict()).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"N": 1, "b_align": 8}, {"N": 1}),  # every eighth element, and all of them
        ({"B": 3, "M": 1, "op": "baddbmm"}, {"B": 3, "M": 1, "op": "baddbmm", "bias": "vector"}),
        ({"M": 48, "a_layout": "row"}, {"M": 48, "a_layout": "col"}),
    ],
)
def test_what_differs_keeps_its_names(one, other):
    assert Problem.make(**(USUAL | one)) != Problem.make(**(USUAL | other))


@pytest.mark.parametrize(
    ("rows", "cols", "stride", "operand"),
    [
        (1, 33, (7, 1), Operand(Layout.ROW, 1)),
        (1, 33, (1, 8), Operand(Layout.COL, 8)),
        (33, 1, (1, 5), Operand(Layout.COL, 1)),
        (32, 1, (4, 9), Operand(Layout.ROW, 4)),
        (1, 1, (3, 5), Operand(Layout.ROW, 1)),
        (4, 6, (1, 1), Operand(Layout.ROW, 1)),
        (4, 6, (12, 2), None),
    ],
)
def test_operands_by_their_strides(rows, cols, stride, operand):
    assert Operand.from_strides(rows, cols, stride) == operand


@pytest.mark.parametrize("name", MAX_VALUES)
@pytest.mark.parametrize("value", [-1, 10**5000, 2**63, 1.5, True, None], ids=range(6))
def test_impossible_hardware_is_refused(name, value):
    with pytest.raises(RecordError, match=f"hardware's {name} is .*; it must be a whole number"):
        replace(H200, **{name: value})


@pytest.mark.parametrize(("layout", "strides"), [("row", (1, 96 * 5, 5)), ("col", (1, 5, 48 * 5))])
def test_the_batch_of_an_operand_may_be_innermost(layout, strides):
    usual = Problem.make("bmm", 48, 80, 96, "float16", B=5, a_layout=layout)
    problem = Problem.make("bmm", 48, 80, 96, "float16", B=5, a_layout=layout, a_batch="inner")
    shapes, others = problem.input_shapes(), usual.input_shapes()
    assert shapes["a"].stride == strides
    assert shapes["b"] == others["b"]
    assert problem.inner_batches == ("a",)
    assert problem.key != usual.key
    assert Problem.from_dict(problem.to_dict()) == problem
    assert "a_batch=inner" in str(problem)


@pytest.mark.parametrize("given", [{"op": "mm"}, {"op": "bmm", "B": 4, "a_batch": "middle"}])
def test_a_batch_that_lies_nowhere_is_refused(given):
    with pytest.raises(RecordError, match="a_batch"):
        Problem.make(**{"M": 48, "N": 80, "K": 96, "dtype": "float16", "a_batch": "inner", **given})


def test_a_huge_size_is_refused():
    with pytest.raises(RecordError, match="M is a number of more than 64 bits"):
        Problem.make("mm", 10**5000, 1, 1, "float16")


def test_a_gpu_has_multiprocessors_and_a_cpu_none():
    with pytest.raises(RecordError, match="from 1 to"):
        replace(H200, multiprocessors=0)
    assert Hardware("cpu", "x", "x86_64", 0, 0, 0, 0, 0, 0, 0).multiprocessors == 0


def test_a_kwarg_of_more_than_64_bits_is_refused():
    Candidate.make("a", x=2**64 - 1)
    with pytest.raises(RecordError, match="kwarg x is a whole number of more than 64 bits"):
        Candidate.make("a", x=2**64)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"min_us": 2.0, "median_us": 1.0}, "more than its median_us"),
        ({"min_us": 3.7e9}, "an hour"),
        ({"median_us": float("inf")}, "an hour"),
        ({"median_us": 1.0, "spread_us": 1e10}, "an hour"),
        ({"median_us": 1.0, "repeats": 2**40}, "repeats"),
        ({"median_us": 1.0, "kernel": KernelFacts(64, 0, -1, 0, 9)}, "kernel"),
    ],
)
def test_impossible_timings_are_refused(fields, says):
    with pytest.raises(RecordError, match=says):
        Timing(**fields)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [("min_us", 5.0, "larger than its median"), ("median_us", 4e9, "more than an hour"),
     ("spread_us", 4e9, "over an hour")],
)  # fmt: skip
def test_impossible_columns_are_refused(column, value, says):
    problem = Problem.make("mm", 8, 8, 8, "float16")
    environment = Environment(H200, "", "", "")
    table = TimingTable.from_records(
        [(problem, Candidate.make("a"), environment, Timing(min_us=1.0, median_us=2.0))]
    )
    with pytest.raises(RecordError, match=says):
        replace(table, **{column: np.array([value])})


def test_facts_of_kernels_stay_with_their_rows():
    problem, environment = Problem.make("mm", 8, 8, 8, "float16"), Environment(H200, "", "", "")
    facts = KernelFacts(255, 64, 128, 4096, 1000)
    timings = (Timing(min_us=1.0), Timing(min_us=2.0, kernel=facts))
    rows = [(problem, Candidate.make("a"), environment, timing) for timing in timings]
    table = TimingTable.from_records(rows)
    assert (timing_at(table, 0), timing_at(table, 1)) == timings
    assert timing_at(table.take(np.array([1])), 0) == timings[1]
    assert table.take(table.time_us > 5).kernel is not None
    assert TimingTable.from_records(rows[:1]).kernel is None
    partly = table.kernel.copy()
    partly[0, 2] = 5
    for wrong, says in (
        (partly, "only some of a kernel's facts"),
        (table.kernel[:1], "must have all facts"),
    ):
        with pytest.raises(RecordError, match=says):
            replace(table, kernel=wrong)


TILES = np.array([[16, 128], [32, 256], [64, 16], [5, 1], [2, 8], [8, 4]])
LISTED = (
    Candidate("aten::bias_addmm"),
    Candidate.make("decompose_k", k_split=4),
    Candidate("foreign"),
    Candidate("aten::bias_addmm"),
)


def _same(columns: CandidateColumns, other: CandidateColumns) -> bool:
    return all(
        np.array_equal(getattr(columns, field.name), getattr(other, field.name))
        for field in fields(CandidateColumns)
    )


def test_tiles_are_candidates():
    table = CandidateTable.tiled("triton::mm", TILES)
    assert table[1] == Candidate.make(
        "triton::mm",
        BLOCK_M=128, BLOCK_N=256, BLOCK_K=16, num_stages=1, num_warps=8, GROUP_M=4,
    )  # fmt: skip
    assert table[-1] == table[1]
    assert encode(table) is table.columns
    assert _same(table.columns, encode(tuple(table)))


def test_joined_tables_are_one():
    parts = [
        CandidateTable.make(LISTED[:2]),
        CandidateTable.tiled("triton::mm", TILES),
        CandidateTable.make(LISTED[2:]),
    ]
    table = CandidateTable.joined(parts)
    assert tuple(table) == tuple(candidate for part in parts for candidate in part)
    assert _same(table.columns, encode(tuple(table)))
    assert len(CandidateTable.joined(())) == 0


def test_a_part_is_taken():
    table = CandidateTable.joined(
        [CandidateTable.make(LISTED), CandidateTable.tiled("triton::bmm", TILES)]
    )
    which = np.array([True, False, False, True, False, True])
    part = table.take(which)
    assert tuple(part) == (table[0], table[3], table[5])
    assert np.array_equal(part.columns.block_m, table.columns.block_m[which])
    assert table.take(which) is part
    assert table.take(~which)[0] == table[1]
    assert table.take(np.ones(6, bool)) is table
