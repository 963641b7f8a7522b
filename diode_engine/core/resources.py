"""What a kernel needs of a multiprocessor, by rules that were checked against compiled kernels.

The rule for shared memory was checked with 400 sampled kernels, of which Triton 3.6 could not build
47 for an sm_90 device: the rule excludes exactly these. Of the shipped timings it excludes all
6,618 that ran out of resources, and 1,066 others; most of these have odd strides, where nothing is
pipelined. From Triton 3.7.1 on, a kernel that needs too much is built with less pipelining instead.

The functions whose arguments are tiles (block_m, warps, …) take arrays of any shapes that numpy can
broadcast: features ask about rows of many problems, `fits` about the candidates of one problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import DType, Layout
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of

MAX_THREADS_BLOCK = 1024
WIDEST_LOAD = 16  # bytes that one thread loads at once
# An asynchronous copy moves 4 to 16 bytes. Narrower loads of a tile go through registers, and the
# loop is not pipelined, whatever num_stages says.
MIN_COPY = 4
_WARPGROUP = 4  # warps that issue one wgmma together
# 32-bit registers of a thread. An accumulator that needs more leaves no room for anything else, and
# Inductor itself drops such candidates.
_MAX_ACCUMULATOR_REGISTERS = 255

# Load instructions of a thread for a tile, in a pipelined loop and in one that is not pipelined.
# With more, the time of a kernel without wgmma depends on how ptxas happens to compute their
# addresses, and cannot be predicted (docs/notes/direct-launching.md).
MAX_LOADS = 24
MAX_LOADS_AT_ONCE = 4
# Multiplications of a thread for a tile, see `spills_erratically`.
MAX_IN_A_ROW = 512
MAX_IN_TWO_PASSES = 4096
SECTOR_BYTES = 32  # that are read at least from a device's L2
MAX_ODD_ALIGN = 2  # elements: operands whose strides are divisible by so few count as odd

Array = npt.NDArray[Any]


def wgmma_type(problem: Problem, hardware: Hardware) -> bool:
    """Whether the device has warpgroup matrix instructions (wgmma) for these operands."""
    return hardware.has_wgmma and wgmma_operands(problem)


def wgmma_operands(problem: Problem) -> bool:
    """Whether warpgroup matrix instructions can multiply the operands: 16-bit ones, 8-bit ones that
    are contiguous along K, or TF32."""
    size = problem.dtype.itemsize
    if size == 1:
        return problem.a.layout is Layout.ROW and problem.b.layout is Layout.COL
    return size == 2 or problem.allow_tf32


def uses_wgmma(typed: Any, block_m: Any, warps: Any) -> Array:
    """bool, whether Triton compiles tl.dot to wgmma: `typed` is wgmma_type's answer, the tile
    has 64 rows or more and the warps make whole warpgroups."""
    groups = warps / _WARPGROUP
    used: Array = np.logical_and(typed, (block_m >= 64) & (groups == np.floor(groups)))
    return used


def accumulator_registers(block_m: Array, block_n: Array, warps: Array) -> Array:
    """32-bit registers a thread that hold the accumulator."""
    registers: Array = block_m * block_n / (32 * warps)
    return registers


def tile_loads(itemsize: Any, block: Any, block_k: Any, warps: Any, width: Any) -> Any:
    """Load instructions of a thread for its share of a tile of BLOCK_K by `block` elements, each
    `width` bytes wide."""
    return block * (itemsize * block_k / (32 * warps)) / width


def tile_shared_bytes(
    itemsize: Any,
    block_m: Array,
    block_n: Array,
    block_k: Array,
    stages: Array,
    wgmma: Array,
    tma: Array,
) -> Array:
    """Bytes of shared memory that one thread block needs for its operand tiles.

    A stage needs itemsize·(BLOCK_M + BLOCK_N)·BLOCK_K. All stages are buffered where wgmma reads
    from shared memory, all but one where registers hold the current one. TMA kernels buffer all
    stages, and one more for 4-byte types, whose tiles wgmma may need transposed.
    """
    buffered = np.where(wgmma | tma, stages, np.maximum(stages - 1, 1))
    buffered = buffered + (tma & wgmma & (np.asarray(itemsize) == 4))
    need: Array = itemsize * (block_m + block_n) * block_k * buffered
    return need


def shared_bytes(
    problem: Problem, candidates: Sequence[Candidate], hardware: Hardware
) -> npt.NDArray[np.float32]:
    """[n] bytes of shared memory that a thread block needs: by the template's own rule, if it has
    one, else by `tile_shared_bytes`. 0 where the candidate has no tiles of its own (ATen,
    decompose_k) or is not known."""
    c = encode(candidates)
    need = tile_shared_bytes(
        np.float32(problem.dtype.itemsize), c.block_m, c.block_n, c.block_k, c.stages,
        uses_wgmma(wgmma_type(problem, hardware), c.block_m, c.warps),
        c.tma,
    )  # fmt: skip
    need = np.where(c.tiled, need, np.float32(0))
    for place, name in enumerate(c.templates):
        if (own := template_of(name).shared_bytes) is not None:
            rows = c.known & (c.template == place)
            need[rows] = own(problem, c.take(rows), hardware)
    return need


def fits(
    problem: Problem, candidates: Sequence[Candidate], hardware: Hardware
) -> npt.NDArray[np.bool_]:
    """[n] whether the kernel can be launched and computes the problem.

    Its shared memory, its threads and its accumulator must fit. No operand of a TMA kernel may have
    a single row or column: there the template computes something else (748 of 748 such timings on
    an H200 had wrong results). True where the candidate is not known, since no rule excludes it.
    """
    c = encode(candidates)
    ok = (32 * c.warps <= MAX_THREADS_BLOCK) & (
        accumulator_registers(c.block_m, c.block_n, c.warps) <= _MAX_ACCUMULATOR_REGISTERS
    )
    ok |= ~c.tiled
    if hardware.shared_bytes_block:
        ok &= shared_bytes(problem, candidates, hardware) <= hardware.shared_bytes_block
    if 1 in (problem.M, problem.N, problem.K):
        ok &= ~c.tma
    return ok


def spills_erratically(problem: Problem, candidates: Sequence[Candidate]) -> npt.NDArray[np.bool_]:
    """[n] whether ptxas may spill registers of this kernel, which makes its time unpredictable.

    Such a kernel multiplies in float32 without TF32, its loop over K has one or two iterations, and
    a thread makes very many multiplications in each. The compiler sees that there is no loop and
    unrolls all of them. Of 59 kernels with one iteration that were compiled for sm_90, 15 of the 32
    with 512 multiplications spilled, none of the 27 with 256 or fewer. One of them took 5.5 times
    as long as the library's kernel on an H100 (baddbmm 5×41×87×57).
    """
    c = encode(candidates)
    if problem.dtype is not DType.FLOAT32 or problem.allow_tf32:
        return np.zeros(len(candidates), np.bool_)
    multiplications = accumulator_registers(c.block_m, c.block_n, c.warps) * c.block_k
    one = (c.block_k >= problem.K) & (multiplications >= MAX_IN_A_ROW)
    two = (2 * c.block_k >= problem.K) & (multiplications >= MAX_IN_TWO_PASSES)
    erratic: npt.NDArray[np.bool_] = c.tiled & (one | two)
    return erratic


def loads_per_thread(problem: Problem, candidates: Sequence[Candidate]) -> npt.NDArray[np.float32]:
    """[n] load instructions of a thread for its share of both operands' tiles; 0 where there is no
    tile or TMA loads it."""
    of_a, of_b, *_ = _loads(c := encode(candidates))
    size = problem.dtype.itemsize
    each_a, each_b = (size / min(WIDEST_LOAD, size * x.align) for x in (problem.a, problem.b))
    loads = of_a * np.float32(each_a) + of_b * np.float32(each_b)
    return np.where(c.tiled & ~c.tma, loads, np.float32(0)).astype(np.float32)


def many_loads(
    problems: Sequence[Problem],
    candidates: Sequence[Candidate],
    problem: npt.NDArray[np.integer],
    candidate: npt.NDArray[np.integer],
) -> npt.NDArray[np.bool_]:
    """[n] whether candidates[candidate[i]] needs so many load instructions on problems[problem[i]]
    that its time cannot be predicted from those of other kernels (see MAX_LOADS).

    That is so for tiled kernels without wgmma and without TMA, which loads without addresses.
    Problems with an odd stride are not meant: all their kernels have many loads.
    """
    facts = np.zeros((3, len(problems)), np.float32)
    for i, p in enumerate(problems):
        if min(p.a.align, p.b.align) > MAX_ODD_ALIGN:
            size = p.dtype.itemsize
            facts[:2, i] = [size / min(WIDEST_LOAD, size * each.align) for each in (p.a, p.b)]
            facts[2, i] = wgmma_operands(p)
    of_a, of_b, most, most_typed = (column[candidate] for column in _loads(encode(candidates)))
    a, b, typed = facts if len(problems) == 1 else facts[:, problem]
    many: npt.NDArray[np.bool_] = of_a * a + of_b * b > np.where(typed > 0, most_typed, most)
    return many


@lru_cache(maxsize=16)  # as many as `encode` keeps
def _loads(c: CandidateColumns) -> tuple[Array, Array, Array, Array]:
    """Four columns [n]. The first two are the elements of A and of B that a thread loads for a
    tile. The others are the largest numbers of load instructions for which times can be predicted:
    without wgmma, and with wgmma where the tile allows it."""
    share = c.block_k / (32 * c.warps)
    limit = np.where(c.stages > 1, np.float32(MAX_LOADS), np.float32(MAX_LOADS_AT_ONCE))
    most = np.where(c.tiled & ~c.tma, limit, np.float32(np.inf))
    typed = np.where(uses_wgmma(True, c.block_m, c.warps), np.float32(np.inf), most)
    return c.block_m * share, c.block_n * share, most, typed
