"""What a problem asks of the device, in units of the device's limits."""

from __future__ import annotations

import math

from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.features.version_2 import problem as version_2

# The order is that of the columns.
NAMES = ("log2_balance", "log2_bytes_sm", "log2_flops_sm", "align_differs")

_TILE = 128  # the side of the tiles in which a multiprocessor's share of the work is counted


def describe(problem: Problem, hardware: Hardware) -> tuple[list[float], tuple[float, ...]]:
    """As `describe` of version 2; the values of NAMES come after its columns, and after its facts
    whether the arithmetic is float32 without TF32."""
    columns, facts = version_2.describe(problem, hardware)
    sms = max(hardware.multiprocessors, 1)
    unique = problem.moved_bytes[1]
    peak = max(hardware.peak_flops(problem.dtype, tf32=problem.allow_tf32), 1.0)
    # The problem's flops for each byte, divided by the flops for each byte that keep the device's
    # arithmetic and its DRAM equally busy.
    balance = problem.flops / unique / (peak / max(hardware.memory_gb_s * 1e9, 1.0))
    l2 = max(hardware.l2_bytes, 1) / sms
    tile_flops = 2 * _TILE * _TILE * problem.K
    named = {
        "log2_balance": math.log2(balance),
        "log2_bytes_sm": math.log2(unique / sms / l2),
        "log2_flops_sm": math.log2(problem.flops / sms / tile_flops),
        "align_differs": math.log2(problem.a.align / problem.b.align),
    }
    full_precision = problem.dtype is DType.FLOAT32 and not problem.allow_tf32
    return [*columns, *(named[name] for name in NAMES)], (*facts, full_precision)
