"""Inductor's lists of configs for 8-bit products and for mm_plus_mm in its DEFAULT space. A config
is BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps; Inductor makes blocks smaller where the problem
is.

The lists are those of torch/_inductor (template_heuristics/triton.py, NVIDIA GPUs), the same in
torch 2.11 to 2.15.
"""

from __future__ import annotations

from diode_engine.core.templates.template import Configs

# For few rows: every small tile with 2 to 6 stages.
_FEW_ROWS: Configs = tuple(
    (m, n, k, stages, 2 if n <= 64 else 4)
    for stages in range(2, 7)
    for m in (16, 32)
    for k in (32, 64)
    for n in (32, 64, 128, 256)
)
SCALED_MM: Configs = (
    (128, 256, 32, 3, 8), (256, 128, 32, 3, 8), (256, 64, 32, 4, 4), (64, 256, 32, 4, 4),
    (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (128, 32, 32, 4, 4),
    (64, 32, 32, 5, 2), (256, 128, 128, 3, 8), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4),
    (128, 128, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4),
    (64, 32, 64, 5, 2),
    *_FEW_ROWS,
    (64, 16, 256, 5, 4), (64, 32, 256, 5, 4), (64, 128, 128, 2, 4), (64, 128, 128, 3, 4),
    (128, 128, 128, 2, 4), (128, 256, 128, 4, 8), (256, 128, 128, 2, 4), (256, 128, 128, 2, 8),
)  # fmt: skip
SCALED_MM_TMA: Configs = (
    (128, 128, 64, 3, 8), (128, 128, 128, 3, 8), (128, 128, 128, 4, 8), (128, 128, 128, 4, 4),
    (128, 128, 128, 3, 4), (128, 128, 128, 5, 4), (128, 128, 128, 5, 8), (128, 128, 128, 6, 8),
    (128, 128, 64, 4, 8), (64, 32, 256, 5, 4), (128, 256, 128, 3, 8), (64, 128, 256, 4, 4),
    (64, 256, 128, 4, 4),
)  # fmt: skip
INT_MM: Configs = (
    (64, 64, 32, 2, 4), (64, 128, 32, 3, 4), (128, 64, 32, 3, 4), (64, 128, 32, 4, 8),
    (128, 64, 32, 4, 8), (64, 32, 32, 5, 8), (32, 64, 32, 5, 8), (128, 128, 32, 2, 8),
    (64, 64, 64, 3, 8), (128, 256, 128, 3, 8), (256, 128, 128, 3, 8),
)  # fmt: skip
MM_PLUS_MM: Configs = (
    (64, 64, 32, 2, 4), (64, 64, 32, 3, 8), (64, 64, 32, 4, 16), (64, 32, 32, 4, 8),
    (32, 64, 32, 4, 8), (128, 128, 32, 1, 8), (64, 64, 64, 1, 8), (32, 32, 128, 1, 8),
    (64, 64, 16, 2, 4), (32, 32, 16, 1, 2),
)  # fmt: skip
