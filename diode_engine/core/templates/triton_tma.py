"""Triton's persistent template that loads through the tensor memory accelerator (TMA).

What Inductor offers is as in torch/_inductor (template_heuristics/triton.py, torch 2.10 to 2.15,
NVIDIA GPUs) with TMA_OPTION set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diode_engine.core.templates.template import TMA_OPTION, Configs, Grid, Space
from diode_engine.core.templates.triton import combinations, reach, tiled_template, tiles

WARPS = (4, 8)


def _exhaustive(m: int, n: int, k: int) -> Configs:
    return combinations(m, n, k, WARPS)


def resident_blocks(
    b: int, m: int, n: int, config: Mapping[str, Any], multiprocessors: int
) -> Grid:
    """A launch with one thread block for each tile, but not more than one for each
    multiprocessor."""
    return min(tiles(m, n, config), multiprocessors), b, 1


TEMPLATES = (
    tiled_template(
        "mm_persistent_tma",
        ("mm", "addmm"),
        label="mm_tma",
        tma=True,
        persistent=True,
        option=TMA_OPTION,
        constants=frozenset(),
        grid=resident_blocks,
        space=Space(reach=reach, exhaustive_configs=_exhaustive, cut_from_list=True),
    ),
)
