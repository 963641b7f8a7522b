"""A product whose K is split: a batched product of the parts, then their sum.

What Inductor offers is as in torch/_inductor (template_heuristics/decompose_k.py and kernel/mm.py,
torch 2.10 to 2.15).
"""

from __future__ import annotations

import math

from diode_engine.core.templates.template import SPLIT_PARAMETERS, Configs, Space, Template, Version

# K divided by the larger of M and N: from the first value on K may be split, from the second on
# only splits and ATen are offered.
_SPLIT_FROM = 32
_SPLIT_ONLY_FROM = 64
_MAX_DEFAULT_SPLITS = 10  # in the DEFAULT space
_MIN_PART = 128  # of K


def k_splits(m: int, n: int, k: int) -> list[int]:
    """Into how many parts K may be split. Numbers for which a part's length is a power of two
    come first, then those with a multiple of 32, then the others; the DEFAULT space has the
    first ten."""
    most = min(k // m, k // n, k // _MIN_PART)
    small = [d for d in range(1, math.isqrt(k) + 1) if k % d == 0]
    powers: list[int] = []
    multiples: list[int] = []
    others: list[int] = []
    for split in sorted({*small, *(k // d for d in small)}):
        part = k // split
        if 2 <= split <= most:
            kind = powers if part & (part - 1) == 0 else multiples if part % 32 == 0 else others
            kind.append(split)
    return powers + multiples + others


def _exhaustive(m: int, n: int, k: int) -> Configs:
    if k / max(m, n) < _SPLIT_FROM:
        return ()
    return tuple((split,) for split in k_splits(m, n, k))


def _default(m: int, n: int, k: int, torch: Version) -> Configs:
    return _exhaustive(m, n, k)[:_MAX_DEFAULT_SPLITS]


TEMPLATES = (
    Template(
        name="decompose_k",
        ops=("mm",),
        parameters=SPLIT_PARAMETERS,
        required=tuple(SPLIT_PARAMETERS),
        space=Space(default_configs=_default, exhaustive_configs=_exhaustive),
        excludes_tiled=lambda m, n, k: k / max(m, n) >= _SPLIT_ONLY_FROM,
    ),
)
