"""The problem that is read from Inductor's kernel inputs is the one that it was asked for."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.exc import InductorError
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.lowering import lowerings
from torch._inductor.select_algorithm import NoValidChoicesError
from torch._inductor.virtualized import V

import diode_engine
from diode_engine import paths
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.operand import Bias, Layout, Operand
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing import product_chooser
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.candidates import (
    is_broadcast,
    problem_from,
    problem_of,
    tf32_allowed,
)
from diode_engine.inductor.without_gpu import lower
from diode_engine.store import read_dataset
from tests.inductor_nogpu.conftest import Build, FixedPredictor, build_of, install
from tests.inductor_nogpu.conftest import empty as any_empty

WITH_A_ONE = [
    Problem.make("mm", 1, 768, 1001, "float16"),
    Problem.make("mm", 768, 1, 1001, "float16", b_layout="col"),
    Problem.make("mm", 100, 100, 1, "bfloat16"),
    Problem.make("mm", 100, 1, 64, "bfloat16", b_align=8),  # every eighth element
    Problem.make("mm", 1, 1, 64, "float32"),
    Problem.make("addmm", 1, 768, 64, "float16", bias="matrix"),
    Problem.make("bmm", 197, 32, 1, "float16", B=7),
    Problem.make("baddbmm", 1, 64, 32, "float16", B=7),
    Problem.make("baddbmm", 1, 64, 32, "float16", B=7, bias="vector"),
    Problem.make("baddbmm", 64, 1, 32, "float16", B=7, bias="column"),
]
BIASES = [
    Problem.make(op, 48, 64, 32, "bfloat16", B=3 if op == "baddbmm" else 1, bias=bias)
    for op in ("addmm", "baddbmm")
    for bias in ("vector", "column", "matrix")  # a scalar is made a matrix before it is asked for
]
ALIGNED = [
    Problem.make("mm", 48, 80, 112, "float16", a_layout=layout, a_align=align, b_align=align)
    for align in (1, 2, 4, 8, 16)
    for layout in Layout
]


def shipped() -> list[Problem]:
    """A few of each op, type and layout, and all that have a dimension of length 1."""
    problems: dict[Problem, None] = {}
    for file in sorted((paths.shipped_dir() / "datasets").glob("*/*.msgpack.zst")):
        problems |= dict.fromkeys(read_dataset(file).problems)
    kinds: dict[Any, Problem] = {}
    for p in problems:
        kinds.setdefault((p.op, p.dtype, p.allow_tf32, p.a.layout, p.b.layout), p)
    ones = [p for p in problems if 1 in (p.M, p.N, p.K)]
    found = dict.fromkeys([*kinds.values(), *ones])
    return [p for p in found if p.bias is not Bias.SCALAR]


class Notes(InductorChoices):
    """Notes what is asked and offers nothing."""

    def __init__(self) -> None:
        self.asked: list[Problem | None] = []

    def _finalize_template_configs(
        self, template_choices: Any, kernel_inputs: Any, templates: Any, op_name: str, *_: Any
    ) -> list[Any]:
        self.asked.append(problem_of(kernel_inputs, op_name))
        return []


def asked(problem: Problem) -> list[Problem | None]:
    """What Inductor's lowering of the op asks for."""
    notes = Notes()
    with (
        kernels.graph_for(problem, torch.device("cuda", 0)) as operands,
        config.patch(kernels.autotuning_options(optional=False)),
        V.set_choices_handler(notes),
        contextlib.suppress(NoValidChoicesError),
    ):
        lowerings[getattr(torch.ops.aten, str(problem.op)).default](*operands)
    return notes.asked


def test_shipped_problems_come_back_as_they_went_in():
    problems = shipped()
    assert len(problems) > 60
    assert {p.op for p in problems} == {"mm", "addmm", "bmm", "baddbmm"}
    differ = {p: came for p in problems if (came := asked(p)[0]) != p}
    assert differ == {}


@pytest.mark.parametrize("problem", WITH_A_ONE + BIASES + ALIGNED, ids=lambda p: f"{p} {p.bias}")
def test_odd_problems_come_back_as_they_went_in(problem):
    assert set(asked(problem)) == {problem}  # addmm asks twice


def test_a_bias_that_is_computed_and_transposed_is_a_matrix():
    """Until torch 2.12 such a bias is no buffer when the kernel is asked for, and has no strides;
    it is computed into one without gaps."""
    like = Problem.make("addmm", 48, 64, 32, "float32", bias="matrix")
    with kernels.graph_for(like, torch.device("cuda", 0)) as (bias, a, b):
        turned = lowerings[torch.ops.aten.permute.default](bias, [1, 0])
        doubled = lowerings[torch.ops.aten.mul.Tensor](turned, 2)
        computed = lowerings[torch.ops.aten.permute.default](doubled, [1, 0])
        inputs = MMKernelInputs([computed, a, b], scalars={"alpha": 1, "beta": 1})
        with pytest.raises(NotImplementedError):
            inputs.strides_hinted()
        assert problem_of(inputs, "addmm") == like
        assert not is_broadcast(inputs, "addmm")


empty = partial(any_empty, dtype=torch.float16)


def strided(shape: tuple[int, ...], *stride: int) -> torch.Tensor:
    return torch.empty_strided(shape, stride, dtype=torch.float16, device="cuda")


COMPILED: dict[str, tuple[Build, Operand, Operand, Bias]] = {
    "padded rows": (
        lambda: (torch.mm, (strided((64, 1024), 1030, 1), empty(1024, 100))),
        Operand(Layout.ROW, 2), Operand(Layout.ROW, 4), Bias.NONE,
    ),
    "transposed": (
        lambda: (torch.mm, (strided((64, 1024), 1, 64), strided((1024, 99), 1, 1024))),
        Operand(Layout.COL, 16), Operand(Layout.COL, 16), Bias.NONE,
    ),
    "expanded bias": (
        lambda: (torch.addmm, (empty(64, 1).expand(64, 96), empty(64, 32), empty(32, 96))),
        Operand(Layout.ROW, 16), Operand(Layout.ROW, 16), Bias.COLUMN,
    ),
    "one row of a wide matrix": (
        lambda: (
            torch.baddbmm,
            (empty(4, 1, 96), strided((4, 1, 32), 99, 33, 1), empty(4, 32, 96)),
        ),
        Operand(Layout.ROW, 16), Operand(Layout.ROW, 16), Bias.MATRIX,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "a", "b", "bias"), COMPILED.values(), ids=COMPILED)
def test_views_are_what_their_strides_say(build, a, b, bias, predictor):
    lower(build)
    ((problem, _), *_) = predictor.asked
    assert (problem.a, problem.b, problem.bias) == (a, b, bias)


def einsum(equation: str, *shapes: tuple[int, ...]) -> Build:
    return lambda: (partial(torch.einsum, equation), [empty(*shape) for shape in shapes])


INNER: dict[str, tuple[Build, dict[str, Any]]] = {
    "outgoing edges": (
        einsum("bikc,bjkc->bijc", (1, 64, 96, 32), (1, 80, 96, 32)),
        {"a_batch": "inner", "b_batch": "inner", "b_layout": "col"},
    ),
    "incoming edges": (
        einsum("bkic,bkjc->bijc", (1, 96, 64, 32), (1, 96, 80, 32)),
        {"a_batch": "inner", "b_batch": "inner", "a_layout": "col"},
    ),
    "without a batch of programs": (
        einsum("ikc,jkc->ijc", (64, 96, 32), (80, 96, 32)),
        {"a_batch": "inner", "b_batch": "inner", "b_layout": "col"},
    ),
    "Fourier modes": (
        einsum("bixy,ioxy->boxy", (64, 96, 4, 8), (96, 80, 4, 8)),
        {"a_batch": "inner", "b_batch": "inner"},
    ),
    "one of them": (
        lambda: (torch.bmm, (empty(64, 96, 32).permute(2, 0, 1), empty(32, 96, 80))),
        {"a_batch": "inner"},
    ),
    "a batch inside the rows": (
        lambda: (torch.bmm, (strided((32, 64, 96), 96, 32 * 96, 1), empty(32, 96, 80))),
        {},
    ),
    "gaps between rows and batches": (
        lambda: (torch.bmm, (strided((32, 64, 96), 10000, 104, 1), empty(32, 96, 80))),
        {"a_align": 8},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "fields"), INNER.values(), ids=INNER)
def test_any_layout_of_a_batch_is_a_problem_with_a_choice(build, fields, predictor):
    predictor.aten = 500.0
    (seen,) = lower(build).seen
    ((problem, _), *_) = predictor.asked
    assert problem == Problem.make("bmm", 64, 80, 96, "float16", B=32, **fields)
    assert diode_engine.get_stats()["fallbacks"] == 0
    assert [candidate.template for candidate in seen.candidates] == ["triton::bmm"]


def test_other_gaps_between_elements_count_as_an_innermost_batch():
    sizes, types = [(32, 64, 96), (32, 96, 80)], [torch.float16] * 2
    for steps, layout in (((64 * 96 * 3, 96 * 3, 3), "row"), ((64 * 96 * 3, 3, 64 * 3), "col")):
        strides = [steps, (96 * 80, 80, 1)]
        problem = problem_from(OPERATORS["bmm"], sizes, strides, types, torch.float16)
        assert problem == Problem.make(
            "bmm", 64, 80, 96, "float16", B=32, a_layout=layout, a_batch="inner"
        )


def test_a_matrix_that_stands_for_a_batch_gets_the_library_s_kernel():
    install(FixedPredictor(aten=500.0))
    product = lambda a, b: torch.bmm(a.expand(32, 64, 96), b)  # noqa: E731
    lowered = lower(build_of(product, (1, 64, 96), (32, 96, 80)))
    assert [c.template for c in lowered.seen[0].candidates] == ["aten::bmm"]
    assert diode_engine.get_stats()["fallbacks"] == 0


@pytest.fixture
def precision():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    yield matmul
    matmul.allow_tf32 = False  # the older switch agrees again
    matmul.fp32_precision = before


@pytest.mark.parametrize("value", ["tf32", "ieee"])
@pytest.mark.parametrize("older", [False, True])
def test_tf32_by_either_of_torchs_switches(value, older, precision, predictor):
    if older:
        precision.allow_tf32 = value == "tf32"
    else:
        precision.fp32_precision = value
    build = build_of(torch.mm, (64, 32), (32, 96), dtype=torch.float32)
    if value == "tf32" and not older and torch.__version__ < (2, 11):
        # torch 2.10's Inductor reads the older switch, which raises now, with Diode or without
        for _ in range(2):
            with pytest.raises(InductorError, match="mix of the legacy and new APIs"):
                lower(build)
            diode_engine.uninstall_diode_choices()
        return
    lower(build)
    assert [p.allow_tf32 for p, _ in predictor.asked] == [value == "tf32"]
    for wanted in (False, True):
        kept = precision.fp32_precision
        with kernels.tf32(wanted):
            assert tf32_allowed() == wanted
        assert precision.fp32_precision == kept
    assert diode_engine.get_stats()["fallbacks"] == 0


def test_another_gpu_gets_the_library_s_kernel(predictor, monkeypatch):
    other = Hardware.from_dict({**H200.to_dict(), "name": "NVIDIA H100"})
    monkeypatch.setattr(product_chooser, "detect", lambda index: other)
    lowered = lower(lambda: (torch.mm, (empty(64, 32), empty(32, 96))))
    assert [c.template for c in lowered.seen[0].candidates] == ["aten::mm"]
    assert predictor.asked == []
    assert diode_engine.get_stats()["fallback_other_device"] == 1


def test_the_cpu_is_left_to_stock(predictor):
    lower(lambda: (torch.mm, (empty(64, 32, device="cpu"), empty(32, 96, device="cpu"))))
    assert predictor.asked == []
    assert diode_engine.get_stats()["total_calls"] == 0
