"""One iteration of a tile's K loop in the device's own units, and K loops so short that the
compiler unrolls them."""

from __future__ import annotations

import numpy as np

from diode_engine.core.hardware import Hardware
from diode_engine.core.resources import (
    MAX_IN_A_ROW,
    MAX_IN_TWO_PASSES,
    Array,
    accumulator_registers,
)
from diode_engine.features.version_2 import VERSION_2, cross
from diode_engine.features.version_2.candidate import Knobs
from diode_engine.features.version_2.device import Device
from diode_engine.features.version_2.problem import ProblemFacts

# The order is that of the columns.
NAMES = (
    "log2_step_cycles", "log2_step_balance", "log2_in_flight_share", "single_pass", "two_passes",
    "erratic", "log2_last_step",
)  # fmt: skip

_ONE = np.float32(1)
_OLD = len(VERSION_2.cross)  # the number of cross columns of version 2, which come first
_IN_FLIGHT = VERSION_2.cross.index("log2_in_flight")
_ITERATIONS = VERSION_2.cross.index("log2_k_iterations")
_LATENCY_US = np.float32(0.6)  # of a load from DRAM


def fill(facts: Array, knobs: Array, hardware: Hardware, out: Array) -> None:
    """As `fill` of version 2's cross.py; the values of NAMES come after its columns."""
    *of_version_2, full_precision = facts
    cross.fill(facts[:-1], knobs, hardware, out[:_OLD])
    p, c, device = ProblemFacts(*of_version_2), Knobs(*knobs), Device.of(hardware)
    tiled = c.tiled > 0
    rate = p.peak / device.sms  # flops a microsecond of a multiprocessor
    compute_us = 2 * c.block_m * c.block_n * c.block_k / rate
    step_bytes = p.itemsize * (c.block_m + c.block_n) * c.block_k
    load_us = step_bytes * device.sms / device.l2_bandwidth
    # Bytes that have to be on their way for DRAM to be busy (Little's law).
    needed = device.bandwidth * _LATENCY_US / device.sms
    passes = np.exp2(out[_ITERATIONS])
    # As resources.spills_erratically has it.
    multiplications = accumulator_registers(c.block_m, c.block_n, c.warps) * c.block_k
    unrolled = ((c.block_k >= p.K) & (multiplications >= np.float32(MAX_IN_A_ROW))) | (
        (2 * c.block_k >= p.K) & (multiplications >= np.float32(MAX_IN_TWO_PASSES))
    )
    # How much of K is left for the last iteration; not exact for K above 2²⁴, in float32.
    last = np.clip(p.K - np.floor((p.K - _ONE) / c.block_k) * c.block_k, _ONE, c.block_k)

    columns = {
        "log2_step_cycles": np.log2(compute_us * device.clock_mhz),
        "log2_step_balance": np.log2(compute_us / load_us),
        "log2_in_flight_share": out[_IN_FLIGHT] - np.log2(needed),
        "single_pass": tiled & (passes < np.float32(1.5)),
        "two_passes": tiled & (passes > np.float32(1.5)) & (passes < np.float32(2.5)),
        "erratic": tiled & unrolled & (full_precision > 0),
        "log2_last_step": np.log2(last / c.block_k),
    }
    for place, name in enumerate(NAMES, _OLD):
        out[place] = columns[name]
