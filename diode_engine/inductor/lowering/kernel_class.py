"""Which problems one compiled kernel can serve.

A kernel that Inductor compiles for one problem has the problem's sizes and strides in it as
constants. Triton mostly uses their divisibility: it decides how wide loads and stores are, whether
they can be asynchronous, and whether the last block along K needs a mask. If each size is written
as a symbol times a number that divides it, one binary can serve all problems whose sizes these
numbers divide. A `KernelClass` says what these problems have in common.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.content_key import content_key
from diode_engine.core.operand import Bias, DType, Layout, Operand
from diode_engine.core.operators import Operator
from diode_engine.core.operators.specification import Scalar
from diode_engine.core.problem import Problem
from diode_engine.core.resources import MAX_ODD_ALIGN, many_loads
from diode_engine.core.templates import template_of
from diode_engine.core.templates.template import TILE

DIMS = "BMNK"
ALL_FIXED = frozenset(DIMS)

MAX_ELEMENTS = 2**31 - 1  # of an operand that Inductor indexes with 32 bits
SHORT_LOOP = 2  # iterations over K: a loop of at most this many is unrolled
# The least sizes from which on Inductor uses TF32, where it is allowed.
TF32_SIZES = {"M": 16, "N": 512, "K": 512}
_INPUTS = {"a", "b", "scale_a", "scale_b", "bias"}  # an op with others has no shared kernels
MAX_BATCHES = 65535  # a CUDA grid's second dimension, where all templates put the batch


@dataclass(frozen=True)
class Extent:
    """A size as a kernel sees it: exactly `value` if it is fixed, else any multiple of it."""

    value: int
    fixed: bool = False

    def holds(self, size: int) -> bool:
        """Return whether a kernel of this extent can be used for this size."""
        return size == self.value if self.fixed else size % self.value == 0


@dataclass(frozen=True)
class KernelClass:
    """A candidate compiled for all problems of these types, layouts and extents.

    `B`, `M`, `N` and `K` are the extents of the problem's sizes. The alignment of an operand
    follows from the extents, except where it is padded; then its contiguous size is fixed.
    `whole_m` and `whole_n` say whether a whole block fits into M and N; Inductor's templates
    then promise Triton that its rows and columns do not wrap around. (True for templates that do
    not ask, such as TMA kernels.) `tf32_sized` says that TF32 is allowed and the problem
    is large enough for Inductor to use it (torch 2.13 asks, 2.11 does not).
    """

    candidate: Candidate
    op: Operator
    dtype: DType
    out_dtype: DType
    allow_tf32: bool
    bias: Bias
    a: Operand
    b: Operand
    B: Extent
    M: Extent
    N: Extent
    K: Extent
    whole_m: bool
    whole_n: bool
    tf32_sized: bool
    attributes: tuple[tuple[str, Scalar], ...] = ()  # of the op, those that differ from the default

    @property
    def op_fields(self) -> dict[str, Any]:
        return self.op.fields(self.bias, self.out_dtype, self.attributes)

    @property
    def extents(self) -> Mapping[str, Extent]:
        """Return the extents by the names of the sizes, in the order B, M, N, K."""
        return {dim: getattr(self, dim) for dim in DIMS}

    @property
    def even_k(self) -> bool:
        """Return whether BLOCK_K divides K, so that no block along K needs a mask (EVEN_K)."""
        return self.K.value % int(_tile_of(self.candidate)["block_k"]) == 0

    @property
    def fixed(self) -> frozenset[str]:
        """Return the names of the sizes that are constants in the kernel."""
        return frozenset(dim for dim, extent in self.extents.items() if extent.fixed)

    def to_dict(self) -> dict[str, Any]:
        """Return the flat form that keys and files hold."""
        return {
            "candidate": self.candidate.to_dict(),
            "op": str(self.op),
            "dtype": str(self.dtype),
            "out_dtype": str(self.out_dtype),
            "allow_tf32": self.allow_tf32,
            "bias": str(self.bias),
            "a": [str(self.a.layout), self.a.align],
            "b": [str(self.b.layout), self.b.align],
            "whole": [self.whole_m, self.whole_n],
            "tf32_sized": self.tf32_sized,
            **{dim: [extent.value, extent.fixed] for dim, extent in self.extents.items()},
            **({"attributes": dict(self.attributes)} if self.attributes else {}),
        }

    @cached_property
    def key(self) -> str:
        """Return the content key: 32 hex digits."""
        return _key(self.candidate, self.variant)

    @cached_property
    def variant(self) -> str:
        """Return the content key of everything but the candidate."""
        return content_key("kernel-variant", {**self.to_dict(), "candidate": None})

    @cached_property
    def family(self) -> str:
        """Return the content key of what a class is rendered from, but the candidate's kwargs."""
        fields = {**self.to_dict(), "candidate": self.candidate.template, "whole": None}
        return content_key("kernel-family", fields)


def class_of(
    problem: Problem, candidate: Candidate, *, fixed: Collection[str] = ()
) -> KernelClass | None:
    """Return the widest class of the candidate that includes this problem, with the sizes in
    `fixed` ("BMNK") as constants. None where the candidate is not one Triton kernel whose binary
    can be shared.

    The template's own constants are always constants. So are sizes of 1, since Inductor simplifies
    around them; the contiguous size of a padded operand; and everything where 32-bit indices do not
    suffice, or a batch is innermost.
    """
    template, tile = template_of(candidate.template), _tile_of(candidate)
    if template.constants is None or "block_k" not in tile:
        return None
    p = problem
    if p.B > MAX_BATCHES or {i.name for i in p.op.inputs} - _INPUTS:
        return None
    constants = {*fixed, *template.constants, *(dim for dim in DIMS if getattr(p, dim) == 1)}
    for operand, rows, cols in ((p.a, "M", "K"), (p.b, "K", "N")):
        inner = cols if operand.layout is Layout.ROW else rows
        lead = operand.leading_stride(getattr(p, rows), getattr(p, cols))
        if lead != getattr(p, inner):
            constants.add(inner)
    if p.inner_batches or _most_elements(p) > MAX_ELEMENTS:
        constants = set(DIMS)
    block_m, block_n, block_k = (tile[column] for column in TILE)
    leads_k = p.a.layout is Layout.ROW or p.b.layout is Layout.COL
    multiples = {
        "B": 1,
        # A size that is not a leading stride only decides which rows and columns are masked.
        "M": math.gcd(p.M, 16) if p.a.layout is Layout.COL else 1,
        "N": math.gcd(p.N, 16),
        "K": block_k if p.K % block_k == 0 else math.gcd(p.K, 16) if leads_k else 1,
    }
    extents = {
        dim: Extent(getattr(p, dim), True) if dim in constants else Extent(multiples[dim])
        for dim in DIMS
    }
    whole = not template.asks_contiguous
    return KernelClass(
        candidate, p.op, p.dtype, p.out_dtype, p.allow_tf32, p.bias, p.a, p.b, **extents,
        whole_m=whole or block_m <= p.M, whole_n=whole or block_n <= p.N,
        tf32_sized=p.allow_tf32 and all(getattr(p, dim) >= TF32_SIZES[dim] for dim in "MNK"),
        attributes=p.attributes,
    )  # fmt: skip


def shared_classes(problem: Problem, candidates: Sequence[Candidate]) -> list[KernelClass | None]:
    """Return the class under which each candidate is timed on the problem: the widest one whose
    binary is as fast as a binary for this problem alone. None as in `class_of`.

    Compiled for sm_90 with torch 2.11 (150 pairs), shared binaries and binaries for one problem
    always had the same shared memory and the same numbers of wgmma, mma, cp.async, load and store
    instructions. Three kinds of kernels have other speeds nevertheless
    (docs/notes/direct-launching.md):

    - Where a leading stride is divisible by 2 at most, a third of the binaries differ in the
      registers that decide how many blocks a multiprocessor holds.
    - Where the addresses of a thread's many loads (`resources.many_loads`) are in registers, they
      are computed in other ways. Both of these kinds are compiled for each problem.
    - The shortest loops over K are unrolled when their length is known. They are compiled for each
      K.
    """
    many = _have_many_loads(problem, candidates)
    return [_shared_class(problem, c, each) for c, each in zip(candidates, many, strict=True)]


def _have_many_loads(problem: Problem, candidates: Sequence[Candidate]) -> list[bool]:
    places = np.arange(len(candidates))
    many: list[bool] = many_loads((problem,), candidates, 0 * places, places).tolist()
    return many


def _shared_class(problem: Problem, candidate: Candidate, many: bool) -> KernelClass | None:
    block_k = _tile_of(candidate).get("block_k")
    if block_k is None:
        return None
    fixed: Collection[str] = ()
    iterations = -(-problem.K // block_k)
    if many or min(problem.a.align, problem.b.align) <= MAX_ODD_ALIGN:
        fixed = ALL_FIXED
    elif iterations <= SHORT_LOOP:
        fixed = "K"
    return class_of(problem, candidate, fixed=fixed)


class SharedKeys:
    """The keys of a problem's `shared_classes`, without making the classes: thousands are asked
    for, and few are compiled."""

    def __init__(self, problem: Problem, candidates: Sequence[Candidate]) -> None:
        self._problem = problem
        self._many = dict(zip(candidates, _have_many_loads(problem, candidates), strict=True))
        self._variants: dict[tuple[Any, ...], str | None] = {}

    def __call__(self, candidate: Candidate) -> str | None:
        """Return the key of one of the candidates; None where there is no such class."""
        p, tile = self._problem, _tile_of(candidate)
        block_m, block_n, block_k = (tile.get(column) for column in TILE)
        # Everything in a class that depends on the candidate's values, besides the candidate.
        asked = (
            candidate.template,
            block_k,
            isinstance(block_m, int) and block_m <= p.M,
            isinstance(block_n, int) and block_n <= p.N,
            self._many[candidate],
        )
        if asked not in self._variants:
            cls = _shared_class(p, candidate, self._many[candidate])
            self._variants[asked] = None if cls is None else cls.variant
        variant = self._variants[asked]
        return None if variant is None else _key(candidate, variant)


def _key(candidate: Candidate, variant: str) -> str:
    return content_key("kernel-class", {"candidate": candidate.key, "variant": variant})


def serves(cls: KernelClass, problem: Problem) -> bool:
    """Return whether the class's binary can compute the problem: the problem has the same class."""
    return class_of(problem, cls.candidate, fixed=cls.fixed) == cls


def grid(cls: KernelClass, problem: Problem, multiprocessors: int) -> tuple[int, int, int]:
    """Return the thread blocks (x, y, z) of a launch on a problem of the class."""
    found = template_of(cls.candidate.template).grid
    assert found is not None  # where there is a class
    p = problem
    return found(p.B, p.M, p.N, cls.candidate.config, multiprocessors)


def _tile_of(candidate: Candidate) -> Mapping[str, Any]:
    return candidate.tile or {}


def _most_elements(p: Problem) -> int:
    """Return the number of elements from the first to the last of the largest operand, or of the
    output."""

    def span(operand: Operand, rows: int, cols: int) -> int:
        outer = rows if operand.layout is Layout.ROW else cols
        return outer * operand.leading_stride(rows, cols)

    return p.B * max(span(p.a, p.M, p.K), span(p.b, p.K, p.N), p.M * p.N)
