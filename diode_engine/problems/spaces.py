"""The candidates that a problem has, computed without torch: what max-autotune times with its
search space DEFAULT, and what Diode chooses among at compile time, its search space EXHAUSTIVE with
persistent TMA kernels on.

They are what torch._inductor offers on NVIDIA GPUs (torch 2.10 to 2.15, default options), by the
table of templates; a test compares them with the real Inductor. In the EXHAUSTIVE space two things
differ:

- Where K is so large that the DEFAULT space has only splits of K, this space has no others either.
  torch 2.15 offers more to a program that asks for EXHAUSTIVE itself, but not to a compile with
  Diode.
- torch 2.10 leaves out candidates that need more shared memory than the device has, by a bound of
  its own. They are in this space.

Of each problem and version of torch, "" is the newest known torch, and so is what is no version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from diode_engine.core.candidate import Candidate
from diode_engine.core.operand import Bias, DType, Operand
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of, templates_for
from diode_engine.core.templates.template import Configs, Template, Version

OLDEST, _NEWEST = (2, 10), (999, 0)
_FROM_2_13 = (2, 13)
_TMA_BYTES = 16  # a descriptor's strides and its inner dimension must be divisible by this
_MIN_8_BIT = 32  # elements of the inner dimension, for 8-bit types
# From this torch on there are TMA kernels for all types and sizes. Before, there are some for these
# types alone, and for sizes of 2 or more.
_TMA_OF_ANY = (2, 11)
_TMA_TYPES_BEFORE = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8_E4M3FN)

# A template, the op, the reach of the sizes that decides its configs, and the version of torch for
# the DEFAULT space, None for the EXHAUSTIVE one.
_Part = tuple[str, str, int, int, int, Version | None]


@dataclass(frozen=True)
class SpaceSize:
    """How many candidates a problem has: library calls, which need no compile, and kernels."""

    libraries: int
    kernels: int

    @property
    def candidates(self) -> int:
        return self.libraries + self.kernels


def default_space(problem: Problem, torch: str = "") -> tuple[Candidate, ...]:
    """Return the candidates of the DEFAULT space, ATen's first. Persistent TMA kernels are not
    among them: they are off by default."""
    return tuple(c for part in _parts(problem, torch, default=True) for c in _candidates(*part))


def exhaustive_space(problem: Problem, torch: str = "") -> tuple[Candidate, ...]:
    """Return the candidates of the EXHAUSTIVE space, ATen's first. The DEFAULT space is part of it,
    except for scaled_mm, whose DEFAULT space has some kernels with more stages."""
    return tuple(c for part in _parts(problem, torch, default=False) for c in _candidates(*part))


def space_size(problem: Problem, torch: str = "", *, default: bool = False) -> SpaceSize:
    """Return the size of the EXHAUSTIVE space, or of the `default` one; faster than making the
    candidates."""
    counts = [0, 0]
    for part in _parts(problem, torch, default=default):
        counts[template_of(part[0]).extern] += len(_configs(*part))
    return SpaceSize(libraries=counts[True], kernels=counts[False])


def _parts(problem: Problem, torch: str, *, default: bool) -> Iterator[_Part]:
    op, version = problem.op, version_of(torch)
    for template in offered(problem, version):
        if not (template.option if default else template.tma and not _has_tma(problem, version)):
            reach = template.space_for(op).reach(*problem.one_group)
            yield (template.name, op.name, *reach, version if default else None)


def _configs(name: str, op: str, m: int, n: int, k: int, torch: Version | None) -> Configs:
    space = template_of(name).space_for(op)
    if torch is None:
        return space.exhaustive_configs(m, n, k)
    return space.default_configs(m, n, k, torch)


@lru_cache(maxsize=2048)  # tiled templates have 375 reaches, and splits of K one for each K
def _candidates(
    name: str, op: str, m: int, n: int, k: int, torch: Version | None
) -> tuple[Candidate, ...]:
    return candidates_of(template_of(name), _configs(name, op, m, n, k, torch))


def candidates_of(template: Template, configs: Configs) -> tuple[Candidate, ...]:
    """Return the template's candidates with these configs."""
    return tuple(
        Candidate.make(template.name, **dict(zip(template.parameters, config, strict=True)))
        for config in configs
    )


def version_of(torch: str) -> Version:
    """Return the major and minor version; where the text has none, a number newer than any
    torch."""
    version = re.match(r"(\d+)\.(\d+)", torch)
    return _NEWEST if version is None else (int(version[1]), int(version[2]))


def offered(problem: Problem, torch: Version) -> list[Template]:
    """Return the templates of which Inductor offers candidates for such a problem. Templates that
    need an option are among them; templates whose kernels are wrong in this torch are not."""
    templates = [
        t
        for t in templates_for(problem.op)
        if torch >= t.right_from and t.space_for(problem.op).offered(problem)
    ]
    if problem.bias in (Bias.VECTOR, Bias.SCALAR):
        if torch >= _FROM_2_13:  # see inductor.lowering.candidates.candidate_of
            templates = [t for t in templates if not t.recorded_with_bias_vector]
    else:
        templates = [t for t in templates if not t.bias_vector]
    if any(t.excludes_tiled(problem.M, problem.N, problem.K) for t in templates):
        templates = [t for t in templates if not t.tiled]
    return templates


def _has_tma(problem: Problem, torch: Version) -> bool:
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
