"""Products of groups, whose choices Inductor makes beside the hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor.kernel import mm_grouped

import diode_engine
from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import GROUPED, OPERATORS, SCALED_GROUPED
from diode_engine.core.problem import Problem
from diode_engine.inductor import without_gpu
from diode_engine.inductor.lowering import kernels
from diode_engine.problems.spaces import default_space, exhaustive_space
from tests.inductor_nogpu.conftest import FixedPredictor, install, preprocessing_by, tensors_of
from tests.inductor_nogpu.test_capture import problems

# Of the library, in a generated program.
CALL = "extern_kernels._grouped_mm("
CALLS = (CALL, "torch.ops.aten._scaled_grouped_mm.default(", "extern_kernels._scaled_grouped_mm(")
EVERY = (*GROUPED, *SCALED_GROUPED)
BEST = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 4, "num_warps": 8}


def sizes(op: str, m: int = 4096, n: int = 2816, k: int = 2048) -> Problem:
    fields: dict[str, Any] = {"fast_accum": True} if OPERATORS[op].attributes else {}
    return Problem.make(op, m, n, k, OPERATORS[op].dtypes[0], B=64, b_layout="col", **fields)


def template_of(op: str) -> Any:
    """Inductor's template of Triton."""
    scaled = "scaled_" if OPERATORS[op] in SCALED_GROUPED else ""
    return getattr(mm_grouped, f"triton_{scaled}grouped_mm_template")


@pytest.mark.parametrize("rows", [1, 16, 17, 33, 64, 65])
@pytest.mark.parametrize("op", EVERY)
def test_the_spaces_are_those_of_inductor(op, rows):
    problem = sizes(op, m=64 * rows if op.endswith("_rows") else rows)
    with kernels.graph_for(problem, torch.device("cuda", 0)) as operands:
        offered = kernels.offered(problem.op, operands, fields=problem.op_fields)
        assert tuple(offered) == default_space(problem) == exhaustive_space(problem)
        *_, last = offered.values()
        description = last.choice.description
    assert all(f"{name}={value}" in description for name, value in last.params.to_kwargs().items())


def experts(
    op: str = "grouped_mm_rows", *, tokens: int = 4096, epilogue: bool = True
) -> Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]:
    def build() -> tuple[Callable[..., Any], tuple[Any, ...]]:
        problem = sizes(op, m=tokens)

        def run(*operands: Any) -> Any:
            product = getattr(torch, problem.op.aten)
            out = product(*operands, **problem.op.keywords(torch, problem.op_fields))
            return torch.relu(out) if epilogue else out

        return run, tuple(tensors_of(problem))

    return build


@pytest.fixture
def left():
    """How many choices Inductor was left with, for each product; it is given the first of them, so
    that nothing is to be benchmarked."""
    counts: list[int] = []

    def count(choices):
        counts.append(len(choices))
        return choices[:1]

    with preprocessing_by(count):
        yield counts


@pytest.mark.parametrize("op", EVERY)
def test_one_kernel_is_chosen_and_no_other_is_rendered(op, monkeypatch):
    rendered: list[dict[str, Any]] = []
    template = template_of(op)
    append = template.maybe_append_choice

    def noting(choices, **kwargs):
        rendered.append(kwargs)
        return append(choices, **kwargs)

    monkeypatch.setattr(template, "maybe_append_choice", noting)
    predictor = FixedPredictor(best=BEST)
    install(predictor)
    lowered = without_gpu.lower(experts(op))  # where several are left it raises
    assert [{name: kwargs[name] for name in BEST} for kwargs in rendered] == [BEST]
    assert [problem for problem, _ in predictor.asked] == [sizes(op)]
    assert "BLOCK_K : tl.constexpr = 64" in lowered.sources[0]
    assert "def triton_" in lowered.sources[0]
    assert not any(call in lowered.sources[0] for call in CALLS)
    stats = diode_engine.get_stats()
    assert (stats["model_selections"], stats["benchmarked"], stats["fallbacks"]) == (1, 0, 0)


@pytest.mark.parametrize("op", ["grouped_mm_rows", "scaled_grouped_mm_rows"])
def test_the_librarys_kernel_is_chosen_without_rendering_another(op):
    install(FixedPredictor(aten=0.5))
    lowered = without_gpu.lower(experts(op, epilogue=False))
    assert any(call in lowered.sources[0] for call in CALLS)
    assert "triton_tem" not in lowered.sources[0]
    assert diode_engine.get_stats()["model_selections"] == 1


def test_several_that_are_kept_are_left_to_inductor(left):
    install(FixedPredictor(best=BEST), top_k_configs=3, performance_threshold=1e9)
    without_gpu.lower(experts())
    assert left == [4]  # and the library's


@pytest.mark.parametrize("op", ["grouped_mm_rows", "scaled_grouped_mm_rows"])
def test_what_the_model_does_not_know_gets_the_library_s_kernel(op, left):
    predictor = FixedPredictor(best=BEST)
    predictor.ops = frozenset({"mm"})
    install(predictor)
    lowered = without_gpu.lower(experts(op))
    assert left == [1]
    assert any(call in lowered.sources[0] for call in CALLS)
    assert not predictor.asked
    stats = diode_engine.get_stats()
    passed = f"passed_{OPERATORS[op].aten.removeprefix('_')}"
    assert (stats[passed], stats["fallbacks"]) == (1, 0)
    without_gpu.lower(experts(op), options={"diode_fallback_to_autotune": True})
    assert left == [1, len(default_space(sizes(op)))]


def test_where_a_choice_cannot_be_rendered_the_library_s_kernel_is_taken(monkeypatch, left):
    template = mm_grouped.triton_grouped_mm_template
    append = template.maybe_append_choice
    calls: list[Any] = []

    def failing(choices, **kwargs):
        calls.append(kwargs)
        if len(calls) == 1:
            raise ArithmeticError("made up")
        return append(choices, **kwargs)

    monkeypatch.setattr(template, "maybe_append_choice", failing)
    install(FixedPredictor(best=BEST))
    lowered = without_gpu.lower(experts())
    assert left == [1]
    assert CALL in lowered.sources[0]
    assert diode_engine.get_stats()["fallbacks"] == 1


def test_the_fast_mode_chooses_them_too():
    predictor = FixedPredictor(best=BEST)
    install(predictor)
    lowered = without_gpu.lower(experts(), mode="default", options={"fast_autotune": True})
    assert CALL not in lowered.sources[0]
    assert predictor.asked


def test_the_candidates_have_their_columns():
    from diode_engine.core.encoding import encode

    candidates = default_space(sizes("grouped_mm_rows"))
    columns = encode(candidates)
    assert columns.known.all()
    assert columns.extern.sum() == 1
    assert columns.persistent.sum() == columns.tma.sum() == len(candidates) - 1
    made = [Candidate.make("triton::grouped_mm", **dict(c.kwargs)) for c in candidates[1:]]
    assert tuple(made) == candidates[1:]


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("op", EVERY)
def test_they_are_captured_and_left_to_the_library(op, mode, notes, monkeypatch):
    rendered: list[Any] = []
    monkeypatch.setattr(
        template_of(op),
        "maybe_append_choice",
        lambda choices, **kwargs: rendered.append(kwargs),
    )
    lowered = without_gpu.lower(experts(op), mode=mode)  # raises where one is to be benchmarked
    assert problems(notes) == [sizes(op)]
    assert any(call in lowered.sources[0] for call in CALLS)
    assert not rendered


def test_the_newer_function_of_products_in_8_bits_is_always_the_librarys():
    """torch.nn.functional.scaled_grouped_mm: docs/integration.md says that it has no lowering."""
    from torch._inductor.lowering import lowerings

    assert torch.ops.aten._scaled_grouped_mm.default in lowerings
    assert torch.ops.aten._scaled_grouped_mm_v2.default not in lowerings
