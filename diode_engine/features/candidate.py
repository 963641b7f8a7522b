"""Columns that depend on the candidate alone, and what the cross columns need of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from diode_engine.core.encoding import CandidateColumns
from diode_engine.core.resources import Array

# In the order of the columns.
_COLUMNS: Mapping[str, Callable[[CandidateColumns], Array]] = {
    "aten": lambda c: c.extern,
    "triton": lambda c: c.tiled & ~c.tma,
    "triton_tma": lambda c: c.tiled & c.tma,
    "decompose_k": lambda c: c.splits_k,
    "aten_bias_addmm": lambda c: c.bias_vector,
    "log2_block_m": lambda c: np.log2(c.block_m),
    "log2_block_n": lambda c: np.log2(c.block_n),
    "log2_block_k": lambda c: np.log2(c.block_k),
    "stages": lambda c: c.stages,
    "log2_warps": lambda c: np.log2(c.warps),
    "log2_group_m": lambda c: np.log2(c.group_m),
    "log2_k_split": lambda c: np.log2(c.k_split),
    "log2_tile": lambda c: np.log2(c.block_m * c.block_n),
}
NAMES = tuple(_COLUMNS)


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
    columns = _stacked([column(c) for column in _COLUMNS.values()])
    knobs = _stacked([getattr(c, name) for name in Knobs._fields])
    columns.flags.writeable = knobs.flags.writeable = False
    return columns, knobs


def _stacked(columns: list[Array]) -> Array:
    stacked: Array = np.stack(columns, dtype=np.float32, casting="unsafe")
    return stacked
