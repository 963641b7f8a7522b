"""How many tiles a product has, and how much of them is useful work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diode_engine.core.resources import Array
from diode_engine.features.version_2.candidate import Knobs
from diode_engine.features.version_2.device import Device
from diode_engine.features.version_2.problem import BLOCKS, ProblemFacts
from diode_engine.features.version_2.rows import Rows

_ONE = np.float32(1)
_SPREAD = np.float32(4)  # iterations that a part of a split K has at least


class Tiles(NamedTuple):
    """Of the kernel that runs; each [n]."""

    block_m: Array
    block_n: Array
    tiles_m: Array
    tiles_n: Array
    tiles_mn: Array  # of one product of the batch
    tiles: Array  # of all, with the parts of a split K
    depth_k: Array  # of a part of a split K
    iterations: Array  # along K, of a tile


def tiles(p: ProblemFacts, c: Knobs, device: Device, rows: Rows) -> Tiles:
    # cuBLAS takes a smaller tile where the problem is smaller than its usual one, and splits K
    # where there are fewer tiles than multiprocessors; so do the parts of decompose_k.
    own = c.tiled > 0
    block_m = np.where(own, c.block_m, np.minimum(c.block_m, p.small_m))
    block_n = np.where(own, c.block_n, np.minimum(c.block_n, p.small_n))
    # Those of decompose_k are its parts' as well.
    ratio_m, ratio_n = p.M / block_m, p.N / block_n
    tiles_m, tiles_n = np.ceil(ratio_m), np.ceil(ratio_n)
    depth_k = p.K / c.k_split
    ratio_k = depth_k / c.block_k
    iterations = np.ceil(ratio_k)
    efficiency_k = ratio_k / iterations
    if p.divided.any():  # among groups, which do not end where blocks do
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
    """[n] how many blocks of this size a group needs, in the mean. A group may be empty, so the
    mean can be 0; a small number takes its place, since logarithms are taken."""
    known = (p.blocks_16, p.blocks_32, p.blocks_64, p.blocks_128, p.blocks_256)
    needed: Array = np.select([block <= size for size in BLOCKS], known, known[-1])
    return np.maximum(needed, np.float32(1e-3))
