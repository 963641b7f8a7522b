"""Kernels for products of groups: the library's call, and Triton's persistent template, which loads
through the tensor memory accelerator (TMA).

What Inductor offers is as in torch/_inductor/kernel/mm_grouped.py (torch 2.10 to 2.15), for GPUs
with as much shared memory as the H100 and the H200 have.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache, partial

from diode_engine.core.operators import GROUPED, SCALED_GROUPED, Operator
from diode_engine.core.templates.aten import ONE_CALL
from diode_engine.core.templates.template import TILE_PARAMETERS, Configs, Space, Template, Version
from diode_engine.core.templates.triton import tiled_template

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps.
_CONFIGS = tuple(
    itertools.product((16, 32, 64, 128), (64, 128, 256), (64, 128, 256), (3, 4), (4, 8))
)
_SHARED_BYTES = 232_448


def _reach(m: int, n: int, k: int) -> tuple[int, int, int]:
    """(16, 32, 64 or 128; 0; 0): Inductor's configs depend only on the rows of a group, by these
    steps."""
    return next((most for most in (16, 32, 64) if m <= most), 128), 0, 0


@cache
def _configs(itemsize: int, m: int, n: int, k: int, torch: Version | None = None) -> Configs:
    """The configs for operands with elements of `itemsize` bytes."""
    least, most = {16: (16, 32), 32: (16, 64), 64: (32, 128)}.get(m, (64, 128))
    return tuple(
        config
        for config in _CONFIGS
        if least <= config[0] <= most
        and itemsize * (config[0] + config[1]) * config[2] * config[3] <= _SHARED_BYTES
    )


def _templates(name: str, operators: Sequence[Operator]) -> tuple[Template, Template]:
    """The library's template and Triton's, for operators whose operands have one type."""
    ops = tuple(op.name for op in operators)
    configs = partial(_configs, operators[0].dtypes[0].itemsize)
    return (
        Template(name=f"aten::_{name}", ops=ops, extern=True, space=ONE_CALL),
        tiled_template(
            name,
            ops,
            parameters={name: at for name, at in TILE_PARAMETERS.items() if name != "GROUP_M"},
            other_parameters=frozenset(),
            tma=True,
            persistent=True,
            arguments={},
            space=Space(reach=_reach, default_configs=configs, exhaustive_configs=configs),
        ),
    )


TEMPLATES = (
    *_templates("grouped_mm", GROUPED),
    *_templates("scaled_grouped_mm", SCALED_GROUPED),
)
