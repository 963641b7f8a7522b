"""The form of a problem follows the table of operators: types, layouts and what only an op has."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Select

from diode_app.data.choice import Question
from diode_app.data.predictors import Model
from diode_app.widgets.problem_form import ProblemForm
from diode_engine.cli.explain import _attributes, explain
from diode_engine.core.hardware import H200
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem

MM = Problem.make("mm", 512, 4096, 1024, "bfloat16", b_layout="col")
PROBLEMS = (
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


class Form(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[Problem | str | None] = []

    def compose(self) -> ComposeResult:
        yield ProblemForm(MM)

    def on_problem_form_changed(self, event: ProblemForm.Changed) -> None:
        self.said.append(event.problem or event.why)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
async def test_what_is_put_is_what_it_says(problem: Problem) -> None:
    app = Form()
    async with app.run_test(size=(120, 10)) as pilot:
        form = app.query_one(ProblemForm)
        form.put(problem)
        await pilot.pause()
        assert form.problem() == problem
        shown = [line.id for line in app.query(".problem-own") if line.display]
        assert shown == ([f"problem-of-{problem.op}"] if problem.op.attributes else [])
        form.put(MM)
        await pilot.pause()
        assert form.problem() == MM
        assert app.said[-1] == MM


@pytest.mark.parametrize("op", OPERATORS)
async def test_every_op_can_be_chosen(op: str) -> None:
    """A type or layout that the op does not have becomes one that it has."""
    app = Form()
    async with app.run_test(size=(120, 10)) as pilot:
        app.query_one("#problem-op", Select).value = op
        await pilot.pause()
        made = app.query_one(ProblemForm).problem()
        assert (made.op, made.M, made.N, made.K) == (op, 512, 4096, 1024)
        assert made.dtype in made.op.dtypes
        assert (made.a.layout, made.b.layout) in made.op.layouts
        assert app.said[-1] == made


async def test_what_only_the_op_has_can_be_chosen() -> None:
    app = Form()
    async with app.run_test(size=(120, 10)) as pilot:
        app.query_one("#problem-op", Select).value = "scaled_mm"
        await pilot.pause()
        app.query_one("#problem-scaled_mm-scaling", Select).value = "row"
        app.query_one("#problem-scaled_mm-fast_accum", Select).value = "True"
        app.query_one("#problem-dtype", Select).value = "float8_e5m2"
        await pilot.pause()
        assert app.said[-1] == Problem.make(
            "scaled_mm", 512, 4096, 1024, "float8_e5m2", scaling="row", fast_accum=True
        )


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_explain_is_told_the_same_problem(problem: Problem, tmp_path) -> None:
    words = Question(problem, Model("m@1", tmp_path, "", H200, 1.0), None, H200).words
    assert words is not None
    given = explain.make_context("explain", list(words)).params
    a, b = given["layouts"].split("/")
    assert problem == Problem.make(
        given["op"], given["m"], given["n"], given["k"], given["dtype"], B=given["batch"],
        a_layout=a, b_layout=b, bias=given["bias"], **_attributes(given["op"], given["attributes"]),
    )  # fmt: skip
