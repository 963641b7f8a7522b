"""Columns that depend on the problem and the device, and what the cross columns need of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import Bias, DType, Layout
from diode_engine.core.operators import GROUPED, SCALED_GROUPED
from diode_engine.core.operators.grouped_mm import ROUTED, group_sizes
from diode_engine.core.problem import Problem
from diode_engine.core.resources import SECTOR_BYTES, WIDEST_LOAD, Array, wgmma_type

# The order is that of the columns.
NAMES = (
    "log2_B", "log2_M", "log2_N", "log2_K",
    "log2_flops", "log2_bytes", "log2_intensity", "log2_ideal_us", "compute_bound",
    "log2_l2_share", "itemsize", "bfloat16", "float16", "tf32",
    "mm", "addmm", "bmm", "baddbmm",
    "a_col", "b_col", "log2_align_a", "log2_align_b", "log2_align_out",
    "log2_copy_a", "log2_copy_b",
    "bias_vector", "bias_matrix", "bias_other",
    "fill_128x128", "fill_256x128", "fill_64x64",
)  # fmt: skip


class ProblemFacts(NamedTuple):
    """What the cross columns need of problems; each [n] or [1]."""

    B: Array
    M: Array
    N: Array
    K: Array
    itemsize: Array
    typed: Array  # whether the device has wgmma for the operands
    copy_a: Array  # bytes that one load instruction moves of A, and of B
    copy_b: Array
    along_k_a: Array  # whether the operand is contiguous along K
    along_k_b: Array
    peak: Array  # flops a microsecond
    operand_bytes: Array
    unique_bytes: Array  # what has to be moved at least
    small_m: Array  # the smallest power of two that is not below M, 16 or more
    small_n: Array
    # Which size is divided among groups: 0 none, 1 M, 2 N, 3 K. If one is, then that size is the
    # mean over the groups here, and B is the number of groups.
    divided: Array
    busy: Array  # how many products of the batch, or groups, are not empty
    # Blocks of 16, 32, … 256 that a group needs along the divided size: the mean over the groups
    # and over the divisions that a router makes.
    blocks_16: Array
    blocks_32: Array
    blocks_64: Array
    blocks_128: Array
    blocks_256: Array


FACT_COUNT = len(ProblemFacts._fields)


BLOCKS = (16, 32, 64, 128, 256)
_NO_BLOCKS = (0.0,) * len(BLOCKS)
_WITHOUT_SCALES = dict(zip(SCALED_GROUPED, GROUPED, strict=True))


def _parts(problem: Problem) -> Array:
    """[divisions, groups] the parts of the divided size, in the divisions that a router makes."""
    total = getattr(problem, problem.op.divided)
    return np.array([group_sizes(total, problem.B, division) for division in ROUTED])


def _blocks(problem: Problem) -> tuple[float, ...]:
    """For each of BLOCKS, how many blocks a group needs along the divided size: the mean over the
    groups and over the divisions."""
    parts = _parts(problem)
    return tuple(float(np.mean(-(-parts // block))) for block in BLOCKS)


def _groups_bytes(problem: Problem) -> int:
    """Bytes of the matrices that each group has its own of; those of an empty group are not
    read."""
    own = sum(
        math.prod(of(problem))
        for matrix, of in zip(problem.op.matrices, problem.op.matrices_of, strict=True)
        if "B" in matrix.dims
    )
    return problem.dtype.itemsize * own


def describe(problem: Problem, hardware: Hardware) -> tuple[list[float], tuple[float, ...]]:
    """The values of NAMES and of `ProblemFacts`.

    The columns were made for mm, addmm, bmm and baddbmm in 16 and 32 bits. Other ops have
    combinations of values that these four never have. For 8-bit operands, `bfloat16` and `float16`
    stand for the output's type, `mm` for a product without scales, `tf32` for fast accumulation,
    and `bias_other` for a scale for each row and column. mm_plus_mm has none of the four ops'
    columns set, and a product of groups has two of them set; in 8 bits it has a scale for each row
    and column. An operand whose batch is innermost has an alignment of less than one element: an
    element's share of the sector that is read for it.
    """
    B, M, N, K = problem.B, problem.M, problem.N, problem.K
    divided, busy, blocks = 0, float(B), _NO_BLOCKS
    if problem.op.divided:
        divided, blocks = 1 + "MNK".index(problem.op.divided), _blocks(problem)
        part = {problem.op.divided: getattr(problem, problem.op.divided) / B}
        M, N, K = ({"M": M, "N": N, "K": K} | part).values()
    size, flops = problem.dtype.itemsize, problem.flops
    operand_bytes, unique = problem.moved_bytes
    if divided:
        empty = float(np.mean(_parts(problem) == 0))
        unread, busy = round(empty * _groups_bytes(problem)), (1 - empty) * B
        operand_bytes, unique = operand_bytes - unread, unique - unread
    peak = max(hardware.peak_flops(problem.dtype, tf32=problem.allow_tf32) / 1e6, 1.0)
    bandwidth = max(hardware.memory_gb_s * 1e3, 1.0)
    compute_us, dram_us = flops / peak, unique / bandwidth
    a, b = problem.a, problem.b
    inner = problem.inner_batches
    align_a, align_b = (
        size / SECTOR_BYTES if name in inner else operand.align
        for name, operand in (("a", a), ("b", b))
    )
    copy_a, copy_b = min(WIDEST_LOAD, size * a.align), min(WIDEST_LOAD, size * b.align)
    sms = max(hardware.multiprocessors, 1)

    op = _WITHOUT_SCALES.get(problem.op, problem.op)
    typed, fast, scaled_by_row = problem.dtype, problem.allow_tf32, False
    if problem.op.attributes:
        fields = problem.op_fields
        fast = fast or fields.get("fast_accum", False)
        scaled_by_row = fields.get("scaling") == "row" or op is not problem.op
    if size == 1:
        typed = problem.out_dtype

    def fill(block_m: int, block_n: int) -> float:
        """The share of the multiprocessors' time that is useful work, with tiles of this size."""
        tiles = B * math.ceil(M / block_m) * math.ceil(N / block_n)
        work = M * N * B / (tiles * block_m * block_n)
        return work * tiles / (math.ceil(tiles / sms) * sms)

    columns = {
        "log2_B": math.log2(B),
        "log2_M": math.log2(M),
        "log2_N": math.log2(N),
        "log2_K": math.log2(K),
        "log2_flops": math.log2(flops),
        "log2_bytes": math.log2(unique),
        "log2_intensity": math.log2(flops / unique),
        "log2_ideal_us": math.log2(max(compute_us, dram_us)),
        "compute_bound": compute_us / (compute_us + dram_us),
        "log2_l2_share": math.log2(operand_bytes / max(hardware.l2_bytes, 1)),
        "itemsize": size,
        "bfloat16": typed is DType.BFLOAT16,
        "float16": typed is DType.FLOAT16,
        "tf32": fast,
        "mm": op in ("mm", "int_mm", "grouped_mm_rows", "grouped_mm_columns"),
        "addmm": op in ("addmm", "grouped_mm_columns", "grouped_mm_depth"),
        "bmm": op in ("bmm", "grouped_mm_rows", "grouped_mm_batch"),
        "baddbmm": op in ("baddbmm", "grouped_mm_depth", "grouped_mm_batch"),
        "a_col": a.layout is Layout.COL,
        "b_col": b.layout is Layout.COL,
        "log2_align_a": math.log2(align_a),
        "log2_align_b": math.log2(align_b),
        "log2_align_out": math.log2(math.gcd(problem.N, 16)),
        "log2_copy_a": math.log2(copy_a),
        "log2_copy_b": math.log2(copy_b),
        "bias_vector": problem.bias is Bias.VECTOR,
        "bias_matrix": problem.bias is Bias.MATRIX,
        "bias_other": scaled_by_row or problem.bias in (Bias.COLUMN, Bias.SCALAR),
        "fill_128x128": fill(128, 128),
        "fill_256x128": fill(256, 128),
        "fill_64x64": fill(64, 64),
    }
    facts = (
        B, M, N, K, size, wgmma_type(problem, hardware), copy_a, copy_b,
        a.layout is Layout.ROW, b.layout is Layout.COL, peak, operand_bytes, unique,
        max(16, 1 << (math.ceil(M) - 1).bit_length()),
        max(16, 1 << (math.ceil(N) - 1).bit_length()),
        divided, busy, *blocks,
    )  # fmt: skip
    return [columns[name] for name in NAMES], facts
