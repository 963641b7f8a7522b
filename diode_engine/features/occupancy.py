"""What a thread block needs, how many thread blocks a multiprocessor holds, and in how many waves
all of them run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diode_engine.core.resources import (
    Array,
    accumulator_registers,
    tile_shared_bytes,
    uses_wgmma,
)
from diode_engine.features.candidate import Knobs
from diode_engine.features.device import Device
from diode_engine.features.loads import Loads
from diode_engine.features.problem import ProblemFacts
from diode_engine.features.rows import Rows
from diode_engine.features.tiles import Tiles

_ZERO, _ONE = np.float32(0), np.float32(1)
_THREADS_MULTIPROCESSOR = 2048.0
_BLOCKS_MULTIPROCESSOR = 32.0
_SHARED_RESERVED = 1024.0  # bytes of each thread block that the driver takes
_REGISTERS_THREAD = 255.0
# Registers of a thread, fitted to 2,600 compiled kernels (docs/notes/experiments.md). An
# accumulator takes more registers than it has values. An asynchronous copy takes registers for its
# address and mask; another load takes them for its values too, at least one for each load.
_OTHER_REGISTERS = 25.0
_REGISTERS_ACCUMULATOR = 1.25
_REGISTERS_COPY = 1.5
_REGISTERS_LOAD = 0.75


class Occupancy(NamedTuple):
    """How a kernel fills the multiprocessors; each [n]."""

    wgmma: Array  # whether the kernel uses wgmma
    threads: Array  # of a thread block
    spilled: Array  # registers of a thread
    blocks: Array  # thread blocks that a multiprocessor holds
    waves: Array  # with one thread block for each multiprocessor
    active: Array  # thread blocks that share the busiest multiprocessor


def occupancy(
    p: ProblemFacts, c: Knobs, t: Tiles, loads: Loads, device: Device, rows: Rows
) -> Occupancy:
    """Computes the occupancy, and writes the columns that it gives."""
    threads, tma = 32 * c.warps, c.tma > 0
    wgmma = uses_wgmma(p.typed, t.block_m, c.warps)
    shared = tile_shared_bytes(p.itemsize, t.block_m, t.block_n, c.block_k, c.stages, wgmma, tma)
    accumulator = accumulator_registers(t.block_m, t.block_n, c.warps)
    # mma.sync reads a slice of 16 (8 in TF32) of K from registers, 32 bytes of each row.
    operands = np.where(wgmma, _ZERO, (t.block_m + t.block_n) * np.float32(8) / threads)
    staged = c.stages > 1
    waiting = _waiting(loads.loads_a, loads.moves_a, loads.copied_a & staged)
    waiting += _waiting(loads.loads_b, loads.moves_b, loads.copied_b & staged)
    waiting = np.where(tma, _ZERO, waiting)
    registers = (
        np.float32(_REGISTERS_ACCUMULATOR) * accumulator
        + operands + waiting + np.float32(_OTHER_REGISTERS)
    )  # fmt: skip
    spilled = np.maximum(registers - np.float32(_REGISTERS_THREAD), _ZERO)
    allocated = np.minimum(registers, np.float32(_REGISTERS_THREAD))
    blocks = np.minimum(
        np.minimum(
            np.floor(device.shared_bytes / (shared + np.float32(_SHARED_RESERVED))),
            np.floor(device.registers / (allocated * threads)),
        ),
        np.minimum(np.floor(np.float32(_THREADS_MULTIPROCESSOR) / threads),
                   np.float32(_BLOCKS_MULTIPROCESSOR)),
    )  # fmt: skip
    blocks = np.where(c.persistent > 0, _ONE, np.maximum(blocks, _ONE))
    # Waves over the multiprocessors, with one thread block each and with as many as they hold.
    ratio_waves = t.tiles / device.sms
    waves = np.ceil(ratio_waves)
    ratio_resident = ratio_waves / blocks

    rows["log2_waves"] = ratio_waves
    rows["log2_waves_resident"] = ratio_resident
    rows["log2_shared"] = shared
    rows["log2_accumulator"] = accumulator
    rows["log2_registers"] = registers
    rows["fill"] = ratio_waves / waves
    rows["fill_resident"] = ratio_resident / np.ceil(ratio_resident)
    rows["blocks_per_multiprocessor"] = blocks
    rows["threads_share"] = np.minimum(blocks * threads / np.float32(_THREADS_MULTIPROCESSOR), _ONE)
    rows["shared_share"] = shared / device.shared_bytes
    rows["wgmma"] = wgmma
    rows["spilled"] = np.minimum(spilled, np.float32(1024))
    return Occupancy(wgmma, threads, spilled, blocks, waves, np.minimum(blocks, waves))


def _waiting(loads: Array, moves: Array, copied: Array) -> Array:
    """Registers of a thread that hold the loads of an operand while they wait for their turn."""
    return np.where(
        copied, np.float32(_REGISTERS_COPY) * loads, np.float32(_REGISTERS_LOAD) * (loads + moves)
    )
