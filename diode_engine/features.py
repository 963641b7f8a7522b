"""What a model sees of a problem and a candidate on a device: one row of float32 each.

The same function makes the rows that are trained on and the rows that are asked about at
compile time; a row does not depend on the rows around it, bit for bit. Columns that belong to
the problem or the candidate alone are computed once each and gathered; the others ("cross")
follow from both and are computed on blocks of rows that stay in the processor's cache.

Times are estimates in microseconds from the device's data sheet: a roofline with the waves of
tiles over multiprocessors, tiles that reach over the edge, the reach of L2 and the latency of
loads that nothing hides. They need not be right, only to move as the truth does; the largest
of them is the *base* time, from which a model may learn the difference.

Sources: waves, tile and wave quantisation: NVIDIA, "Matrix Multiplication Background User's
Guide"; the roofline: Williams, Waterman and Patterson, CACM 52(4), 2009; the order of tiles
(GROUP_M): Triton's matrix-multiplication tutorial; copy widths by alignment: kernels compiled
for sm_90, see `_COPY_BYTES`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from diode_engine.core.encoding import CandidateColumns, encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Bias, Candidate, DType, Layout, Op, Problem
from diode_engine.core.resources import (
    WIDEST_LOAD,
    Array,
    accumulator_registers,
    tile_loads,
    tile_shared_bytes,
    uses_wgmma,
    wgmma_type,
)

VERSION = 2

_PROBLEM = (
    "log2_B", "log2_M", "log2_N", "log2_K",
    "log2_flops", "log2_bytes", "log2_intensity", "log2_ideal_us", "compute_bound",
    "log2_l2_share", "itemsize", "bfloat16", "float16", "tf32",
    "mm", "addmm", "bmm", "baddbmm",
    "a_col", "b_col", "log2_align_a", "log2_align_b", "log2_align_out",
    "log2_copy_a", "log2_copy_b",
    "bias_vector", "bias_matrix", "bias_other",
    "fill_128x128", "fill_256x128", "fill_64x64",
)  # fmt: skip
_CANDIDATE = (
    "aten", "triton", "triton_tma", "decompose_k", "aten_bias_addmm",
    "log2_block_m", "log2_block_n", "log2_block_k", "stages", "log2_warps", "log2_group_m",
    "log2_k_split", "log2_tile",
)  # fmt: skip
_CROSS_LOG2 = (
    "log2_tiles_m", "log2_tiles_n", "log2_tiles", "log2_waves", "log2_waves_resident",
    "log2_k_iterations", "log2_shared", "log2_accumulator", "log2_registers", "log2_in_flight",
    "log2_loads_a", "log2_loads_b",
    "log2_over_m", "log2_over_n", "log2_tile_intensity",
    "log2_compute_us", "log2_dram_us", "log2_l2_us", "log2_latency_us", "log2_issue_us",
    "log2_extra_us",
    "log2_base_us",
)  # fmt: skip
_CROSS = (
    "efficiency_m", "efficiency_n", "efficiency_k", "even_k", "fill", "fill_resident",
    "blocks_per_multiprocessor", "threads_share", "shared_share", "wgmma", "pipelined",
    "depth", "spilled", "compute_share", "dram_share", "l2_share", "latency_share",
)  # fmt: skip

NAMES: tuple[str, ...] = _PROBLEM + _CANDIDATE + _CROSS_LOG2 + _CROSS
NAMES_HASH: str = hashlib.sha256("\n".join(NAMES).encode()).hexdigest()[:16]
BASE = NAMES.index("log2_base_us")
OF_PROBLEM = len(_PROBLEM)  # columns: those that follow from the problem alone come first

_BLOCK = 1 << 14  # rows computed at once: the vectors of a block fit in L2
# Element types whose kernels the columns can tell apart.
DTYPES = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)

# An asynchronous copy moves at most 16 bytes and at least 4: below, the loads of a tile go
# through registers and the loop is not pipelined, whatever num_stages says.
_COPY_BYTES = (4.0, float(WIDEST_LOAD))
_LAUNCH_US = 2.0  # an empty kernel, between two events
_ITERATION_US = 0.6  # from a load of a tile to its use, when it comes from DRAM
_ISSUE_US = 0.04  # the same when it was asked for in time: barriers and addresses
_MMA_SHARE = 0.6  # of wgmma's rate that mma.sync reaches on a device with wgmma
_L2_TIMES_DRAM = 1.4  # bandwidth
_SPREAD = np.float32(4)  # iterations that a part of a split K has at least
_THREADS_MULTIPROCESSOR = 2048.0
_BLOCKS_MULTIPROCESSOR = 32.0
_SHARED_RESERVED = 1024.0  # bytes a thread block that the driver takes
_REGISTERS_THREAD = 255.0
# Registers a thread, fitted to 2,600 compiled kernels (benchmarks/registers.py): an accumulator
# takes more than its values, a load that is copied asynchronously its address and mask, another
# one its values as well, each at least a register wide.
_OTHER_REGISTERS = 25.0
_REGISTERS_ACCUMULATOR = 1.25
_REGISTERS_COPY = 1.5
_REGISTERS_LOAD = 0.75
_LOAD_BYTES = np.float32(4)  # of a thread that a multiprocessor moves in one cycle
_HUGE = 1e30  # where no device's memory reaches, float32 must not overflow

# Per-problem values that the cross columns need, in this order.
_FACTS = (
    "B", "M", "N", "K", "itemsize", "typed", "copy_a", "copy_b", "along_k_a", "along_k_b", "peak",
    "operand_bytes", "unique_bytes", "small_m", "small_n",
)  # fmt: skip


def supported(
    problems: Sequence[Problem],
    candidates: Sequence[Candidate],
    problem_index: npt.NDArray[np.integer],
    candidate_index: npt.NDArray[np.integer],
) -> npt.NDArray[np.bool_]:
    """[n] whether `matrix` can make a row that means something: the template and its kwargs
    are known (see encoding) and the type is one of DTYPES."""
    typed = np.array([problem.dtype in DTYPES for problem in problems], bool)
    ok: npt.NDArray[np.bool_] = typed[problem_index] & encode(candidates).known[candidate_index]
    return ok


def matrix(
    problems: Sequence[Problem],
    candidates: Sequence[Candidate],
    problem_index: npt.NDArray[np.integer],
    candidate_index: npt.NDArray[np.integer],
    hardware: Hardware,
) -> npt.NDArray[np.float32]:
    """[n, F] the rows (problems[problem_index[i]], candidates[candidate_index[i]]), F as
    NAMES. A row of a candidate or a problem that is not `supported` holds numbers without a
    meaning; no value is NaN or infinite."""
    n = len(problem_index)
    described = [_describe(problem, hardware) for problem in problems]
    problem_rows = np.array([d[0] for d in described], np.float32).reshape(-1, len(_PROBLEM))
    facts = np.ascontiguousarray(
        np.array([d[1] for d in described], np.float32).reshape(-1, len(_FACTS)).T
    )
    candidate_columns, knobs = _of_candidates(encode(candidates))
    candidate_rows = candidate_columns.T

    x = np.empty((n, len(NAMES)), np.float32)
    first, second = OF_PROBLEM, OF_PROBLEM + len(_CANDIDATE)
    block = np.empty((len(NAMES) - second, min(n, _BLOCK)), np.float32)
    for start in range(0, n, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n))
        p, c = problem_index[rows], candidate_index[rows]
        size = len(p)
        x[rows, :first] = problem_rows[p]
        x[rows, first:second] = candidate_rows[c]
        cross = block[:, :size]
        # One problem broadcasts: the same arithmetic on each element, without the gathering.
        with np.errstate(over="ignore", invalid="ignore"):
            _cross(facts if len(problems) == 1 else facts[:, p], knobs[:, c], hardware, cross)
        x[rows, second:] = cross.T
    return x


@dataclass(frozen=True, eq=False)
class Space:
    """What `matrix` says of one problem and n candidates, without repeating the problem:
    `problem` [OF_PROBLEM] the columns that follow from it alone, `rest` [F − OF_PROBLEM, n] the
    other columns, each one's values side by side."""

    problem: npt.NDArray[np.float32]
    rest: npt.NDArray[np.float32]

    @property
    def base(self) -> npt.NDArray[np.float32]:
        """[n] the binary logarithm of the base time in microseconds."""
        base: npt.NDArray[np.float32] = self.rest[BASE - OF_PROBLEM]
        return base

    def take(self, which: npt.NDArray[np.bool_]) -> Space:
        """Of these candidates only."""
        return Space(self.problem, self.rest.take(np.flatnonzero(which), axis=1))

    def rows(self) -> npt.NDArray[np.float32]:
        """[n, F] as `matrix` has them, bit for bit."""
        x = np.empty((self.rest.shape[1], len(NAMES)), np.float32)
        x[:, :OF_PROBLEM] = self.problem
        x[:, OF_PROBLEM:] = self.rest.T
        return x


def space(problem: Problem, candidates: Sequence[Candidate], hardware: Hardware) -> Space:
    """The same numbers as `matrix`, bit for bit, in half the time."""
    row, facts = _describe(problem, hardware)
    candidate_columns, knobs = _of_candidates(encode(candidates))
    own = len(_CANDIDATE)
    rest = np.empty((len(NAMES) - OF_PROBLEM, len(candidates)), np.float32)
    rest[:own] = candidate_columns
    with np.errstate(over="ignore", invalid="ignore"):
        _cross(np.array(facts, np.float32)[:, None], knobs, hardware, rest[own:])
    return Space(np.array(row, np.float32), rest)


def _describe(problem: Problem, hardware: Hardware) -> tuple[list[float], list[float]]:
    """The values of _PROBLEM and of _FACTS."""
    B, M, N, K = problem.B, problem.M, problem.N, problem.K
    size, out_size = problem.dtype.itemsize, problem.out_dtype.itemsize
    a_bytes, b_bytes, out_bytes = B * M * K * size, B * K * N * size, B * M * N * out_size
    bias_bytes = {
        Bias.NONE: 0, Bias.SCALAR: out_size, Bias.VECTOR: N * out_size,
        Bias.COLUMN: M * out_size, Bias.MATRIX: out_bytes,
    }[problem.bias]  # fmt: skip
    unique = a_bytes + b_bytes + out_bytes + bias_bytes
    peak = max(hardware.peak_flops(problem.dtype, tf32=problem.allow_tf32) / 1e6, 1.0)
    bandwidth = max(hardware.memory_gb_s * 1e3, 1.0)
    compute_us, dram_us = problem.flops / peak, unique / bandwidth
    high = _COPY_BYTES[1]
    copy_a = min(high, size * problem.a.align)
    copy_b = min(high, size * problem.b.align)
    sms = max(hardware.multiprocessors, 1)

    def fill(block_m: int, block_n: int) -> float:
        tiles = B * math.ceil(M / block_m) * math.ceil(N / block_n)
        work = M * N * B / (tiles * block_m * block_n)
        return work * tiles / (math.ceil(tiles / sms) * sms)

    row = [
        math.log2(B), math.log2(M), math.log2(N), math.log2(K),
        math.log2(problem.flops), math.log2(unique), math.log2(problem.flops / unique),
        math.log2(max(compute_us, dram_us)), compute_us / (compute_us + dram_us),
        math.log2((a_bytes + b_bytes) / max(hardware.l2_bytes, 1)),
        size, problem.dtype is DType.BFLOAT16, problem.dtype is DType.FLOAT16, problem.allow_tf32,
        problem.op is Op.MM, problem.op is Op.ADDMM, problem.op is Op.BMM,
        problem.op is Op.BADDBMM,
        problem.a.layout is Layout.COL, problem.b.layout is Layout.COL,
        math.log2(problem.a.align), math.log2(problem.b.align), math.log2(math.gcd(N, 16)),
        math.log2(copy_a), math.log2(copy_b),
        problem.bias is Bias.VECTOR, problem.bias is Bias.MATRIX,
        problem.bias in (Bias.COLUMN, Bias.SCALAR),
        fill(128, 128), fill(256, 128), fill(64, 64),
    ]  # fmt: skip
    facts = [
        B, M, N, K, size, wgmma_type(problem, hardware),
        copy_a, copy_b, problem.a.layout is Layout.ROW, problem.b.layout is Layout.COL,
        peak, a_bytes + b_bytes, unique,
        max(16, 1 << (M - 1).bit_length()), max(16, 1 << (N - 1).bit_length()),
    ]  # fmt: skip
    return row, facts


@lru_cache(maxsize=16)  # as many as `encode` keeps
def _of_candidates(c: CandidateColumns) -> tuple[Array, Array]:
    """[len(_CANDIDATE), n] the columns of the candidates, and [10, n] what the cross columns need
    of them."""
    columns, knobs = _candidate_columns(c), _knobs(c)
    columns.flags.writeable = knobs.flags.writeable = False
    return columns, knobs


def _candidate_columns(c: CandidateColumns) -> Array:
    """[len(_CANDIDATE), n]"""
    return np.stack(
        [
            c.extern, c.tiled & ~c.tma, c.tiled & c.tma, c.splits_k, c.bias_vector,
            np.log2(c.block_m), np.log2(c.block_n), np.log2(c.block_k), c.stages,
            np.log2(c.warps), np.log2(c.group_m), np.log2(c.k_split),
            np.log2(c.block_m * c.block_n),
        ],
        dtype=np.float32, casting="unsafe",
    )  # fmt: skip


def _knobs(c: CandidateColumns) -> Array:
    """[10, n] what the cross columns need of a candidate."""
    return np.stack(
        [
            c.block_m, c.block_n, c.block_k, c.stages, c.warps, c.group_m, c.k_split,
            c.tiled, c.tma, c.persistent,
        ],
        dtype=np.float32, casting="unsafe",
    )  # fmt: skip


def _divisor(sizes: Array) -> Array:
    """The greatest of 8, 4, 2 and 1 that divides each of these whole numbers."""
    found = np.where(np.fmod(sizes, np.float32(2)) == 0, np.float32(2), np.float32(1))
    found = np.where(np.fmod(sizes, np.float32(4)) == 0, np.float32(4), found)
    return np.where(np.fmod(sizes, np.float32(8)) == 0, np.float32(8), found)


def _waiting(loads: Array, moves: Array, copied: Array) -> Array:
    """Registers a thread in which loads of an operand wait for their turn."""
    return np.where(
        copied, np.float32(_REGISTERS_COPY) * loads, np.float32(_REGISTERS_LOAD) * (loads + moves)
    )


def _cross(facts: Array, knobs: Array, hardware: Hardware, out: Array) -> None:
    """Fills `out`, [len(_CROSS_LOG2) + len(_CROSS), n]. All arithmetic is float32, on whole
    numbers up to 2²⁴ exact."""
    B, M, N, K, itemsize, typed, copy_a, copy_b, along_k_a, along_k_b, peak = facts[:11]
    operand_bytes, unique_bytes, small_m, small_n = facts[11:]
    block_m, block_n, block_k, stages, warps, group_m, k_split, tiled, tma, persistent = knobs
    sms = np.float32(max(hardware.multiprocessors, 1))
    bandwidth = np.float32(max(hardware.memory_gb_s * 1e3, 1.0))  # bytes a microsecond
    shared_limit = np.float32(hardware.shared_bytes_multiprocessor or 1 << 20)
    registers_limit = np.float32(hardware.registers_multiprocessor or 1 << 16)
    l2 = np.float32(0.8 * hardware.l2_bytes)  # the rest holds the output
    one = np.float32(1)
    maximum, minimum, ceil = np.maximum, np.minimum, np.ceil

    # cuBLAS takes a smaller tile where the problem is smaller than its usual one, and splits K
    # where there are fewer tiles than multiprocessors; so do the parts of decompose_k.
    own = tiled > 0
    block_m = np.where(own, block_m, minimum(block_m, small_m))
    block_n = np.where(own, block_n, minimum(block_n, small_n))

    # Tiles, and how much of them is work. Those of decompose_k are its parts' as well.
    ratio_m, ratio_n = M / block_m, N / block_n
    tiles_m, tiles_n = ceil(ratio_m), ceil(ratio_n)
    depth_k = K / k_split
    ratio_k = depth_k / block_k
    iterations = ceil(ratio_k)
    efficiency_k = ratio_k / iterations
    efficiency_m, efficiency_n = ratio_m / tiles_m, ratio_n / tiles_n
    tiles_mn = tiles_m * tiles_n
    tiles = tiles_mn * B * k_split
    spread = minimum(maximum(np.floor(sms / tiles), one), maximum(iterations / _SPREAD, one))
    spread = np.where(own, one, spread)
    tiles = tiles * spread
    iterations = ceil(iterations / spread)

    # Load instructions of a thread for its share of a tile. A part of a split K starts where
    # the parts before it end: an operand that is contiguous along K may be less aligned there.
    threads = 32 * warps
    width_a, width_b = copy_a, copy_b
    split = k_split > 1
    if split.any():
        apart = np.where(split, itemsize * _divisor(depth_k), np.float32(_COPY_BYTES[1]))
        width_a = np.where(along_k_a > 0, minimum(copy_a, apart), copy_a)
        width_b = np.where(along_k_b > 0, minimum(copy_b, apart), copy_b)
    loads_a = tile_loads(itemsize, block_m, block_k, warps, width_a)
    loads_b = tile_loads(itemsize, block_n, block_k, warps, width_b)
    moves_a = loads_a * maximum(width_a / _LOAD_BYTES, one)
    moves_b = loads_b * maximum(width_b / _LOAD_BYTES, one)
    copied_a, copied_b = width_a >= _COPY_BYTES[0], width_b >= _COPY_BYTES[0]
    copies = copied_a & copied_b

    # What a thread block needs, and how many of them a multiprocessor holds.
    wgmma = uses_wgmma(typed, block_m, warps)
    shared = tile_shared_bytes(itemsize, block_m, block_n, block_k, stages, wgmma, tma > 0)
    accumulator = accumulator_registers(block_m, block_n, warps)
    # mma.sync reads a slice of 16 (8 in TF32) of K from registers, 32 bytes of each row.
    operands = np.where(wgmma, np.float32(0), (block_m + block_n) * np.float32(8) / threads)
    staged = stages > 1
    waiting = _waiting(loads_a, moves_a, copied_a & staged)
    waiting += _waiting(loads_b, moves_b, copied_b & staged)
    waiting = np.where(tma > 0, np.float32(0), waiting)
    registers = (
        np.float32(_REGISTERS_ACCUMULATOR) * accumulator
        + operands + waiting + np.float32(_OTHER_REGISTERS)
    )  # fmt: skip
    spilled = maximum(registers - np.float32(_REGISTERS_THREAD), np.float32(0))
    held = minimum(registers, np.float32(_REGISTERS_THREAD))
    blocks = minimum(
        minimum(
            np.floor(shared_limit / (shared + np.float32(_SHARED_RESERVED))),
            np.floor(registers_limit / (held * threads)),
        ),
        minimum(np.floor(np.float32(_THREADS_MULTIPROCESSOR) / threads),
                np.float32(_BLOCKS_MULTIPROCESSOR)),
    )  # fmt: skip
    blocks = np.where(persistent > 0, one, maximum(blocks, one))

    # Waves over the multiprocessors, with one block each and with as many as they hold.
    ratio_waves = tiles / sms
    waves = ceil(ratio_waves)
    ratio_resident = ratio_waves / blocks
    waves_resident = ceil(ratio_resident)
    active = minimum(blocks, waves)  # blocks that share the busiest multiprocessor

    # How far ahead loads run.
    depth = np.where(copies, minimum(stages, iterations), one)
    step_bytes = itemsize * (block_m + block_n) * block_k
    hidden = maximum(depth - one, np.float32(0.5))  # loads that one step's wait is spread over
    in_flight = active * hidden * step_bytes

    # The busiest multiprocessor's arithmetic.
    rate = np.where(wgmma | (typed == 0), one, np.float32(_MMA_SHARE)) * peak / sms
    step_flops = 2 * block_m * block_n * block_k
    steps = waves * iterations
    compute = steps * step_flops / rate
    # Loads from L2, and the latency that neither other blocks nor earlier stages hide.
    l2_bandwidth = bandwidth * np.float32(_L2_TIMES_DRAM)
    l2_time = minimum(tiles * iterations * step_bytes, np.float32(_HUGE)) / l2_bandwidth
    step_latency = np.float32(_ISSUE_US) + np.float32(_ITERATION_US) / hidden
    latency = steps * step_latency / active
    # Load instructions, and the stores of what they brought.
    moves = moves_a * np.where(copied_a, one, np.float32(2))
    moves += moves_b * np.where(copied_b, one, np.float32(2))
    issue = steps * moves * warps / np.float32(max(hardware.clock_mhz, 1))

    # From DRAM once each, or again for each wave that L2 cannot serve. A wave covers
    # group_m rows of tiles and as many columns as that leaves.
    together = minimum(sms * blocks, tiles_mn)
    rows_together = minimum(group_m, tiles_m)
    columns_together = minimum(ceil(together / rows_together), tiles_n)
    rows_together = maximum(rows_together, ceil(together / columns_together))
    wave_bytes = (rows_together * block_m + columns_together * block_n) * K * itemsize
    reloaded = ceil(tiles_mn / together) * wave_bytes * B
    operands_dram = np.where(operand_bytes <= l2, operand_bytes, maximum(reloaded, operand_bytes))
    partial = np.where(split, 2 * 4 * k_split * B * M * N, np.float32(0))
    dram = minimum(unique_bytes - operand_bytes + operands_dram, np.float32(_HUGE)) / bandwidth
    extra = (
        partial / bandwidth
        + np.float32(_LAUNCH_US) * (one + split)
        + (spilled * threads * 8 * tiles * iterations / l2_bandwidth)
    )

    work = maximum(maximum(maximum(compute, dram), maximum(l2_time, latency)), issue)
    base = minimum(work + extra, np.float32(_HUGE))

    out[0] = tiles_m
    out[1] = tiles_n
    out[2] = tiles
    out[3] = ratio_waves
    out[4] = ratio_resident
    out[5] = iterations
    out[6] = shared
    out[7] = accumulator
    out[8] = registers
    out[9] = in_flight
    out[10] = loads_a
    out[11] = loads_b
    out[12] = maximum(block_m / M, one)
    out[13] = maximum(block_n / N, one)
    out[14] = block_m * block_n / (block_m + block_n)
    out[15] = compute
    out[16] = dram
    out[17] = l2_time
    out[18] = latency
    out[19] = issue
    out[20] = extra
    out[21] = base
    logs = out[: len(_CROSS_LOG2)]
    np.log2(minimum(logs, np.float32(_HUGE)), out=logs)
    rest = out[len(_CROSS_LOG2) :]
    rest[0] = efficiency_m
    rest[1] = efficiency_n
    rest[2] = efficiency_k
    rest[3] = efficiency_k == 1
    rest[4] = ratio_waves / waves
    rest[5] = ratio_resident / waves_resident
    rest[6] = blocks
    rest[7] = minimum(blocks * threads / np.float32(_THREADS_MULTIPROCESSOR), one)
    rest[8] = shared / shared_limit
    rest[9] = wgmma
    rest[10] = copies
    rest[11] = depth
    rest[12] = np.minimum(spilled, np.float32(1024))
    rest[13] = compute / base
    rest[14] = dram / base
    rest[15] = l2_time / base
    rest[16] = latency / base
