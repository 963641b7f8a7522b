"""Places in Inductor that count on a library's kernel, or on more than one choice, being there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor import autotune_process, config

import diode_engine
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import install

EPILOGUES = {"benchmark_epilogue_fusion": True}  # Inductor's default, which `lower` turns off
PIPELINED = {"benchmark_epilogue_fusion": False, "pipeline_max_autotune_gemm": True}


def moved(rows: int, k: int, columns: int) -> Callable[[], tuple[Any, Sequence[torch.Tensor]]]:
    """A product of a sum that counts as row-major when it is chosen, and will be column-major."""

    def build() -> tuple[Any, Sequence[torch.Tensor]]:
        args = (
            torch.empty(shape, dtype=torch.bfloat16, device="cuda")
            for shape in ((k, rows), (k, rows), (k, columns))
        )
        return (lambda x, y, w: (x.t() + y.t()) @ w), tuple(args)

    return build


class Prefers:
    """Predicts the times of these templates, and nothing of any other."""

    identity = "prefers"

    def __init__(self, **us: float) -> None:
        self.us = us

    def time(self, candidate: Candidate) -> float:
        return self.us.get(candidate.template.removeprefix("triton::"), np.nan)

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> np.ndarray:
        times = np.array([self.time(candidate) for candidate in candidates])
        return times * (1 + 1e-9 * np.arange(len(times)))


def milliseconds(candidate: Candidate) -> float:
    """Timed, no library's kernel is the fastest."""
    return {"triton::mm": 1.0, "decompose_k": 1.2}.get(candidate.template, 5.0)


@pytest.fixture
def _timed_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = getattr(autotune_process, "AsyncAutotuner", None)
    if tuner is None or "pipeline_max_autotune_gemm" not in config._config:
        pytest.skip("this torch has no pipelined search")
    monkeypatch.setattr(tuner, "start", lambda *_: None)
    monkeypatch.setattr(
        tuner,
        "get_results",
        lambda choices, _: {c: milliseconds(Candidate.make("triton::mm")) for c in choices},
    )


@pytest.mark.parametrize("top_k", [1, 2, 3, 12])
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
def test_operands_get_another_layout_than_kernels_were_timed_with(
    top_k: int, sizes: tuple[int, int, int], us: dict[str, float]
) -> None:
    install(Prefers(**us), top_k_configs=top_k, performance_threshold=1e9)
    tma = {"triton.enable_persistent_tma_matmul": "mm_persistent_tma" in us}
    lowered = lower(moved(*sizes), options={**EPILOGUES, **tma}, benchmark=milliseconds)
    (kept, *_) = lowered.seen
    assert len(kept.candidates) == 1 or any(c.is_extern for c in kept.candidates)
    stats = diode_engine.get_stats()
    assert (stats["model_selections"] >= 1, stats["fallbacks"]) == (True, 0)


@pytest.mark.usefixtures("_timed_in_other_processes")
@pytest.mark.parametrize("top_k", [1, 3])
def test_a_search_that_is_pipelined(top_k: int) -> None:
    install(Prefers(mm=1.0), top_k_configs=top_k, performance_threshold=1e9)
    (kept,) = lower(moved(512, 1024, 768), options=PIPELINED).seen
    assert len(kept.candidates) == 1 or any(c.is_extern for c in kept.candidates)


@pytest.mark.parametrize("top_k", [1, 3])
def test_no_library_is_among_the_backends(top_k: int) -> None:
    install(Prefers(mm=1.0), top_k_configs=top_k, performance_threshold=1e9)
    options = {**EPILOGUES, "max_autotune_gemm_backends": "TRITON"}
    (kept,) = lower(moved(512, 1024, 768), options=options, benchmark=milliseconds).seen
    assert len(kept.candidates) == top_k
