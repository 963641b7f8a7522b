"""How many tiles a product has, and how much of them is useful work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diode_engine.core.resources import Array
from diode_engine.features.candidate import Knobs
from diode_engine.features.device import Device
from diode_engine.features.problem import BLOCKS, ProblemFacts
from diode_engine.features.rows import Rows

_ONE = np.float32(1)
_SPREAD = np.float32(4)  # the fewest iterations of a part, where cuBLAS splits K


class Tiles(NamedTuple):
    """The tiles of the kernel that runs; each [n]."""

    block_m: Array
    block_n: Array
    tiles_m: Array
    tiles_n: Array
    tiles_mn: Array  # of one product of the batch
    tiles: Array  # of the whole batch and of all parts of a split K
    depth_k: Array  # K, or the K of a part where K is split
    iterations: Array  # of a tile's loop over K


def tiles(p: ProblemFacts, c: Knobs, device: Device, rows: Rows) -> Tiles:
    """Computes the tiles, and writes the columns that they give."""
    # cuBLAS takes a smaller tile where the problem is smaller than its usual one, and splits K
    # where there are fewer tiles than multiprocessors. decompose_k calls it for its parts.
    own = c.tiled > 0
    block_m = np.where(own, c.block_m, np.minimum(c.block_m, p.small_m))
    block_n = np.where(own, c.block_n, np.minimum(c.block_n, p.small_n))
    # For decompose_k these are the tiles of one part.
    ratio_m, ratio_n = p.M / block_m, p.N / block_n
    tiles_m, tiles_n = np.ceil(ratio_m), np.ceil(ratio_n)
    depth_k = p.K / c.k_split
    ratio_k = depth_k / c.block_k
    iterations = np.ceil(ratio_k)
    efficiency_k = ratio_k / iterations
    if p.divided.any():  # the ends of groups are not those of blocks, so more blocks are needed
        tiles_m = np.where(p.divided == 1, _of_groups(p, block_m), tiles_m)
        tiles_n = np.where(p.divided == 2, _of_groups(p, block_n), tiles_n)
        iterations = np.where(p.divided == 3, _of_groups(p, c.block_k), iterations)
        efficiency_k = ratio_k / iterations
    tiles_mn = tiles_m * tiles_n
    count = tiles_mn * p.B * c.k_split
    spread = np.minimum(
        np.maximum(np.floor(device.sms / count), _ONE), np.maximum(iterations / _SPREAD, _ONE)
    )
    spread = np.where(own, _ONE, spread)
    count = count * spread
    iterations = np.ceil(iterations / spread)

    rows["log2_tiles_m"] = tiles_m
    rows["log2_tiles_n"] = tiles_n
    rows["log2_tiles"] = count
    rows["log2_k_iterations"] = iterations
    rows["log2_over_m"] = np.maximum(block_m / p.M, _ONE)
    rows["log2_over_n"] = np.maximum(block_n / p.N, _ONE)
    rows["log2_tile_intensity"] = block_m * block_n / (block_m + block_n)
    rows["efficiency_m"] = ratio_m / tiles_m
    rows["efficiency_n"] = ratio_n / tiles_n
    rows["efficiency_k"] = efficiency_k
    rows["even_k"] = efficiency_k == 1
    return Tiles(block_m, block_n, tiles_m, tiles_n, tiles_mn, count, depth_k, iterations)


def _of_groups(p: ProblemFacts, block: Array) -> Array:
    """[n] how many blocks of this size a group needs, in the mean. Groups may be empty, so the mean
    can be 0; it is replaced by a small number, since its logarithm is taken."""
    known = (p.blocks_16, p.blocks_32, p.blocks_64, p.blocks_128, p.blocks_256)
    needed: Array = np.select([block <= size for size in BLOCKS], known, known[-1])
    return np.maximum(needed, np.float32(1e-3))
