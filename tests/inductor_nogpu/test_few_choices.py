"""Places in Inductor that count on a library's kernel, or on more than one choice, being there; and
operands whose layout is decided after the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor import autotune_process, config, ir

import diode_engine
from diode_engine.core.candidate import Candidate
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import (
    Build,
    FixedPredictor,
    Rule,
    build_of,
    empty,
    install,
    preprocessing_by,
)

EPILOGUES = {"benchmark_epilogue_fusion": True}  # Inductor's default, which `lower` turns off
PIPELINED = {"benchmark_epilogue_fusion": False, "pipeline_max_autotune_gemm": True}


def moved(rows: int, k: int, columns: int) -> Build:
    """A product of a sum that counts as row-major when it is chosen, and will be column-major."""
    return build_of(lambda x, y, w: (x.t() + y.t()) @ w, (k, rows), (k, rows), (k, columns))


def prefer(top_k: int, **us: float) -> None:
    """Keeps the `top_k` best by the times of these templates; nothing is known of any other."""
    by_template = Rule(lambda _, c: us.get(c.template.removeprefix("triton::"), np.nan))
    install(by_template, top_k_configs=top_k, performance_threshold=1e9)


def milliseconds(candidate: Candidate) -> float:
    """Timed, no library's kernel is the fastest."""
    return {"triton::mm": 1.0, "decompose_k": 1.2}.get(candidate.template, 5.0)


@pytest.fixture
def _timed_in_other_processes(monkeypatch):
    tuner = getattr(autotune_process, "AsyncAutotuner", None)
    if tuner is None or "pipeline_max_autotune_gemm" not in config._config:
        pytest.skip("this torch has no pipelined search")
    monkeypatch.setattr(tuner, "start", lambda *_: None)
    monkeypatch.setattr(
        tuner,
        "get_results",
        lambda choices, _: {c: milliseconds(Candidate.make("triton::mm")) for c in choices},
    )


@pytest.mark.parametrize("top_k", [1, 2, 12])
@pytest.mark.parametrize(
    ("sizes", "us"),
    [
        ((512, 1024, 768), {"mm": 1.0}),
        ((512, 1024, 768), {"mm": 1.0, "aten::mm": 9.0}),
        ((128, 4096, 128), {"mm": 1.0, "decompose_k": 1.2}),  # which is no library's kernel
        ((128, 4096, 128), {"decompose_k": 1.0}),
        ((512, 1024, 768), {"mm_persistent_tma": 1.0}),
    ],
)
def test_operands_get_another_layout_than_kernels_were_timed_with(top_k, sizes, us):
    prefer(top_k, **us)
    tma = {"triton.enable_persistent_tma_matmul": "mm_persistent_tma" in us}
    lowered = lower(moved(*sizes), options={**EPILOGUES, **tma}, benchmark=milliseconds)
    (kept, *_) = lowered.seen
    assert len(kept.candidates) == 1 or any(c.is_extern for c in kept.candidates)
    stats = diode_engine.get_stats()
    assert (stats["model_selections"] >= 1, stats["fallbacks"]) == (True, 0)


@pytest.mark.usefixtures("_timed_in_other_processes")
@pytest.mark.parametrize("top_k", [1, 3])
def test_a_search_that_is_pipelined(top_k):
    prefer(top_k, mm=1.0)
    (kept,) = lower(moved(512, 1024, 768), options=PIPELINED).seen
    assert len(kept.candidates) == 1 or any(c.is_extern for c in kept.candidates)


@pytest.mark.parametrize("top_k", [1, 3])
def test_no_library_is_among_the_backends(top_k):
    prefer(top_k, mm=1.0)
    options = {**EPILOGUES, "max_autotune_gemm_backends": "TRITON"}
    (kept,) = lower(moved(512, 1024, 768), options=options, benchmark=milliseconds).seen
    assert len(kept.candidates) == top_k


class Tma(FixedPredictor):
    """TMA kernels are the fastest."""

    def time(self, candidate: Candidate) -> float:
        return super().time(candidate) * (0.01 if "tma" in candidate.template else 1.0)


plain_sum = build_of(lambda x, y, w: (x + y) @ w, (512, 1024), (512, 1024), (1024, 768))


# Then no other layout comes out, and a template is the one that was chosen.
FIXED_WHEN_RENDERED = torch.__version__ < (2, 11)


@pytest.mark.skipif(FIXED_WHEN_RENDERED, reason="torch 2.10 fixes a template's operands")
@pytest.mark.parametrize("options", [{}, {"triton.enable_persistent_tma_matmul": True}])
def test_a_template_is_not_left_with_another_layout_than_it_was_chosen_for(options):
    install(Tma())
    for _ in range(2):  # the second time it is remembered
        with diode_engine.profile_predictions() as profile:
            (source,) = lower(moved(512, 1024, 768), options=options).sources
        assert "extern_kernels.mm(" in source
        assert "layout" in str(profile.selections[0].why)
    (kept,) = lower(plain_sum, options=options).seen  # the same problem, of which nothing moves
    assert not kept.candidates[0].is_extern


def test_an_operand_that_descriptors_are_made_for_stays_as_it_is():
    fixed: list[bool] = []

    def look(choices):
        fixed.append(isinstance(choices[0].input_nodes[0].get_layout(), ir.FixedLayout))
        return choices

    install(Tma())
    with preprocessing_by(look):
        for tma in (False, True):
            lower(plain_sum, options={"triton.enable_persistent_tma_matmul": tma})
    assert fixed == [FIXED_WHEN_RENDERED, True]


# Inductor gives the first one's rows of 1,032 elements a distance of 1,088.
product_of_product = build_of(lambda x, y, w: x @ y @ w, (512, 256), (256, 1032), (1032, 768))


@pytest.mark.skipif(FIXED_WHEN_RENDERED, reason="torch 2.10 fixes a template's operands")
def test_descriptors_read_the_rows_where_they_are():
    def us(problem, candidate):
        if "tma" in candidate.template and problem.K > 1000:
            return 0.01
        return 1.0 if candidate.is_extern else 100.0

    distances: list[Any] = []

    def look(choices):
        distances.append(choices[0].input_nodes[0].get_stride())
        return choices

    install(Rule(us))
    with preprocessing_by(look):
        options = {"triton.enable_persistent_tma_matmul": True}
        lowered = lower(product_of_product, options=options)
    assert [seen.candidates[0].is_extern for seen in lowered.seen] == [True, False]
    assert distances == [[256, 1], [1032, 1]]


PROLOGUES: dict[str, Any] = {
    "a conversion": (torch.float32, lambda x, w: x.to(torch.float32) @ w),
    "an activation": (torch.bfloat16, lambda x, w: torch.relu(x) @ w),
}


@pytest.mark.parametrize(("dtype", "function"), PROLOGUES.values(), ids=PROLOGUES)
def test_what_comes_before_a_product_is_not_fused_into_its_loads(dtype, function, predictor):
    predictor.best = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_stages": 2}
    (source,) = lower(lambda: (function, (empty(512, 1024), empty(1024, 768, dtype=dtype)))).sources
    assert source.count("@triton_heuristics.template") == 1
    assert source.count("@triton_heuristics.pointwise") == 1


def test_inductor_times_it_where_several_kernels_are_left():
    dtype, function = PROLOGUES["a conversion"]
    best = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    install(FixedPredictor(best=best), top_k_configs=3)
    allowed: list[int] = []

    def look(choices):
        templates = [c for c in choices if hasattr(c, "allowed_prologue_inps")]
        allowed.extend(len(c.allowed_prologue_inps) for c in templates)
        return choices

    with preprocessing_by(look):
        lower(
            lambda: (function, (empty(512, 1024), empty(1024, 768, dtype=dtype))),
            benchmark=lambda _: 1.0,
        )
    assert allowed
    assert all(allowed)
