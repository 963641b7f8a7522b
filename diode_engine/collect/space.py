"""How many candidates a collection meets, told without torch.

This mirrors what torch._inductor offers on NVIDIA GPUs with max_autotune_gemm_search_space
EXHAUSTIVE and persistent TMA kernels on (template_heuristics/triton.py of torch 2.10 to 2.13);
a test holds it against the real Inductor.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

from diode_engine.problem import Operand, Problem
from diode_engine.validation.default_space import default_space

_BLOCKS = (16, 32, 64, 128, 256)
_STAGES = 5
_WARPS = (2, 4, 8)
_TMA_WARPS = (4, 8)
_MOST_ACCUMULATORS = 255  # 32-bit registers a thread; beyond that Inductor drops a config
_TMA_BYTES = 16  # what a descriptor's strides and its inner dimension are divisible by


@dataclass(frozen=True)
class SpaceSize:
    """How many candidates a problem has: a library's, which need no compile, and kernels."""

    libraries: int
    kernels: int

    @property
    def candidates(self) -> int:
        return self.libraries + self.kernels


def space_size(problem: Problem, torch: str = "") -> SpaceSize:
    """The size of the EXHAUSTIVE space, with persistent TMA, of this problem under a version of
    torch (the newest known one, if empty)."""
    default = default_space(problem, torch)
    libraries = sum(c.is_extern for c in default)
    splits = sum(c.template == "decompose_k" for c in default)
    tiled = 0
    if libraries + splits < len(default):  # else K is only split
        m, n, k = (max(16, 1 << (s - 1).bit_length()) for s in (problem.M, problem.N, problem.K))
        tiled = _tiled(m, n, k, _WARPS)
        if not problem.op.batched and _tma(problem):
            tiled += _tiled(m, n, k, _TMA_WARPS)
    return SpaceSize(libraries, splits + tiled)


@lru_cache(maxsize=1024)
def _tiled(m: int, n: int, k: int, warps_tried: tuple[int, ...]) -> int:
    """The distinct configs after blocks are cut to the problem, and warps to the tile."""
    found = set()
    for bm, bn, bk, warps in itertools.product(_BLOCKS, _BLOCKS, _BLOCKS, warps_tried):
        tile = min(bm, m) * min(bn, n)
        if -(-tile // (32 * warps)) <= _MOST_ACCUMULATORS:
            found.add((min(bm, m), min(bn, n), min(bk, k), min(warps, tile // 256)))
    return len(found) * _STAGES


def _tma(problem: Problem) -> bool:
    """Whether both operands can be read through descriptors."""

    def fits(operand: Operand, rows: int, cols: int) -> bool:
        inner = cols if operand.layout == "row" else rows
        size = problem.dtype.itemsize
        return (operand.align * size) % _TMA_BYTES == 0 and (inner * size) % _TMA_BYTES == 0

    p = problem
    return fits(p.a, p.M, p.K) and fits(p.b, p.K, p.N)
