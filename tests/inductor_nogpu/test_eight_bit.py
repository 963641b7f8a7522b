"""scaled_mm, int_mm and mm_plus_mm: what Inductor offers and says of them, and Diode's choice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import diode_engine
from diode_engine.collect.workers.inputs import empty_output, random_inputs, reference
from diode_engine.collect.workers.timer import is_right, spoil
from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.candidates import is_usable
from diode_engine.inductor.without_gpu import lower
from diode_engine.problems.spaces import exhaustive_space
from tests.inductor_nogpu.conftest import FixedPredictor, install, marked, tensors_of
from tests.inductor_nogpu.conftest import empty as any_empty
from tests.inductor_nogpu.test_capture import problems

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
F8, F8_WIDE = torch.float8_e4m3fn, torch.float8_e5m2


empty = functools.partial(any_empty, dtype=F8)


def scaled(
    *scales: tuple[int, ...], b: torch.dtype = F8, bias: bool = False, **keywords: Any
) -> Callable[[], Any]:
    def build() -> Any:
        operands = [empty(512, 1024), empty(256, 1024, dtype=b).t()]
        operands += [empty(*size, dtype=torch.float32) for size in scales]
        function = functools.partial(torch._scaled_mm, **keywords)
        return function, [*operands, *([empty(256, dtype=torch.bfloat16)] if bias else [])]

    return build


def whole() -> Any:
    return torch._int_mm, (
        empty(512, 1024, dtype=torch.int8),
        empty(256, 1024, dtype=torch.int8).t(),
    )


def two() -> Any:
    a, b, c, d = (empty(*size, dtype=torch.bfloat16) for size in ((512, 1024), (256, 1024)) * 2)
    return (lambda a, b, c, d: a @ b + c @ d), (a, b.t(), c, d.t())


def made(op: str, dtype: str, **fields: Any) -> Problem:
    return Problem.make(op, 512, 256, 1024, dtype, **fields)


BF16: dict[str, Any] = {"out_dtype": torch.bfloat16}
PROGRAMS: dict[str, tuple[Callable[[], Any], Problem]] = {
    "one scale": (
        scaled((), (), use_fast_accum=True, **BF16), made("scaled_mm", E4M3, fast_accum=True),
    ),
    "a row each": (
        scaled((512, 1), (1, 256), **BF16), made("scaled_mm", E4M3, scaling="row"),
    ),
    "two types and a bias": (
        scaled((), (), b=F8_WIDE, bias=True, **BF16),
        made("scaled_mm", E4M3, b_dtype=E5M2, bias="vector"),
    ),
    "whole numbers": (whole, made("int_mm", "int8", b_layout="col")),
    "two products": (
        two, made("mm_plus_mm", "bfloat16", b_layout="col", d_layout="col"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "problem"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_has_the_predicted_kernel(build, problem):
    best = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 8}
    predictor = FixedPredictor(best=best)
    install(predictor)
    [seen] = lower(build).seen  # raises where something is to be benchmarked
    # Whether two products become one op is asked before that is lowered.
    [(asked, offered)] = set(predictor.asked)
    assert asked == problem
    assert offered <= len(exhaustive_space(problem, torch.__version__))
    [chosen] = seen.candidates
    assert {name: chosen.config[name] for name in best} == best
    assert not chosen.is_extern
    before = len(predictor.asked)
    again = lower(build).seen
    assert [one.candidates for one in again] == [seen.candidates]
    assert (len(predictor.asked), diode_engine.get_stats()["fallbacks"]) == (before, 0)


BLOCKS = "triton::scaled_mm_device_tma_main_loop_scaling"


def test_from_which_torch_on_the_template_reads_scales_of_blocks_as_they_lie():
    from torch._inductor.kernel.mm_common import load_kernel_template

    source = load_kernel_template("triton_main_loop_scaled_mm")
    assert ('stride("A_inverse_scale"' in source) == is_usable(BLOCKS)
    assert is_usable("triton::mm")


@pytest.mark.parametrize("scaling", ["1x128_128x128", "1x128_1x128"])
def test_no_kernel_is_taken_that_reads_other_scales(scaling):
    problem = made("scaled_mm", E4M3, scaling=scaling)

    def build():
        return functools.partial(torch._scaled_mm, **BF16), tensors_of(problem)

    best = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 8}
    predictor = FixedPredictor(best=best)
    install(predictor)
    [seen] = lower(build, options={"triton.enable_persistent_tma_matmul": True}).seen
    [chosen] = seen.candidates
    assert {p for p, _ in predictor.asked} == {problem}
    assert chosen.template == (BLOCKS if is_usable(BLOCKS) else "aten::_scaled_mm")
    offered = {c.template for c in exhaustive_space(problem, torch.__version__)}
    assert (BLOCKS in offered) == is_usable(BLOCKS)


def test_a_dynamic_size_keeps_what_no_tensor_tells():
    predictor = FixedPredictor(best={"BLOCK_M": 128, "BLOCK_N": 256, "num_warps": 8})
    install(predictor)

    def build():
        by_rows = scaled((512, 1), (1, 256), use_fast_accum=True, **BF16)
        function, (a, b, scale_a, scale_b) = by_rows()
        return function, (marked(a, 0), b, marked(scale_a, 0), scale_b)

    assert lower(build, dynamic=None).seen
    problems = {problem for problem, _ in predictor.asked}
    assert len({problem.M for problem in problems}) > 3
    assert {p.op_fields["fast_accum"] for p in problems} == {True}
    assert {p.op_fields["scaling"] for p in problems} <= {"row", "tensor"}


# A sum of two products stays two products, as in plain torch.compile (test_plain_program.py).
@pytest.mark.parametrize("name", [n for n, (_, p) in PROGRAMS.items() if p.op != "mm_plus_mm"])
def test_what_the_model_does_not_know_gets_the_library_s_kernel(name):
    build, problem = PROGRAMS[name]
    library = {"max_autotune_gemm_backends": "ATEN"}
    [plain] = lower(build, options=library).seen
    predictor = FixedPredictor()
    predictor.ops = frozenset({"mm", "addmm", "bmm", "baddbmm"})
    install(predictor)
    [seen] = lower(build).seen
    assert seen.candidates == plain.candidates
    assert len(seen.candidates) == 1
    lower(build, mode="default", options={"fast_autotune": True})  # benchmarks nothing
    stats = diode_engine.get_stats()
    assert (stats[f"passed_{problem.op}"], stats["fallbacks"], predictor.asked) == (1, 0, [])


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize(("build", "problem"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_is_captured(build, problem, mode, notes):
    lower(build, mode=mode)
    if problem.op == "mm_plus_mm" and mode == "default":  # there it stays two mm
        problem = made("mm", "bfloat16", b_layout="col")
    first, *others = problems(notes)
    assert first == problem
    assert not others or mode == "default"  # the second mm, and the sum behind it


@pytest.mark.parametrize(
    "problem",
    [
        Problem.make("scaled_mm", 64, 48, 96, E4M3, bias="vector"),
        Problem.make("int_mm", 64, 48, 96, "int8"),
        Problem.make("mm_plus_mm", 64, 48, 96, "float32", d_layout="col"),
    ],
    ids=str,
)
def test_the_librarys_call_is_right(problem):
    """As collection calls it, here of the CPU's library."""
    with kernels.graph_for(problem, torch.device("cuda:0")) as operands:
        offered = kernels.offered(problem.op, operands, fields=problem.op_fields, space="DEFAULT")
        [call] = [kernels.library_call(choice) for c, choice in offered.items() if c.is_extern]
    assert call is not None
    cpu = torch.device("cpu")
    inputs, out = random_inputs(problem, cpu), empty_output(problem, cpu)
    right = reference(problem, inputs)
    dtype = getattr(torch, problem.dtype)
    spoil(out)
    assert not is_right(out, right, tf32=False, dtype=dtype)
    call(*inputs, out=out)
    assert is_right(out, right, tf32=False, dtype=dtype)
