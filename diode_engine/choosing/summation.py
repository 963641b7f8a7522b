"""The order in which a kernel adds up the products along K.

Two kernels that add with the same instruction, over K in ascending order, into the same accumulator
compute the same bits of an element of the output, whatever their tiles, stages and warps are. If
all kernels of a layer have one order, a row's result does not depend on its batch. This follows
from Triton's code; for which orders it was shown on a GPU is in `proofs.py`.

The rules are those of Triton 3.6 to 3.9 (supportMMA in lib/Analysis/Utility.cpp, BlockedToMMA in
lib/Dialect/TritonGPU/Transforms/AccelerateMatmul.cpp, `dot` in python/triton/language/semantic.py).
On compute capability 9.x `tl.dot` becomes wgmma if the tile has a multiple of 64 rows, the warps
make whole warpgroups, and BLOCK_K is at least the K of one instruction; else mma.sync, and for
float32 without TF32 multiplications of single threads. Instructions of tensor cores follow one
another along K. A product of 8-bit floats is added to a second accumulator after each BLOCK_K,
unless it is to be fast; mma.sync multiplies such operands as float16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import DType
from diode_engine.core.operators import find_operator
from diode_engine.core.problem import Problem
from diode_engine.core.resources import uses_wgmma, wgmma_type
from diode_engine.core.templates import template_of

# The operators whose kernels add up in a known order. (Those of integers are exact in any order.)
OPERATORS = ("mm", "addmm", "bmm", "baddbmm", "scaled_mm", "grouped_mm_rows")
_FLOAT8 = (DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2)
_HALF = (DType.FLOAT16, DType.BFLOAT16)
_ROW_BYTES = 32  # of each operand's row that one instruction of tensor cores multiplies
_WGMMA_ROWS = 64

Places = npt.NDArray[np.intp]


class Instruction(StrEnum):
    """What multiplies and adds."""

    WGMMA = "wgmma"  # tensor cores, by a warpgroup
    MMA = "mma.sync"  # tensor cores, by a warp
    FMA = "fma"  # a thread, one product at a time


@dataclass(frozen=True, order=True)
class SummationOrder:
    """How the products of an element of the output are added up, sequentially along K.

    `operands` is the type that the instruction multiplies ("bfloat16", "tf32", …), `accumulator`
    the type that it adds in, and `k` the number of products that one instruction adds.
    `promoted_after` is the number of products after which a partial sum is added to a second
    accumulator; 0 where there is none. `block_k` is the BLOCK_K on which the order may depend, 0
    where it does not depend on it. `in_groups` says that the kernel computes products of groups:
    its tiles are in a loop of another form.
    """

    instruction: Instruction
    operands: str
    accumulator: str
    k: int
    promoted_after: int = 0
    block_k: int = 0
    in_groups: bool = False

    def __str__(self) -> str:
        text = f"{self.instruction} {self.operands} k{self.k} {self.accumulator}"
        if self.promoted_after:
            text += f" promoted after {self.promoted_after}"
        if self.in_groups:
            text += " in groups"
        return f"{text} BLOCK_K {self.block_k}" if self.block_k else text


def order_of(problem: Problem, candidate: Candidate, hardware: Hardware) -> SummationOrder | None:
    """Return the candidate's order of summation for the problem on this GPU; None where none is
    known (see `orders_of`)."""
    orders, places = orders_of(problem, [candidate], hardware)
    return orders[places[0]] if places[0] >= 0 else None


def orders_of(
    problem: Problem, candidates: Sequence[Candidate], hardware: Hardware
) -> tuple[tuple[SummationOrder, ...], Places]:
    """Return the candidates' orders of summation for the problem on this GPU, each once, and [n]
    the index of each candidate's. The index is -1 where no order is known: for the library's
    kernels, graphs of several kernels, kernels that load through TMA unless they compute products
    of groups, and other operators."""
    c = encode(candidates)
    has_loop = np.array([_has_one_loop(name) for name in c.templates], np.bool_)
    known = has_loop[c.template] & c.known & (_multiplied(problem, Instruction.MMA) is not None)
    wgmma = (
        uses_wgmma(wgmma_type(problem, hardware), c.block_m, c.warps)
        & (c.block_m % _WGMMA_ROWS == 0)
        & (c.block_k * problem.dtype.itemsize >= _ROW_BYTES)
    )
    codes = np.where(known, 2 * c.block_k.astype(np.intp) + wgmma, -1)
    if _is_independent_of_tiles(problem):
        codes = np.where(known, wgmma, -1)
    found = np.unique(codes[known])
    orders = tuple(_order(problem, block_k=int(n) // 2, wgmma=bool(n % 2)) for n in found)
    return orders, np.where(known, np.searchsorted(found, codes), -1).astype(np.intp)


def _has_one_loop(name: str) -> bool:
    """Return whether the template's kernels compute each tile in one loop over K, without TMA, or
    compute products of groups."""
    template = template_of(name)
    in_groups = any(find_operator(op).divided for op in template.ops)
    return template.tiled and (in_groups or not template.tma) and not template.own


def _multiplied(problem: Problem, instruction: Instruction) -> str | None:
    """Return the type that an instruction multiplies; None where no rule is known."""
    is_float8 = problem.dtype in _FLOAT8
    if problem.op.name not in OPERATORS or is_float8 is not ("fast_accum" in problem.op_fields):
        return None
    if is_float8:
        return str(problem.dtype if instruction is Instruction.WGMMA else DType.FLOAT16)
    if problem.dtype is DType.FLOAT32:
        return "tf32" if problem.allow_tf32 else "float32"
    return str(problem.dtype) if problem.dtype in _HALF else None


def _is_independent_of_tiles(problem: Problem) -> bool:
    """Return whether the order does not depend on BLOCK_K. (In float32 without TF32 it should not
    either, but LLVM and ptxas unroll the loop over K.)"""
    full_precision = problem.dtype is DType.FLOAT32 and not problem.allow_tf32
    # Partial sums are then added to a second accumulator after each BLOCK_K.
    is_promoted = problem.dtype in _FLOAT8 and not problem.op_fields.get("fast_accum")
    return not (full_precision or is_promoted)


def _order(problem: Problem, *, block_k: int, wgmma: bool) -> SummationOrder:
    """Return the order of a kernel with this BLOCK_K, 0 where the order does not depend on it."""
    instruction = Instruction.WGMMA if wgmma else Instruction.MMA
    operands = str(_multiplied(problem, instruction))
    accumulator = str(DType.FLOAT32)
    if operands == accumulator:
        return SummationOrder(Instruction.FMA, operands, accumulator, 1, block_k=block_k)
    itemsize = 2 if operands in map(str, _HALF) else problem.dtype.itemsize
    return SummationOrder(
        instruction, operands, accumulator, _ROW_BYTES // itemsize, promoted_after=block_k,
        in_groups=bool(problem.op.divided),
    )  # fmt: skip
