"""The times of a roofline in microseconds. The largest, plus what cannot overlap with it, is the
base time."""

from __future__ import annotations

import numpy as np

from diode_engine.core.resources import Array
from diode_engine.features.candidate import Knobs
from diode_engine.features.device import Device
from diode_engine.features.loads import Loads
from diode_engine.features.occupancy import Occupancy
from diode_engine.features.problem import ProblemFacts
from diode_engine.features.rows import HUGE, Rows
from diode_engine.features.tiles import Tiles

_ZERO, _ONE = np.float32(0), np.float32(1)
_HUGE = np.float32(HUGE)
_LAUNCH_US = 2.0  # of an empty kernel, between two events
_ITERATION_US = 0.6  # from the load of a tile to its use, when it comes from DRAM
_ISSUE_US = 0.04  # the same when the load was issued early enough: barriers and addresses
_MMA_SHARE = 0.6  # the share of wgmma's rate that mma.sync reaches on a device with wgmma


def roofline(
    p: ProblemFacts, c: Knobs, t: Tiles, loads: Loads, o: Occupancy, device: Device, rows: Rows
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
    p: ProblemFacts, c: Knobs, t: Tiles, o: Occupancy, device: Device, steps: Array
) -> Array:
    """[n] the time of the arithmetic on the multiprocessor that has the most to do."""
    rate = np.where(o.wgmma | (p.typed == 0), _ONE, np.float32(_MMA_SHARE)) * p.peak / device.sms
    time: Array = steps * (2 * t.block_m * t.block_n * c.block_k) / rate
    return time


def _dram(p: ProblemFacts, c: Knobs, t: Tiles, o: Occupancy, device: Device) -> Array:
    """[n] the time to read the operands from DRAM: once each, or again for each wave that L2 cannot
    serve."""
    in_l2 = p.operand_bytes <= device.l2_bytes
    operands = p.operand_bytes
    if not in_l2.all():
        operands = np.where(in_l2, operands, np.maximum(_reloaded(p, c, t, o, device), operands))
    moved = np.minimum(p.unique_bytes - p.operand_bytes + operands, _HUGE)
    time: Array = moved / device.bandwidth
    return time


def _reloaded(p: ProblemFacts, c: Knobs, t: Tiles, o: Occupancy, device: Device) -> Array:
    """[n] the bytes of operands that all waves read. A wave covers group_m rows of tiles and as
    many columns as are left for it."""
    together = np.minimum(device.sms * o.blocks, t.tiles_mn)
    rows_together = np.minimum(c.group_m, t.tiles_m)
    columns_together = np.minimum(np.ceil(together / rows_together), t.tiles_n)
    rows_together = np.maximum(rows_together, np.ceil(together / columns_together))
    wave_bytes = (rows_together * t.block_m + columns_together * t.block_n) * p.K * p.itemsize
    reloaded: Array = np.ceil(t.tiles_mn / together) * wave_bytes * p.busy
    return reloaded
