"""The DEFAULT space as validation tells it, against the one that Inductor offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config

from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import named
from diode_engine.core.problem import Problem
from diode_engine.inductor import without_gpu
from diode_engine.problems.default_space import default_space

SIZES = {
    "mm": [(1024, 1024, 1024), (17, 4096, 1000), (8, 24, 256), (300, 33, 47)],
    "mm, K may be split": [(64, 96, 3072), (16, 32, 2040)],
    "mm, K is split": [(32, 48, 8192), (16, 16, 6000), (32, 96, 20160)],
    "addmm": [(512, 768, 640), (5, 1000, 2048)],
    "bmm": [(128, 64, 128), (20, 20, 20)],
    "baddbmm": [(128, 64, 128), (33, 16, 8192)],
}


@pytest.fixture(autouse=True)
def _what_does_not_fit_is_offered() -> Iterator[None]:
    """torch 2.10 leaves out by itself what needs more shared memory than the device has."""
    with config.patch(max_autotune_prune_choices_based_on_shared_mem=False):
        yield


def _function(problem: Problem) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    dtype = getattr(torch, str(problem.dtype))
    batch = (problem.B,) if problem.op.batched else ()
    a = torch.empty((*batch, problem.M, problem.K), dtype=dtype, device="cuda")
    b = torch.empty((*batch, problem.K, problem.N), dtype=dtype, device="cuda")
    bias = torch.empty(
        (*batch, problem.M, problem.N) if batch else (problem.N,), dtype=dtype, device="cuda"
    )
    operands = [bias, a, b] if problem.op.biased else [a, b]
    return getattr(torch, str(problem.op)), operands


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", SIZES)
def test_default_space_is_inductors(name: str, dtype: str) -> None:
    op = named(name.split(",")[0])
    for m, n, k in SIZES[name]:
        problem = Problem.make(op, m, n, k, dtype, B=3 if op.batched else 1)
        offered: set[Candidate] = set()

        def record(candidate: Candidate, offered: set[Candidate] = offered) -> float:
            offered.add(candidate)
            return 1.0

        without_gpu.lower(lambda problem=problem: _function(problem), benchmark=record)
        assert offered == set(default_space(problem, torch.__version__))
