"""The candidates of max-autotune's search space EXHAUSTIVE with persistent TMA kernels on, told
without torch: what Diode chooses among at compile time.

This mirrors what torch._inductor offers on NVIDIA GPUs (template_heuristics/triton.py, torch
2.10 to 2.15); a test holds it against the real Inductor. Where K is so large that the DEFAULT space
only splits it, there are no others: torch 2.15 offers more to a program that asks for EXHAUSTIVE
itself, but not to a compile with Diode.
"""

from __future__ import annotations

import itertools
from functools import cache

from diode_engine.core.problem import Candidate, Operand, Problem
from diode_engine.validation.default_space import default_space, k_splits

_BLOCKS = (16, 32, 64, 128, 256)
_STAGES = (1, 2, 3, 4, 5)
_GROUP_M = 8
_WARPS = (2, 4, 8)
_TMA_WARPS = (4, 8)
_MOST_ACCUMULATORS = 255  # 32-bit registers a thread; beyond that Inductor drops a config
_TMA_BYTES = 16  # what a descriptor's strides and its inner dimension are divisible by


def exhaustive_space(problem: Problem, torch: str = "") -> tuple[Candidate, ...]:
    """The candidates, ATen's first, as this version of torch has them (the newest known one
    where it is empty or not a version). The DEFAULT space is part of it."""
    first, grids = _parts(problem, torch)
    return first + tuple(c for template, grid in grids for c in _tiled(template, *grid))


def exhaustive_counts(problem: Problem, torch: str = "") -> tuple[int, int]:
    """How many candidates of libraries that space has, and how many kernels: quicker than to
    make them."""
    first, grids = _parts(problem, torch)
    libraries = sum(candidate.is_extern for candidate in first)
    return libraries, len(first) - libraries + sum(len(_configs(*grid)) for _, grid in grids)


_Grid = tuple[int, int, int, tuple[int, ...]]  # the blocks' reach, warps


def _parts(problem: Problem, torch: str) -> tuple[tuple[Candidate, ...], list[tuple[str, _Grid]]]:
    """The candidates without tiles, and the grids of those with."""
    default = default_space(problem, torch)
    first = tuple(c for c in default if c.is_extern)
    tiled = any(c.template.startswith("triton::") for c in default)
    if any(c.template == "decompose_k" for c in default):
        first += tuple(
            Candidate.make("decompose_k", k_split=split)
            for split in k_splits(problem.M, problem.N, problem.K)
        )
    if not tiled:  # K is only split
        return first, []
    m, n, k = (_reach(size) for size in (problem.M, problem.N, problem.K))
    if problem.op.batched:
        return first, [("triton::bmm", (m, n, k, _WARPS))]
    grids: list[tuple[str, _Grid]] = [("triton::mm", (m, n, k, _WARPS))]
    if _tma(problem):
        grids.append(("triton::mm_persistent_tma", (m, n, k, _TMA_WARPS)))
    return first, grids


def _reach(size: int) -> int:
    """The largest block that is used for a size."""
    return min(max(_BLOCKS[0], 1 << (size - 1).bit_length()), _BLOCKS[-1])


@cache  # 125 reaches of three kinds
def _tiled(
    template: str, m: int, n: int, k: int, warps_tried: tuple[int, ...]
) -> tuple[Candidate, ...]:
    return tuple(
        Candidate.make(
            template, BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=_GROUP_M,
            num_stages=stages, num_warps=warps,
        )
        for bm, bn, bk, stages, warps in _configs(m, n, k, warps_tried)
    )  # fmt: skip


@cache
def _configs(
    m: int, n: int, k: int, warps_tried: tuple[int, ...]
) -> tuple[tuple[int, int, int, int, int], ...]:
    """The distinct configs after blocks are cut to the problem, and warps to the tile:
    BLOCK_M, BLOCK_N, BLOCK_K, stages, warps."""
    found: dict[tuple[int, int, int, int, int], None] = {}
    for bm, bn, bk, warps in itertools.product(_BLOCKS, _BLOCKS, _BLOCKS, warps_tried):
        bm, bn, bk = min(bm, m), min(bn, n), min(bk, k)
        if -(-bm * bn // (32 * warps)) <= _MOST_ACCUMULATORS:
            for stages in _STAGES:
                found[bm, bn, bk, stages, min(warps, bm * bn // 256)] = None
    return tuple(found)


def _tma(problem: Problem) -> bool:
    """Whether both operands can be read through descriptors."""

    def fits(operand: Operand, rows: int, cols: int) -> bool:
        inner = cols if operand.layout == "row" else rows
        size = problem.dtype.itemsize
        return (operand.align * size) % _TMA_BYTES == 0 and (inner * size) % _TMA_BYTES == 0

    p = problem
    return fits(p.a, p.M, p.K) and fits(p.b, p.K, p.N)
