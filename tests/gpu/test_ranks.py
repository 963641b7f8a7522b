"""On two NVIDIA GPUs: the ranks of a distributed program."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.gpu

RANK = Path(__file__).parents[1] / "inductor_nogpu" / "rank.py"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs here")
def test_ranks_compile_the_same_kernels_and_benchmark_nothing(tmp_path):
    """Of training steps under DDP, FSDP2 and tensor parallelism."""
    asked = [json.dumps({"rank": rank, "meeting": str(tmp_path / "meeting")}) for rank in (0, 1)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in asked
    ]
    try:
        for rank, line in zip(ranks, asked, strict=True):
            rank.stdin.write(line)
            rank.stdin.close()
            rank.stdin = None  # as `communicate` wants it
        first, second = (json.loads(rank.communicate(timeout=300)[0]) for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
    assert list(first["steps"]) == ["ddp", "fsdp2", "tensor_parallel"]
    assert first["steps"] == second["steps"]
    for programs in first["steps"].values():
        assert any("triton_tem" in call for calls in programs for call in calls)
    for rank in (first, second):
        assert rank["searches"] == rank["fallbacks"] == 0
        assert rank["differences"] == []
        assert all(map(math.isfinite, rank["losses"].values()))
