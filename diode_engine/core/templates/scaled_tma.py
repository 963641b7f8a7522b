"""Triton's persistent TMA templates of scaled_mm. One multiplies the sums by the scales after the
loop over K (a scale for each operand or row), the other the blocks of operands within the loop.

What Inductor offers is as in torch/_inductor (template_heuristics/triton.py, torch 2.11 to 2.15,
NVIDIA GPUs) with TMA_OPTION set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.core.templates import config_lists
from diode_engine.core.templates.template import TMA_OPTION, Space, Template
from diode_engine.core.templates.triton import (
    ARGUMENTS,
    MIN_8_BIT_K,
    combinations,
    cut,
    reach,
    scaled_outside,
    tiled_template,
)
from diode_engine.core.templates.triton_tma import WARPS, resident_blocks

_BARRIERS = 64  # bytes, at most


def shared_bytes(problem: Any, columns: Any, hardware: Any) -> npt.NDArray[np.float32]:
    """[n] bytes of shared memory that a thread block needs at most. They are the tiles of all
    stages (all but one without wgmma, where registers hold the current one), and a buffer for the
    output, since the loop goes on while a tile is stored.

    It was checked with 42 kernels compiled for sm_90 with torch 2.11: none needs more. Of the 36 of
    them that fit an H200, the rule wrongly excludes 2.
    """
    c = columns
    wgmma = (c.block_m >= 64) & (np.fmod(c.warps, 4) == 0) & hardware.has_wgmma
    stages = np.where(wgmma, c.stages, np.maximum(c.stages - 1, 1))
    staged = problem.out_dtype.itemsize * c.block_m * c.block_n
    need: npt.NDArray[np.float32] = (
        problem.dtype.itemsize * (c.block_m + c.block_n) * c.block_k * stages + staged + _BARRIERS
    )
    return need


def _template(name: str, label: str, offered: Callable[[Any], bool], **special: Any) -> Template:
    space = Space(
        reach=reach,
        default_configs=partial(cut, config_lists.SCALED_MM_TMA),
        exhaustive_configs=lambda m, n, k: combinations(m, n, k, WARPS, MIN_8_BIT_K),
        offered=lambda problem: problem.bias == "none" and offered(problem),
    )
    return tiled_template(
        name,
        ("scaled_mm",),
        label=label,
        tma=True,
        persistent=True,
        option=TMA_OPTION,
        arguments={
            **ARGUMENTS, "arg_A_inverse_scale": "scale_a", "arg_B_inverse_scale": "scale_b",
        },
        grid=resident_blocks,
        shared_bytes=shared_bytes,
        spaces={"scaled_mm": space},
        **special,
    )  # fmt: skip


TEMPLATES = (
    _template(
        "scaled_mm_device_tma_epilogue_scaling", "scaled_tma", scaled_outside,
        constants=frozenset(),
    ),
    _template(
        "scaled_mm_device_tma_main_loop_scaling", "scaled_tma_blocks",
        lambda problem: not scaled_outside(problem),
        # Before 2.15 it reads all scales as if they lay side by side along K, while those of 1×128
        # lie side by side along M or N, as the library takes them. It also reads the scales of
        # another tile where BLOCK_K is not 128, or BLOCK_N with scales of 128×128.
        right_from=(2, 15),
    ),
)  # fmt: skip
