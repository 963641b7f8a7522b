"""On two NVIDIA GPUs: the ranks of a distributed program."""

import math

import pytest
import torch

from tests.ranks import Rank, run_ranks

pytestmark = pytest.mark.gpu


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs here")
def test_ranks_compile_the_same_kernels_and_benchmark_nothing(tmp_path):
    """Of training steps under DDP, FSDP2 and tensor parallelism."""
    first, second = run_ranks(tmp_path, Rank(), Rank())
    assert list(first["steps"]) == ["ddp", "fsdp2", "tensor_parallel"]
    assert first["steps"] == second["steps"]
    for programs in first["steps"].values():
        assert any("triton_tem" in call for calls in programs for call in calls)
    for rank in (first, second):
        assert rank["searches"] == rank["fallbacks"] == 0
        assert rank["differences"] == []
        assert all(map(math.isfinite, rank["losses"].values()))
