"""The orders of summation that were shown on a GPU to be orders: kernels that have one and differ
in tiles, stages and warps computed the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from diode_engine.choosing.summation import Instruction, SummationOrder
from diode_engine.version import without_patch

Versions = tuple[str, str]
Orders = tuple[SummationOrder, ...]


@dataclass(frozen=True)
class Proof:
    """Orders of summation whose kernels all computed the same bits on GPUs of the compute
    capability `arch` ("9.0").

    `torch` and `triton` are the first and the last version ("2.11") with which it was shown.
    `kernels` counts the kernels that were compared, and `rows` the rows whose results were equal
    for every batch that they were part of. `source` is the file of the measurement.
    """

    orders: Orders
    arch: str
    torch: Versions
    triton: Versions
    kernels: int
    rows: int
    source: str

    def holds_for(self, arch: str, torch: str, triton: str) -> bool:
        """Return whether it was shown for this compute capability and these versions."""
        return (
            arch == self.arch and _is_within(torch, self.torch) and _is_within(triton, self.triton)
        )


_H100 = "batch-invariance-h100-2026-11-26.jsonl.zst"
_WITH: tuple[str, Versions, Versions] = ("9.0", ("2.11", "2.11"), ("3.6", "3.6"))


def _either(operands: str, k: int, *, in_groups: bool = False) -> Orders:
    """Return the two orders of half precision, or of TF32, which gave the same bits."""
    both = (Instruction.WGMMA, Instruction.MMA)
    return tuple(SummationOrder(x, operands, "float32", k, in_groups=in_groups) for x in both)


_float32 = partial(SummationOrder, Instruction.FMA, "float32", "float32", 1, 0)
_float8 = partial(SummationOrder, Instruction.WGMMA, "float8_e4m3fn", "float32", 32)
_float8_as_float16 = partial(SummationOrder, Instruction.MMA, "float16", "float32", 16)
_BLOCKS_K = (32, 64, 128, 256)


# From benchmarks/batch_invariance.py.
PROOFS: tuple[Proof, ...] = (
    Proof(_either("bfloat16", 16), *_WITH, 160, 196_608, _H100),
    Proof(_either("bfloat16", 16, in_groups=True), *_WITH, 20, 65_536, _H100),
    Proof(_either("float16", 16), *_WITH, 40, 65_536, _H100),
    Proof(_either("tf32", 8), *_WITH, 40, 65_536, _H100),
    *(Proof((_float32(k),), *_WITH, 9, 65_536, _H100) for k in (16, *_BLOCKS_K)),
    Proof((_float8(0),), *_WITH, 20, 65_536, _H100),
    *(Proof((_float8(k),), *_WITH, 6, 65_536, _H100) for k in _BLOCKS_K),
    *(Proof((_float8_as_float16(k),), *_WITH, 6, 65_536, _H100) for k in _BLOCKS_K),
)


def proven_orders(arch: str, torch: str, triton: str) -> frozenset[Orders]:
    """Return the orders that were shown for this compute capability and these versions: together
    those that give the same bits."""
    return frozenset(p.orders for p in PROOFS if p.holds_for(arch, torch, triton))


def triton_shown_with(torch: str) -> str | None:
    """Return the newest Triton with which an order was shown for this torch; None where there is
    none."""
    shown = [proof.triton[1] for proof in PROOFS if _is_within(torch, proof.torch)]
    return max(shown, key=_numbers, default=None)


def _is_within(version: str, versions: Versions) -> bool:
    first, last = map(_numbers, versions)
    return first <= _numbers(version) <= last


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, without_patch(version).split(".")))
