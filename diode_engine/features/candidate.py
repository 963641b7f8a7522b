"""Columns that depend on the candidate alone, and what the cross columns need of it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from diode_engine.core.encoding import CandidateColumns
from diode_engine.core.resources import Array

# The order is that of the columns.
NAMES = (
    "aten", "triton", "triton_tma", "decompose_k", "aten_bias_addmm",
    "log2_block_m", "log2_block_n", "log2_block_k", "stages", "log2_warps", "log2_group_m",
    "log2_k_split", "log2_tile",
)  # fmt: skip


class Knobs(NamedTuple):
    """What the cross columns need of candidates; each [n]."""

    block_m: Array
    block_n: Array
    block_k: Array
    stages: Array
    warps: Array
    group_m: Array
    k_split: Array
    tiled: Array
    tma: Array
    persistent: Array


@lru_cache(maxsize=16)  # as many as `encode` keeps
def of_candidates(c: CandidateColumns) -> tuple[Array, Array]:
    """The columns [NAMES, n], and the knobs [Knobs, n]."""
    named = {
        "aten": c.extern,
        "triton": c.tiled & ~c.tma,
        "triton_tma": c.tiled & c.tma,
        "decompose_k": c.splits_k,
        "aten_bias_addmm": c.bias_vector,
        "log2_block_m": np.log2(c.block_m),
        "log2_block_n": np.log2(c.block_n),
        "log2_block_k": np.log2(c.block_k),
        "stages": c.stages,
        "log2_warps": np.log2(c.warps),
        "log2_group_m": np.log2(c.group_m),
        "log2_k_split": np.log2(c.k_split),
        "log2_tile": np.log2(c.block_m * c.block_n),
    }
    columns = _stacked([named[name] for name in NAMES])
    knobs = _stacked([getattr(c, name) for name in Knobs._fields])
    columns.flags.writeable = knobs.flags.writeable = False
    return columns, knobs


def _stacked(columns: list[Array]) -> Array:
    stacked: Array = np.stack(columns, dtype=np.float32, casting="unsafe")
    return stacked
