"""Diode with the shipped model on a GPU, and what is compiled with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import diode_engine

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def diode() -> Iterator[Any]:
    assert diode_engine.install_diode_choices(top_k_configs=1), diode_engine.get_stats()
    yield diode_engine
    diode_engine.uninstall_diode_choices()


def draw(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Relative, in the Frobenius norm."""
    difference = torch.linalg.vector_norm(result.double() - reference.double())
    return float(difference / torch.linalg.vector_norm(reference.double()))


def compiled(
    function: Callable[..., Any], *args: Any, **options: Any
) -> tuple[Any, Any, list[str]]:
    """The result, what Inductor counted, and the generated programs, caches cold; with max-autotune
    where no options are given."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache, run_and_get_code

    how = {"options": options} if options else {"mode": "max-autotune-no-cudagraphs"}
    torch._dynamo.reset()
    counters.clear()
    with fresh_cache():
        result, sources = run_and_get_code(torch.compile(function, **how), *args)
    return result, counters["inductor"], sources
