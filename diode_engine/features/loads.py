"""How many load instructions a thread needs for its share of a tile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diode_engine.core.resources import MIN_COPY, WIDEST_LOAD, Array, tile_loads
from diode_engine.features.candidate import Knobs
from diode_engine.features.problem import ProblemFacts
from diode_engine.features.rows import Rows
from diode_engine.features.tiles import Tiles

_ONE = np.float32(1)
_LOAD_BYTES = np.float32(4)  # what a multiprocessor moves for each thread in one cycle


class Loads(NamedTuple):
    """What a thread loads of A and of B for a tile; each [n]."""

    loads_a: Array  # load instructions
    loads_b: Array
    moves_a: Array  # cycles of a multiprocessor that the loads take; also registers that they fill
    moves_b: Array
    copied_a: Array  # whether the loads are asynchronous copies
    copied_b: Array
    split: Array  # whether K is split


def loads(p: ProblemFacts, c: Knobs, t: Tiles, rows: Rows) -> Loads:
    """Computes the loads, and writes the columns that they give."""
    # A part of a split K starts where the parts before it end: an operand that is contiguous
    # along K may be less aligned there.
    width_a, width_b = p.copy_a, p.copy_b
    split = c.k_split > 1
    if split.any():
        apart = np.where(split, p.itemsize * _divisor(t.depth_k), np.float32(WIDEST_LOAD))
        width_a = np.where(p.along_k_a > 0, np.minimum(p.copy_a, apart), p.copy_a)
        width_b = np.where(p.along_k_b > 0, np.minimum(p.copy_b, apart), p.copy_b)
    loads_a = tile_loads(p.itemsize, t.block_m, c.block_k, c.warps, width_a)
    loads_b = tile_loads(p.itemsize, t.block_n, c.block_k, c.warps, width_b)
    copied_a, copied_b = width_a >= np.float32(MIN_COPY), width_b >= np.float32(MIN_COPY)

    rows["log2_loads_a"] = loads_a
    rows["log2_loads_b"] = loads_b
    rows["pipelined"] = copied_a & copied_b
    return Loads(
        loads_a,
        loads_b,
        loads_a * np.maximum(width_a / _LOAD_BYTES, _ONE),
        loads_b * np.maximum(width_b / _LOAD_BYTES, _ONE),
        copied_a,
        copied_b,
        split,
    )


def _divisor(sizes: Array) -> Array:
    """The greatest of 8, 4, 2 and 1 that divides each of these whole numbers."""
    found = np.where(np.fmod(sizes, np.float32(2)) == 0, np.float32(2), np.float32(1))
    found = np.where(np.fmod(sizes, np.float32(4)) == 0, np.float32(4), found)
    return np.where(np.fmod(sizes, np.float32(8)) == 0, np.float32(8), found)
