"""Triton's template of a sum of two products: the loop over K runs for one and then for the other.

What Inductor offers is as in torch/_inductor (kernel/mm_plus_mm.py and template_heuristics,
torch 2.10 to 2.15, NVIDIA GPUs): one list for both spaces, whose blocks are not made smaller for
small problems.
"""

from __future__ import annotations

from diode_engine.core.templates import config_lists
from diode_engine.core.templates.template import Configs, Space, Version
from diode_engine.core.templates.triton import ARGUMENTS, cut, one_tile_a_block, tiled_template

_UNCUT = 1 << 16  # a size that makes no block smaller


def _reach(m: int, n: int, k: int) -> tuple[int, int, int]:
    """Sizes of the same reach have the same configs: only BLOCK_Ks that are smaller than K are
    offered, and the other blocks do not depend on the sizes."""
    blocks = sorted({block_k for _, _, block_k, _, _ in config_lists.MM_PLUS_MM})
    return _UNCUT, _UNCUT, max((block + 1 for block in blocks if block < k), default=1)


def _configs(m: int, n: int, k: int, torch: Version | None = None) -> Configs:
    return cut(tuple(c for c in config_lists.MM_PLUS_MM if c[2] < k), m, n, _UNCUT)


TEMPLATES = (
    tiled_template(
        "mm_plus_mm",
        ("mm_plus_mm",),
        fuses_prologue=True,
        arguments={**ARGUMENTS, "arg_C": "c", "arg_D": "d"},
        grid=one_tile_a_block,
        space=Space(reach=_reach, default_configs=_configs, exhaustive_configs=_configs),
    ),
)
