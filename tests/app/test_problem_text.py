"""A problem on one line, of every operator: types, layouts and what only an op has."""

import pytest

from diode_app.data.choice import Question
from diode_app.data.predictors import Model
from diode_app.data.problem_text import parse_problem, write_problem
from diode_engine.cli.explain import _attributes
from diode_engine.cli.group import parse
from diode_engine.core.hardware import H200
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.errors import RecordError

PROBLEMS = (
    Problem.make("baddbmm", 8, 16, 32, "float32", B=3, allow_tf32=True),
    Problem.make("addmm", 512, 4096, 1024, "float16", b_layout="col"),
    Problem.make("scaled_mm", 512, 4096, 1024, "float8_e4m3fn"),
    Problem.make(
        "scaled_mm", 512, 4096, 1024, "float8_e5m2", scaling="row", fast_accum=True,
        b_dtype="float8_e5m2", bias="vector",
    ),
    Problem.make("int_mm", 512, 4096, 1024, "int8", b_layout="col"),
    Problem.make("mm_plus_mm", 512, 4096, 1024, "float16", d_layout="col"),
    Problem.make("grouped_mm_rows", 512, 4096, 1024, "bfloat16", B=64, b_layout="col"),
)  # fmt: skip
UNUSUAL = (  # which explain cannot be asked
    Problem.make("mm", 33, 65, 129, "float32", a_align=4, allow_tf32=True),
    Problem.make("mm", 33, 65, 129, "bfloat16", out_dtype="float32"),
    Problem.make("mm", 8, 16, 32, "float64"),
)


@pytest.mark.parametrize("problem", [*PROBLEMS, *UNUSUAL], ids=str)
def test_what_is_written_is_read(problem):
    assert parse_problem(write_problem(problem)) == problem


@pytest.mark.parametrize("op", OPERATORS)
def test_sizes_alone_are_a_problem_of_every_op(op):
    batch = "2 " if OPERATORS[op].batched else ""
    made = parse_problem(f"{op} {batch}512×4096×1024")
    assert (made.op, made.M, made.N, made.K) == (op, 512, 4096, 1024)
    assert made.dtype in made.op.dtypes


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "no operator"), ("gemm 1 2 3", "gemm is no operator"), ("mm 1 2", "M, N and K"),
        ("bmm 8 1 2", None), ("mm 1 2 3 fat", "fat is no size, type or layout"),
        ("mm 1 2 3 scaling=row", "mm has no scaling; it has bias"), ("mm 1 2 0", "K"),
        ("scaled_mm 1 2 3 e4m3 scaling=wide", "scaling"), ("mm 1 2 3 bf16 up/down", "layout"),
        ("mm 1 2 3 a_align=x", "align"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(given, why):
    if why is None:  # the batch may be left out
        assert parse_problem(given).B == 1
        return
    with pytest.raises(RecordError, match=why):
        parse_problem(given)


@pytest.mark.parametrize("problem", [*PROBLEMS, *UNUSUAL], ids=str)
def test_explain_is_told_the_same_problem(problem, tmp_path):
    words = Question(problem, Model("m@1", tmp_path, "", H200, 1.0), None, H200).words
    assert (words is None) is (problem in UNUSUAL)
    if words is None:
        return
    given = parse("explain", words)
    a, b = given["layouts"].split("/")
    tf32 = given["dtype"] == "tf32"
    assert problem == Problem.make(
        given["op"], given["m"], given["n"], given["k"], "float32" if tf32 else given["dtype"],
        B=given["batch"], a_layout=a, b_layout=b, bias=given["bias"], allow_tf32=tf32,
        **_attributes(given["op"], given["attributes"]),
    )  # fmt: skip
