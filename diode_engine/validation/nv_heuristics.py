"""NVIDIA's nvMatmulHeuristics as a chooser: an analytical model, asked for Triton kernels.

It is an optional dependency (`pip install diode-engine[baselines]`) and needs no GPU. What it
suggests is a tile, stages and warps; the nearest candidate that was measured stands for it.
Documentation: https://docs.nvidia.com/cuda/nvidia-matmul-heuristics
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import DType, Layout
from diode_engine.core.problem import Problem

# The library's names of GPUs, by torch's names.
_GPUS = {"NVIDIA H200": "H200_SXM", "NVIDIA H100 80GB HBM3": "H100_SXM"}
# The library's letters for the type of operands and of the result. All sums are in float32.
_LETTERS = {DType.FLOAT16: "H", DType.BFLOAT16: "T", DType.FLOAT32: "S"}
_ASKED = 16  # suggestions; for several of them the nearest candidate may be the same
# How much a factor of two counts, in the tile (BLOCK_M, BLOCK_N, BLOCK_K), stages and warps:
# the tile says most about a kernel.
_WEIGHTS = np.array([4, 4, 2, 1, 1], np.float32)


@cache
def _interface(gpu: str) -> Any:
    import nvMatmulHeuristics as nv

    return nv.NvMatmulHeuristicsInterfaceEx(
        backend=nv.NvMatmulHeuristicsTarget.TRITON,
        flags=nv.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=nv.NvMatmulHeuristicsNvidiaGpu[gpu],
    )


def unavailable(hardware: Hardware) -> str | None:
    """A sentence on why it cannot be asked about this hardware; None where it can."""
    if hardware.name not in _GPUS:
        return f"nvMatmulHeuristics does not know {hardware.name}."
    try:
        _interface(_GPUS[hardware.name])
    except (ImportError, OSError):
        return (
            "nvMatmulHeuristics is not installed, so it is not compared with; "
            "pip install 'diode-engine[baselines]' adds it."
        )
    return None


def suggestions(problem: Problem, hardware: Hardware) -> npt.NDArray[np.float32]:
    """[s, 5] what it suggests, the best first: BLOCK_M, BLOCK_N, BLOCK_K, stages, warps. s is 0 for
    types that it is not asked about. A split of K is ignored, since the Triton templates have
    none."""
    import nvMatmulHeuristics as nv

    if problem.dtype not in _LETTERS or problem.out_dtype not in _LETTERS:
        return np.empty((0, 5), np.float32)
    compute = "F" if problem.allow_tf32 else "S"
    precision = _LETTERS[problem.dtype] + compute + _LETTERS[problem.out_dtype]
    layout = nv.boolsToNvMatmulHeuristicsLayout(
        problem.a.layout is Layout.COL, problem.b.layout is Layout.COL
    )
    interface = _interface(_GPUS[hardware.name])
    asked = interface.makeNvMatmulHeuristicsProblem(
        problem.M, problem.N, problem.K, layout, batch_size=problem.B
    )
    rows = []
    for answer in interface.get(asked, _ASKED, precision=precision):
        c = answer["kernel"]
        tile, warp = (c.cta_tile_m, c.cta_tile_n), (c.warp_tile_m, c.warp_tile_n)
        if min(*tile, c.cta_tile_k, *warp, c.stages) > 0:  # zeros: it does not know
            warps = tile[0] // warp[0] * (tile[1] // warp[1])
            rows.append((*tile, c.cta_tile_k, c.stages, max(warps, 1)))
    return np.array(rows, np.float32).reshape(-1, 5)


def ranking(
    problem: Problem,
    candidates: Sequence[Candidate],
    usable: npt.NDArray[np.bool_],
    hardware: Hardware,
) -> npt.NDArray[np.float64]:
    """[n] the rank of each candidate: 0 for the one that is nearest to the first suggestion, 1 for
    the next one that is nearest to a later suggestion, and so on; NaN for all others. Only
    candidates of the Triton template that are `usable` ([n]) can stand for a suggestion."""
    columns = encode(candidates)
    rank = np.full(len(candidates), np.nan)
    places = np.flatnonzero(columns.tiled & ~columns.tma & usable)
    if not len(places):
        return rank
    there = np.log2(
        np.stack(
            [columns.block_m, columns.block_n, columns.block_k, columns.stages, columns.warps]
        )[:, places]
    )
    for wanted in np.log2(suggestions(problem, hardware)):
        distance = _WEIGHTS @ np.abs(there - wanted[:, None])
        nearest = places[np.argmin(distance)]
        if np.isnan(rank[nearest]):
            rank[nearest] = np.count_nonzero(~np.isnan(rank))
    return rank
