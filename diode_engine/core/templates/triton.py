"""The tiled templates of Triton: one kernel, each thread block of which computes one tile.

What Inductor offers is as in torch/_inductor (template_heuristics/triton.py, torch 2.10 to 2.15,
NVIDIA GPUs, options as they are set by default).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from diode_engine.core.templates import config_lists
from diode_engine.core.templates.template import (
    OTHER_PARAMETERS,
    TILE_PARAMETERS,
    Configs,
    Grid,
    Space,
    Template,
    Version,
)

# The DEFAULT space: BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps, before they are cut to the
# problem.
_DEFAULT = (
    (32, 32, 16, 1, 2), (32, 32, 128, 2, 4), (32, 64, 32, 5, 8), (64, 32, 32, 5, 8),
    (64, 32, 128, 5, 4), (64, 64, 16, 2, 4), (64, 64, 32, 2, 4), (64, 64, 64, 3, 8),
    (64, 64, 128, 5, 4), (64, 128, 32, 3, 4), (64, 128, 32, 4, 8), (64, 128, 64, 3, 4),
    (64, 128, 128, 4, 4), (128, 64, 32, 3, 4), (128, 64, 32, 4, 8), (128, 128, 32, 2, 8),
    (128, 128, 32, 3, 4), (128, 128, 64, 3, 4), (128, 128, 64, 5, 8), (128, 128, 128, 4, 8),
)  # fmt: skip
_DEFAULT_FROM_2_13 = (*_DEFAULT, (128, 256, 64, 4, 8))
# The EXHAUSTIVE space: all combinations of these.
_BLOCKS = (16, 32, 64, 128, 256)
_STAGES = (1, 2, 3, 4, 5)
_WARPS = (2, 4, 8)
_GROUP_M = 8
MIN_8_BIT_K = 32  # the smallest BLOCK_K of 8-bit products
_MAX_ACCUMULATORS = 255  # 32-bit registers of a thread; Inductor drops a config that needs more

REQUIRED = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {"arg_A": "a", "arg_B": "b", "out_ptr0": "out", "ws_ptr": "workspace"}
)


def reach(m: int, n: int, k: int) -> tuple[int, int, int]:
    """The largest BLOCK_M, BLOCK_N and BLOCK_K that Inductor uses for these sizes."""
    return _reach(m), _reach(n), _reach(k)


def _reach(size: int) -> int:
    return min(max(_BLOCKS[0], 1 << (size - 1).bit_length()), _BLOCKS[-1])


def tiles(m: int, n: int, config: Mapping[str, Any]) -> int:
    """How many tiles cover an M×N matrix."""
    block_m, block_n = int(config["BLOCK_M"]), int(config["BLOCK_N"])
    return -(-m // block_m) * -(-n // block_n)


def _default(m: int, n: int, k: int, torch: Version) -> Configs:
    return cut(_DEFAULT_FROM_2_13 if torch >= (2, 13) else _DEFAULT, m, n, k)


def cut(configs: Configs, m: int, n: int, k: int, torch: Version | None = None) -> Configs:
    """The configs of a list for sizes of this reach, each once: larger blocks are made as small as
    the reach."""
    found: dict[tuple[int, ...], None] = {}
    for block_m, block_n, block_k, stages, warps in configs:
        bm, bn, bk = min(block_m, m), min(block_n, n), min(block_k, k)
        # A warp computes at least a 16×16 tile.
        found[bm, bn, bk, stages, min(warps, bm * bn // 256), _GROUP_M] = None
    return tuple(found)


@cache  # there are 125 reaches
def combinations(
    m: int, n: int, k: int, warps_tried: tuple[int, ...], min_k: int = _BLOCKS[0]
) -> Configs:
    """The configs of the EXHAUSTIVE space for sizes of this reach, each once: larger blocks are
    made as small as the reach, then warps as few as the tile needs. Before that BLOCK_K is at least
    `min_k`."""
    found: dict[tuple[int, ...], None] = {}
    blocks_k = [block for block in _BLOCKS if block >= min_k]
    for bm, bn, bk, warps in itertools.product(_BLOCKS, _BLOCKS, blocks_k, warps_tried):
        bm, bn, bk = min(bm, m), min(bn, n), min(bk, k)
        if -(-bm * bn // (32 * warps)) <= _MAX_ACCUMULATORS:
            for stages in _STAGES:
                found[bm, bn, bk, stages, min(warps, bm * bn // 256), _GROUP_M] = None
    return tuple(found)


def _exhaustive(m: int, n: int, k: int) -> Configs:
    return combinations(m, n, k, _WARPS)


def one_tile_a_block(
    b: int, m: int, n: int, config: Mapping[str, Any], multiprocessors: int
) -> Grid:
    """A launch with one thread block for each tile and batch."""
    return tiles(m, n, config), b, 1


def scaled_outside(problem: Any) -> bool:
    """Whether scaled_mm multiplies the sums by the scales after the loop over K, not the blocks of
    operands within it."""
    return problem.op_fields["scaling"] in ("tensor", "row")


PRODUCT = Space(
    reach=reach,
    default_configs=_default,
    exhaustive_configs=_exhaustive,
    cut_from_list=True,
)
SCALED_MM = Space(
    reach=reach,
    default_configs=partial(cut, config_lists.SCALED_MM),
    exhaustive_configs=lambda m, n, k: combinations(m, n, k, _WARPS, MIN_8_BIT_K),
    cut_from_list=True,
    offered=lambda problem: _BLOCKS[0] < problem.K and scaled_outside(problem),
)
INT_MM = Space(
    reach=lambda m, n, k: (_reach(m), _reach(n), max(MIN_8_BIT_K, _reach(k))),
    default_configs=partial(cut, config_lists.INT_MM),
    exhaustive_configs=partial(cut, config_lists.INT_MM),
)


def tiled_template(name: str, ops: tuple[str, ...], **special: Any) -> Template:
    """Return the record of a tiled Triton template; `special` are the fields in which it differs
    from the others."""
    usual: dict[str, Any] = {
        "name": f"triton::{name}",
        "label": name,
        "ops": ops,
        "parameters": TILE_PARAMETERS,
        "other_parameters": OTHER_PARAMETERS,
        "required": REQUIRED,
        "tiled": True,
        "fuses_epilogue": True,
        "arguments": ARGUMENTS,
    }
    return Template(**(usual | special))


_PRODUCT: Mapping[str, Any] = {
    "fuses_prologue": True,
    "constants": frozenset(),
    "asks_contiguous": True,
    "grid": one_tile_a_block,
    "space": PRODUCT,
}
TEMPLATES = (
    tiled_template(
        "mm",
        ("mm", "addmm", "scaled_mm", "int_mm"),
        spaces={"scaled_mm": SCALED_MM, "int_mm": INT_MM},
        **_PRODUCT,
    ),
    tiled_template("bmm", ("bmm", "baddbmm"), **_PRODUCT),
)
