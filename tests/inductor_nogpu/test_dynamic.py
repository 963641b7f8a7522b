"""Products with dynamic sizes are chosen for all sizes that they may turn out to have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import diode_engine
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing import dynamic
from diode_engine.inductor.without_gpu import Lowered, lower
from tests.inductor_nogpu.conftest import FAST, Build, Rule, empty, install, is_tile, marked, only

N, K = 768, 1024
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 3, "num_warps": 4}


def speeds(speed: Callable[[Problem], float], library: float = 100.0, **sure: Any) -> Rule:
    """By which a library's kernel takes `library` microseconds, and one of Triton's what `speed`
    says of each problem, times that; the others take very long."""

    def us(problem: Problem, candidate: Candidate) -> float:
        if candidate.is_extern:
            return library
        return library * speed(problem) if is_tile(candidate, TILE) else 1e6

    return Rule(us, **sure)


def rows_of(op: str, m: int = 300, **bounds: int) -> Build:
    """A product of the op with a dynamic M of that hint, within the bounds."""

    def build() -> tuple[Any, Sequence[torch.Tensor]]:
        lead = (4,) if op == "bmm" else ()
        a = marked(empty(*lead, m, K), len(lead), **bounds)
        return getattr(torch, op), (*([empty(N)] if op == "addmm" else []), a, empty(*lead, K, N))

    return build


def lowered_mm(
    predictor: Any, *, m: int = 300, top_k: int = 1, mark: dict[str, int] | None = None,
    function: Any = torch.mm, **more: Any,
) -> Lowered:  # fmt: skip
    """With a dynamic M of that hint, within the bounds of `mark`; the `top_k` best are kept,
    however slow."""
    install(predictor, top_k_configs=top_k, performance_threshold=1e9)
    return lower(lambda: (function, rows_of("mm", m, **(mark or {}))()[1]), **more)


def test_a_kernel_that_is_fast_for_all_sizes_is_taken():
    predictor = speeds(lambda _: 0.8)
    for _ in range(2):
        assert is_tile(only(lowered_mm(predictor)), TILE)
    rows = sorted({p.M for p in predictor.asked})
    assert rows[0] == 2
    assert rows[-1] > 2000
    assert len(rows) > 8
    assert {(p.N, p.K) for p in predictor.asked} == {(N, K)}
    assert diode_engine.get_stats()["cache_hits"] == 0  # EVEN_K does not follow from a hint


@pytest.mark.parametrize("op", ["mm", "addmm", "bmm"])
def test_one_that_is_slow_elsewhere_is_not_taken_for_its_hint(op):
    install(speeds(lambda p: 0.5 if 100 < p.M < 1000 else 1.5))
    assert only(lower(rows_of(op))).is_extern


@pytest.mark.parametrize("speed", [0.5, 1.5])
def test_a_bias_with_a_stride_of_its_own(speed):
    """addmm asks twice: with the bias as it is, and with the bias expanded, which has other
    symbols. The sizes at which the kernels are compared are the same."""
    predictor = speeds(lambda p: 0.5 if p.M == 300 else speed)
    install(predictor)

    def build():
        bias = torch.empty_strided((300, 1), (4, 1), dtype=torch.bfloat16, device="cuda")
        a, b = empty(300, K), empty(K, N)
        torch._dynamo.mark_static(a, 1)
        torch._dynamo.mark_static(b)
        return torch.addmm, (bias, a, b)

    assert only(lower(build, dynamic=True)).is_extern == (speed > 1)
    assert diode_engine.get_stats()["fallback_error"] == 0


@pytest.mark.parametrize(("speed", "library"), [(0.88, True), (0.8, False)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_model_that_is_sure_at_the_hint_does_not_make_the_margin_smaller(dtype, speed, library):
    install(speeds(lambda _: speed, reaches=(0.95,), error=0.0))

    def build():
        return torch.mm, (marked(empty(300, K, dtype=dtype), 0), empty(K, N, dtype=dtype))

    assert only(lower(build)).is_extern == library


def test_a_mean_gain_is_not_enough_where_one_size_loses():
    assert only(lowered_mm(speeds(lambda p: 1.1 if p.M < 4 else 0.5))).is_extern


@pytest.mark.parametrize(
    ("distance", "known"), [("a length", False), ("16 lengths", True), ("a fixed one", True)]
)
def test_rows_that_may_begin_anywhere_are_left_to_the_library(distance, known):
    """A kernel that is compiled for rows at any distance loads element by element, also where they
    are aligned when it runs; kernels were timed with the distance as a constant."""
    install(speeds(lambda _: 0.5))

    def build():
        many = (6, 16) if distance == "16 lengths" else (96,)
        a, b = empty(8, 64, *many), empty(8, *many, 128)
        for tensor, dim in ((a, 1),) if distance == "a fixed one" else ((a, 2), (b, 1)):
            marked(tensor, dim)
        return (lambda a, b: torch.bmm(a.flatten(2), b.flatten(1, -2))), (a, b)

    assert is_tile(only(lower(build)), TILE) == known


def test_bounds_that_the_program_gives_are_used():
    predictor = speeds(lambda p: 0.5 if 100 <= p.M <= 1000 else 1.5)
    assert is_tile(only(lowered_mm(predictor, mark={"min": 100, "max": 1000})), TILE)
    rows = [p.M for p in predictor.asked]
    assert (min(rows), max(rows)) == (100, 1000)


@pytest.mark.parametrize(("most", "chosen"), [(1 << 32, False), (1 << 18, True)])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("op", ["mm", "addmm", "bmm"])
def test_bounds_beyond_32_bit_indices_get_the_library(op, most, chosen, fast, caplog):
    """A Triton template guards that the tensor has fewer elements, which contradicts the bounds:
    the compile would fail, which it does not in stock's default mode."""
    install(speeds(lambda _: 0.5))
    lowered = lower(rows_of(op, min=2, max=most), **(FAST if fast else {}))
    assert only(lowered).is_extern is not chosen
    assert diode_engine.get_stats()["fallbacks"] == 0
    assert not caplog.records


def test_bounds_beyond_32_bit_indices_without_a_library_are_left_to_the_default_mode():
    lowered = lowered_mm(
        speeds(lambda _: 0.5), mark={"min": 2, "max": 1 << 32}, mode="default",
        options={"fast_autotune": True, "max_autotune_gemm_backends": "TRITON"},
    )  # fmt: skip
    assert "extern_kernels.mm" in lowered.sources[0]
    assert diode_engine.get_stats()["fallback_unsupported"] == 1


@pytest.mark.parametrize("fast", [True, False])
def test_bounds_that_are_not_declared_are_no_reason_to_take_the_library(fast):
    """They follow from checks and guards, and a template's guard may narrow them."""

    def checked(a, b):
        torch._check(a.shape[0] <= (1 << 31) - 1)
        return a @ b

    lowered = lowered_mm(speeds(lambda _: 0.5), function=checked, **(FAST if fast else {}))
    assert is_tile(only(lowered), TILE)
    stats = diode_engine.get_stats()
    assert (stats["model_selections"], stats["fallbacks"]) == (1, 0)


@pytest.mark.parametrize(("low", "high"), [(2, 64), (2048, 8192)])
def test_what_is_fused_counts_at_every_size(low, high):
    predictor = speeds(lambda p: 0.95, library=10.0)
    bounds = {"min": low, "max": high}
    assert only(lowered_mm(predictor, m=high, mark=bounds)).is_extern
    fused = lowered_mm(predictor, m=high, mark=bounds, function=lambda a, b: torch.relu(a @ b))
    assert is_tile(only(fused), TILE)
    assert fused.seen[0].predicted_us == (9.5,)


def test_several_kernels_are_not_timed_for_the_hint_alone():
    assert is_tile(only(lowered_mm(speeds(lambda _: 0.8), top_k=3)), TILE)


def test_where_no_library_is_offered_the_best_in_the_mean_is_taken():
    predictor = speeds(lambda p: 0.5 if p.M == 300 else 1.5)
    only_triton = {"max_autotune_gemm_backends": "TRITON"}
    lowered = lowered_mm(predictor, options=only_triton)
    assert only(lowered).template == "triton::mm"


def test_two_dynamic_sizes_are_drawn_together():
    predictor = speeds(lambda _: 0.8)
    install(predictor)

    def build():
        a = marked(empty(300, 32, 16), 0, 1)  # so that the rows of a are known to be aligned
        b = marked(empty(32, 16, N), 0)
        return (lambda a, b: a.flatten(1) @ b.flatten(0, 1)), (a, b)

    assert is_tile(only(lower(build)), TILE)
    sizes = [(p.M, p.K) for p in predictor.asked]
    large_and_small = [(m, k) for m, k in sizes if max(m, k) > 4 * min(m, k)]
    assert any(m > k for m, k in large_and_small)
    assert any(m < k for m, k in large_and_small)
    assert all(max(m, k) <= 8192 for m, k in sizes)


@pytest.mark.parametrize("most", [2, 5, 16, 24, 100, 2048])
def test_of_several_sizes_each_takes_all_its_values(most):
    drawn = dynamic._draws([(2, None), (1, most)])
    assert {second for _, second in drawn} == set(dynamic._apart(1, most))
    assert {1, most} <= {second for _, second in drawn}


@pytest.mark.parametrize("op", ["mm", "addmm"])
def test_one_that_a_graph_repeats_is_judged_once(op):
    def build(times):
        given = ([empty(K)] if op == "addmm" else [], [empty(K, K)])

        def repeated(a):
            for _ in range(times):
                a = getattr(torch, op)(*given[0], a, *given[1])
            return a

        return repeated, (marked(empty(300, K), 0),)

    counts = []
    for times in (1, 4):
        predictor = speeds(lambda _: 0.8)
        install(predictor)
        lower(lambda times=times: build(times))
        counts.append(len([p for p in predictor.asked if p.M != 300]))
    assert counts[0] == counts[1] > 0
