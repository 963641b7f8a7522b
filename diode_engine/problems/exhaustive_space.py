"""The candidates of max-autotune's search space EXHAUSTIVE with persistent TMA kernels on, computed
without torch: what Diode chooses among at compile time.

They are what torch._inductor offers on NVIDIA GPUs (torch 2.10 to 2.15), by the table of templates;
a test compares them with the real Inductor. Two things differ:

- Where K is so large that the DEFAULT space has only splits of K, this space has no others either.
  torch 2.15 offers more to a program that asks for EXHAUSTIVE itself, but not to a compile with
  Diode.
- torch 2.10 leaves out candidates that need more shared memory than the device has, by a bound of
  its own. They are in this space.
"""

from __future__ import annotations

from functools import lru_cache

from diode_engine.core.candidate import Candidate
from diode_engine.core.operand import DType, Operand
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of
from diode_engine.core.templates.template import Version
from diode_engine.problems.default_space import candidates_of, offered, version_of

_TMA_BYTES = 16  # a descriptor's strides and its inner dimension must be divisible by this
_MIN_8_BIT = 32  # elements of the inner dimension, for 8-bit types
# From this torch on there are TMA kernels for all types and sizes. Before, there are some for these
# types alone, and for sizes of 2 or more.
_TMA_OF_ANY = (2, 11)
_TMA_TYPES_BEFORE = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8_E4M3FN)

_Part = tuple[str, str, int, int, int]  # a template, the op, the reach of the sizes


def exhaustive_space(problem: Problem, torch: str = "") -> tuple[Candidate, ...]:
    """The candidates, ATen's first, as this version of torch has them (the newest known one where
    it is empty or not a version). The DEFAULT space is part of this space, except for scaled_mm,
    whose DEFAULT space has some kernels with more stages."""
    return tuple(c for part in _parts(problem, torch) for c in _candidates(*part))


def exhaustive_counts(problem: Problem, torch: str = "") -> tuple[int, int]:
    """How many library calls `exhaustive_space` has, and how many kernels; faster than making
    them."""
    libraries = kernels = 0
    for name, op, *reach in _parts(problem, torch):
        template = template_of(name)
        configs = len(template.space_for(op).exhaustive_configs(*reach))
        if template.extern:
            libraries += configs
        else:
            kernels += configs
    return libraries, kernels


def _parts(problem: Problem, torch: str) -> list[_Part]:
    """Each template that has candidates, with the reach of the sizes that decides its configs."""
    op, version = problem.op, version_of(torch)
    return [
        (template.name, op.name, *template.space_for(op).reach(*problem.one_group))
        for template in offered(problem, version)
        if not template.tma or _tma(problem, version)
    ]


@lru_cache(maxsize=1024)  # tiled templates have 375 reaches, and splits of K one for each K
def _candidates(name: str, op: str, m: int, n: int, k: int) -> tuple[Candidate, ...]:
    template = template_of(name)
    return candidates_of(template, template.space_for(op).exhaustive_configs(m, n, k))


def _tma(problem: Problem, torch: Version) -> bool:
    """Whether Inductor reads both operands through TMA descriptors."""

    def fits(operand: Operand, rows: int, cols: int) -> bool:
        inner = cols if operand.layout == "row" else rows
        size = problem.dtype.itemsize
        if size == 1 and inner < _MIN_8_BIT:
            return False
        return (operand.align * size) % _TMA_BYTES == 0 and (inner * size) % _TMA_BYTES == 0

    p = problem
    if torch < _TMA_OF_ANY:
        types = {p.dtype, p.op_fields.get("b_dtype", p.dtype)}
        if min(p.M, p.N, p.K) < 2 or not types.issubset(_TMA_TYPES_BEFORE):
            return False
    return fits(p.a, p.M, p.K) and fits(p.b, p.K, p.N)
