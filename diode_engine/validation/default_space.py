"""The candidates that max-autotune times with its search space DEFAULT, told without torch.

This mirrors what torch._inductor offers on NVIDIA GPUs (template_heuristics/triton.py,
decompose_k.py and kernel/mm.py, torch 2.10 to 2.15, options as they are set by default); a test
holds it against the real Inductor. Persistent TMA kernels are not among them: they are off by
default.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from diode_engine.core.problem import Bias, Candidate, Op, Problem

# BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps, before they are fitted to the problem.
_TILES = (
    (32, 32, 16, 1, 2), (32, 32, 128, 2, 4), (32, 64, 32, 5, 8), (64, 32, 32, 5, 8),
    (64, 32, 128, 5, 4), (64, 64, 16, 2, 4), (64, 64, 32, 2, 4), (64, 64, 64, 3, 8),
    (64, 64, 128, 5, 4), (64, 128, 32, 3, 4), (64, 128, 32, 4, 8), (64, 128, 64, 3, 4),
    (64, 128, 128, 4, 4), (128, 64, 32, 3, 4), (128, 64, 32, 4, 8), (128, 128, 32, 2, 8),
    (128, 128, 32, 3, 4), (128, 128, 64, 3, 4), (128, 128, 64, 5, 8), (128, 128, 128, 4, 8),
)  # fmt: skip
_TILES_FROM_2_13 = (*_TILES, (128, 256, 64, 4, 8))
_GROUP_M = 8
_LEAST_TILE, _LARGEST_TILE = 16, 256
_SPLIT_FROM = 32  # times the larger of M and N: from there on K may be split
_SPLIT_ONLY_FROM = 64  # and from there on nothing but splits and ATen is offered
_SPLITS = 10
_LEAST_PART = 128


def default_space(problem: Problem, torch: str = "") -> tuple[Candidate, ...]:
    """The candidates, ATen's first, as this version of torch has them (the newest known one
    where it is empty or not a version)."""
    version = re.match(r"(\d+)\.(\d+)", torch)
    newest = version is None or (int(version[1]), int(version[2])) >= (2, 13)
    aten: tuple[Candidate, ...] = (Candidate(f"aten::{problem.op}"),)
    if problem.op is Op.ADDMM and problem.bias in (Bias.VECTOR, Bias.SCALAR):
        # the call with the bias as it is (see inductor.lowering.candidates.candidate_of)
        aten = (*(() if newest else aten), Candidate("aten::bias_addmm"))
    splits: tuple[Candidate, ...] = ()
    times = problem.K / max(problem.M, problem.N)
    if problem.op is Op.MM and times >= _SPLIT_FROM:
        splits = tuple(
            Candidate.make("decompose_k", k_split=split)
            for split in k_splits(problem.M, problem.N, problem.K)[:_SPLITS]
        )
        if times >= _SPLIT_ONLY_FROM:
            return aten + splits
    template = "triton::bmm" if problem.op.batched else "triton::mm"
    limits = (_reach(problem.M), _reach(problem.N), _reach(problem.K))
    return aten + splits + _tiled(template, *limits, newest)


def _reach(size: int) -> int:
    """The largest tile that is used for a size."""
    return min(max(_LEAST_TILE, 1 << (size - 1).bit_length()), _LARGEST_TILE)


@lru_cache(maxsize=256)
def _tiled(template: str, m: int, n: int, k: int, newest: bool) -> tuple[Candidate, ...]:
    found: dict[tuple[int, ...], None] = {}
    for block_m, block_n, block_k, stages, warps in _TILES_FROM_2_13 if newest else _TILES:
        bm, bn, bk = min(block_m, m), min(block_n, n), min(block_k, k)
        # A warp computes at least a 16×16 tile.
        found[bm, bn, bk, stages, min(warps, bm * bn // 256)] = None
    return tuple(
        Candidate.make(
            template, BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=_GROUP_M,
            num_stages=stages, num_warps=warps,
        )
        for bm, bn, bk, stages, warps in found
    )  # fmt: skip


def k_splits(m: int, n: int, k: int) -> list[int]:
    """Divisors of K whose parts are powers of two, then multiples of 32, then the others: all of
    them, of which the DEFAULT space has the first ten."""
    most = min(k // m, k // n, k // _LEAST_PART)
    small = [d for d in range(1, math.isqrt(k) + 1) if k % d == 0]
    powers: list[int] = []
    multiples: list[int] = []
    others: list[int] = []
    for split in sorted({*small, *(k // d for d in small)}):
        part = k // split
        if 2 <= split <= most:
            kind = powers if part & (part - 1) == 0 else multiples if part % 32 == 0 else others
            kind.append(split)
    return powers + multiples + others
