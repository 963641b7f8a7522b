"""Columns of a problem and a candidate together on a device ("cross" columns): the tiles of the
kernel, the loads of its threads, how it fills the multiprocessors, and the times of a roofline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from diode_engine.core.hardware import Hardware
from diode_engine.core.resources import (
    MIN_COPY,
    WIDEST_LOAD,
    Array,
    accumulator_registers,
    tile_loads,
    tile_shared_bytes,
    uses_wgmma,
)
from diode_engine.features.candidate import Knobs
from diode_engine.features.problem import BLOCKS, ProblemFacts

_ZERO, _ONE = np.float32(0), np.float32(1)
_HUGE = np.float32(1e30)  # larger values are cut to this, so that float32 does not overflow
_L2_TIMES_DRAM = 1.4  # the bandwidth of L2 divided by that of DRAM
_L2_OF_OPERANDS = 0.8  # the share of L2 that holds operands; the rest holds the output
_SPREAD = np.float32(4)  # the fewest iterations of a part, where cuBLAS splits K
_LOAD_BYTES = np.float32(4)  # what a multiprocessor moves for each thread in one cycle
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
_LAUNCH_US = 2.0  # of an empty kernel, between two events
_ITERATION_US = 0.6  # from the load of a tile to its use, when it comes from DRAM
_ISSUE_US = 0.04  # the same when the load was issued early enough: barriers and addresses
_MMA_SHARE = 0.6  # the share of wgmma's rate that mma.sync reaches on a device with wgmma

# The order is that of the columns. Columns of the first group are written as plain values, and
# `fill` replaces all of them by their binary logarithms.
_LOG2 = (
    "log2_tiles_m", "log2_tiles_n", "log2_tiles", "log2_waves", "log2_waves_resident",
    "log2_k_iterations", "log2_shared", "log2_accumulator", "log2_registers", "log2_in_flight",
    "log2_loads_a", "log2_loads_b",
    "log2_over_m", "log2_over_n", "log2_tile_intensity",
    "log2_compute_us", "log2_dram_us", "log2_l2_us", "log2_latency_us", "log2_issue_us",
    "log2_extra_us",
    "log2_base_us",
)  # fmt: skip
_OTHERS = (
    "efficiency_m", "efficiency_n", "efficiency_k", "even_k", "fill", "fill_resident",
    "blocks_per_multiprocessor", "threads_share", "shared_share", "wgmma", "pipelined",
    "depth", "spilled", "compute_share", "dram_share", "l2_share", "latency_share",
)  # fmt: skip
NAMES = _LOG2 + _OTHERS
_PLACE: Mapping[str, int] = {name: place for place, name in enumerate(NAMES)}


class _Rows:
    """Writes columns by name: rows[name] = values [n]. They go into `out` [NAMES, n], whose values
    are undefined before."""

    def __init__(self, out: Array) -> None:
        self._out = out

    def __setitem__(self, name: str, values: Array) -> None:
        self._out[_PLACE[name]] = values


@np.errstate(over="ignore", invalid="ignore")
def fill(facts: Array, knobs: Array, hardware: Hardware, out: Array) -> None:
    """Fills `out` [NAMES, n] from [ProblemFacts, n] (or [ProblemFacts, 1]) and [Knobs, n]. All
    arithmetic is in float32, which is exact for whole numbers up to 2²⁴."""
    p, c, device, rows = ProblemFacts(*facts), Knobs(*knobs), _Device.make(hardware), _Rows(out)
    tiles = _tiles(p, c, device, rows)
    loads = _loads(p, c, tiles, rows)
    occupancy = _occupancy(p, c, tiles, loads, device, rows)
    _roofline(p, c, tiles, loads, occupancy, device, rows)
    logs = out[: len(_LOG2)]
    np.minimum(logs, _HUGE, out=logs)
    np.log2(logs, out=logs)


class _Device(NamedTuple):
    """The rates and sizes of a device."""

    sms: np.float32
    bandwidth: np.float32  # of DRAM, bytes a microsecond
    l2_bandwidth: np.float32  # bytes a microsecond
    l2_bytes: np.float32  # the part of L2 that operands can fill
    shared_bytes: np.float32  # of a multiprocessor
    registers: np.float32  # of a multiprocessor
    clock_mhz: np.float32

    @classmethod
    @lru_cache(maxsize=16)
    def make(cls, hardware: Hardware) -> _Device:
        bandwidth = np.float32(max(hardware.memory_gb_s * 1e3, 1.0))
        return cls(
            sms=np.float32(max(hardware.multiprocessors, 1)),
            bandwidth=bandwidth,
            l2_bandwidth=bandwidth * np.float32(_L2_TIMES_DRAM),
            l2_bytes=np.float32(_L2_OF_OPERANDS * hardware.l2_bytes),
            shared_bytes=np.float32(hardware.shared_bytes_multiprocessor or 1 << 20),
            registers=np.float32(hardware.registers_multiprocessor or 1 << 16),
            clock_mhz=np.float32(max(hardware.clock_mhz, 1)),
        )


class _Tiles(NamedTuple):
    """The tiles of the kernel that runs; each [n]."""

    block_m: Array
    block_n: Array
    tiles_m: Array
    tiles_n: Array
    tiles_mn: Array  # of one product of the batch
    tiles: Array  # of the whole batch and of all parts of a split K
    depth_k: Array  # K, or the K of a part where K is split
    iterations: Array  # of a tile's loop over K


def _tiles(p: ProblemFacts, c: Knobs, device: _Device, rows: _Rows) -> _Tiles:
    """Computes the tiles, and writes the columns that they give."""
    # cuBLAS takes a smaller tile where the problem is smaller than its usual one, and splits K
    # where there are fewer tiles than multiprocessors. decompose_k calls it for its parts.
    own = c.tiled > 0
    block_m = np.where(own, c.block_m, np.minimum(c.block_m, p.small_m))
    block_n = np.where(own, c.block_n, np.minimum(c.block_n, p.small_n))
    # For decompose_k these are the tiles of one part.
    ratio_m, ratio_n = p.M / block_m, p.N / block_n
    tiles_m, tiles_n = np.ceil(ratio_m), np.ceil(ratio_n)
    depth_k = p.K / c.k_split
    ratio_k = depth_k / c.block_k
    iterations = np.ceil(ratio_k)
    efficiency_k = ratio_k / iterations
    if p.divided.any():  # the ends of groups are not those of blocks, so more blocks are needed
        tiles_m = np.where(p.divided == 1, _of_groups(p, block_m), tiles_m)
        tiles_n = np.where(p.divided == 2, _of_groups(p, block_n), tiles_n)
        iterations = np.where(p.divided == 3, _of_groups(p, c.block_k), iterations)
        efficiency_k = ratio_k / iterations
    tiles_mn = tiles_m * tiles_n
    count = tiles_mn * p.B * c.k_split
    spread = np.minimum(
        np.maximum(np.floor(device.sms / count), _ONE), np.maximum(iterations / _SPREAD, _ONE)
    )
    spread = np.where(own, _ONE, spread)
    count = count * spread
    iterations = np.ceil(iterations / spread)

    rows["log2_tiles_m"] = tiles_m
    rows["log2_tiles_n"] = tiles_n
    rows["log2_tiles"] = count
    rows["log2_k_iterations"] = iterations
    rows["log2_over_m"] = np.maximum(block_m / p.M, _ONE)
    rows["log2_over_n"] = np.maximum(block_n / p.N, _ONE)
    rows["log2_tile_intensity"] = block_m * block_n / (block_m + block_n)
    rows["efficiency_m"] = ratio_m / tiles_m
    rows["efficiency_n"] = ratio_n / tiles_n
    rows["efficiency_k"] = efficiency_k
    rows["even_k"] = efficiency_k == 1
    return _Tiles(block_m, block_n, tiles_m, tiles_n, tiles_mn, count, depth_k, iterations)


def _of_groups(p: ProblemFacts, block: Array) -> Array:
    """[n] how many blocks of this size a group needs, in the mean. Groups may be empty, so the mean
    can be 0; it is replaced by a small number, since its logarithm is taken."""
    known = (p.blocks_16, p.blocks_32, p.blocks_64, p.blocks_128, p.blocks_256)
    needed: Array = np.select([block <= size for size in BLOCKS], known, known[-1])
    return np.maximum(needed, np.float32(1e-3))


class _Loads(NamedTuple):
    """What a thread loads of A and of B for a tile; each [n]."""

    loads_a: Array  # load instructions
    loads_b: Array
    moves_a: Array  # cycles of a multiprocessor that the loads take; also registers that they fill
    moves_b: Array
    copied_a: Array  # whether the loads are asynchronous copies
    copied_b: Array
    split: Array  # whether K is split


def _loads(p: ProblemFacts, c: Knobs, t: _Tiles, rows: _Rows) -> _Loads:
    """Computes the loads, and writes the columns that they give."""
    # A part of a split K starts where the parts before it end: an operand that is contiguous
    # along K may be less aligned there.
    width_a, width_b = p.copy_a, p.copy_b
    split = c.k_split > 1
    if split.any():
        apart = np.where(split, p.itemsize * _divisor(t.depth_k), np.float32(WIDEST_LOAD))
        width_a = np.where(p.along_k_a > 0, np.minimum(p.copy_a, apart), p.copy_a)
        width_b = np.where(p.along_k_b > 0, np.minimum(p.copy_b, apart), p.copy_b)
    loads_a = tile_loads(p.itemsize, t.block_m, c.block_k, c.warps, width_a)
    loads_b = tile_loads(p.itemsize, t.block_n, c.block_k, c.warps, width_b)
    copied_a, copied_b = width_a >= np.float32(MIN_COPY), width_b >= np.float32(MIN_COPY)

    rows["log2_loads_a"] = loads_a
    rows["log2_loads_b"] = loads_b
    rows["pipelined"] = copied_a & copied_b
    return _Loads(
        loads_a,
        loads_b,
        loads_a * np.maximum(width_a / _LOAD_BYTES, _ONE),
        loads_b * np.maximum(width_b / _LOAD_BYTES, _ONE),
        copied_a,
        copied_b,
        split,
    )


def _divisor(sizes: Array) -> Array:
    """The greatest of 8, 4, 2 and 1 that divides each of these whole numbers."""
    found = np.where(np.fmod(sizes, np.float32(2)) == 0, np.float32(2), np.float32(1))
    found = np.where(np.fmod(sizes, np.float32(4)) == 0, np.float32(4), found)
    return np.where(np.fmod(sizes, np.float32(8)) == 0, np.float32(8), found)


class _Occupancy(NamedTuple):
    """How a kernel fills the multiprocessors; each [n]."""

    wgmma: Array  # whether the kernel uses wgmma
    threads: Array  # of a thread block
    spilled: Array  # registers of a thread
    blocks: Array  # thread blocks that a multiprocessor holds
    waves: Array  # with one thread block for each multiprocessor
    active: Array  # thread blocks that share the busiest multiprocessor


def _occupancy(
    p: ProblemFacts, c: Knobs, t: _Tiles, loads: _Loads, device: _Device, rows: _Rows
) -> _Occupancy:
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
    return _Occupancy(wgmma, threads, spilled, blocks, waves, np.minimum(blocks, waves))


def _waiting(loads: Array, moves: Array, copied: Array) -> Array:
    """Registers of a thread that hold the loads of an operand while they wait for their turn."""
    return np.where(
        copied, np.float32(_REGISTERS_COPY) * loads, np.float32(_REGISTERS_LOAD) * (loads + moves)
    )


def _roofline(
    p: ProblemFacts, c: Knobs, t: _Tiles, loads: _Loads, o: _Occupancy, device: _Device, rows: _Rows
) -> None:
    """Writes the columns of the times."""
    # How many tiles along K are being loaded at a time.
    depth = np.where(loads.copied_a & loads.copied_b, np.minimum(c.stages, t.iterations), _ONE)
    step_bytes = p.itemsize * (t.block_m + t.block_n) * c.block_k
    # Over how many loads the wait of one step is spread.
    hidden = np.maximum(depth - _ONE, np.float32(0.5))
    steps = o.waves * t.iterations  # of the busiest multiprocessor

    compute = _compute(p, c, t, o, device, steps)
    # Loads from L2, and the latency that neither other blocks nor earlier stages hide.
    l2 = np.minimum(t.tiles * t.iterations * step_bytes, _HUGE) / device.l2_bandwidth
    latency = steps * (np.float32(_ISSUE_US) + np.float32(_ITERATION_US) / hidden) / o.active
    # Load instructions, and the stores of what they brought.
    moves = loads.moves_a * np.where(loads.copied_a, _ONE, np.float32(2))
    moves += loads.moves_b * np.where(loads.copied_b, _ONE, np.float32(2))
    issue = steps * moves * c.warps / device.clock_mhz
    dram = _dram(p, c, t, o, device)
    extra = np.float32(_LAUNCH_US) * (_ONE + loads.split)
    if loads.split.any():  # the parts' sums are written, and added up by another kernel
        partial = np.where(loads.split, 2 * 4 * c.k_split * p.B * p.M * p.N, _ZERO)
        extra = partial / device.bandwidth + extra
    extra = extra + o.spilled * o.threads * 8 * t.tiles * t.iterations / device.l2_bandwidth
    work = np.maximum(np.maximum(np.maximum(compute, dram), np.maximum(l2, latency)), issue)
    base = np.minimum(work + extra, _HUGE)

    rows["log2_in_flight"] = o.active * hidden * step_bytes
    rows["log2_compute_us"] = compute
    rows["log2_dram_us"] = dram
    rows["log2_l2_us"] = l2
    rows["log2_latency_us"] = latency
    rows["log2_issue_us"] = issue
    rows["log2_extra_us"] = extra
    rows["log2_base_us"] = base
    rows["depth"] = depth
    rows["compute_share"] = compute / base
    rows["dram_share"] = dram / base
    rows["l2_share"] = l2 / base
    rows["latency_share"] = latency / base


def _compute(
    p: ProblemFacts, c: Knobs, t: _Tiles, o: _Occupancy, device: _Device, steps: Array
) -> Array:
    """[n] the time of the arithmetic on the multiprocessor that has the most to do."""
    rate = np.where(o.wgmma | (p.typed == 0), _ONE, np.float32(_MMA_SHARE)) * p.peak / device.sms
    time: Array = steps * (2 * t.block_m * t.block_n * c.block_k) / rate
    return time


def _dram(p: ProblemFacts, c: Knobs, t: _Tiles, o: _Occupancy, device: _Device) -> Array:
    """[n] the time to read the operands from DRAM: once each, or again for each wave that L2 cannot
    serve."""
    in_l2 = p.operand_bytes <= device.l2_bytes
    operands = p.operand_bytes
    if not in_l2.all():
        operands = np.where(in_l2, operands, np.maximum(_reloaded(p, c, t, o, device), operands))
    moved = np.minimum(p.unique_bytes - p.operand_bytes + operands, _HUGE)
    time: Array = moved / device.bandwidth
    return time


def _reloaded(p: ProblemFacts, c: Knobs, t: _Tiles, o: _Occupancy, device: _Device) -> Array:
    """[n] the bytes of operands that all waves read. A wave covers group_m rows of tiles and as
    many columns as are left for it."""
    together = np.minimum(device.sms * o.blocks, t.tiles_mn)
    rows_together = np.minimum(c.group_m, t.tiles_m)
    columns_together = np.minimum(np.ceil(together / rows_together), t.tiles_n)
    rows_together = np.maximum(rows_together, np.ceil(together / columns_together))
    wave_bytes = (rows_together * t.block_m + columns_together * t.block_n) * p.K * p.itemsize
    reloaded: Array = np.ceil(t.tiles_mn / together) * wave_bytes * p.busy
    return reloaded
