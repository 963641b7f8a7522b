"""Problems by their sizes: drawn, skinny, odd, on a grid."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from diode_engine.core.operand import Operand
from diode_engine.core.operators import find_operator
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError
from diode_engine.problems.sources.drawing import (
    LAYOUTS,
    TYPES,
    complete_problem,
    draw_op,
    draw_problem,
    log_uniform,
)

MAX_SKINNY = 64  # the smaller of M and N in a skinny problem is at most this
# There are few small widths, since kernels with a short loop over K are compiled for each K alone.
SMALL_WIDTHS = (64, 128, 256, 512, 768, 1024, 2048)
WIDTH_STEP = 256  # larger widths are multiples of the largest block along K
MAX_GRID_POINTS = 1_000_000


@dataclass(frozen=True)
class LogNormal:
    """Sizes drawn log-normally around `median`, up to `largest`. A third of the problems are
    skinny, and many have odd sizes."""

    median: int = 512
    sigma: float = 1.4  # of the natural logarithm
    largest: int = 32768

    def __post_init__(self) -> None:
        if self.median < 1 or self.largest < 16 or not 0 <= self.sigma < 10:
            raise CollectionError(
                "A log-normal source needs a median from 1, a largest from 16 and a sigma from 0 "
                f"to 10; it was given {self.median}, {self.largest} and {self.sigma}."
            )

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"log-normal/{seed}")
        while True:
            m, n, k = (
                min(self.largest, max(1, round(math.exp(rng.gauss(math.log(self.median),
                                                                  self.sigma)))))
                for _ in "mnk"
            )  # fmt: skip
            kind = rng.random()
            if kind < 0.2:
                m = rng.randint(1, MAX_SKINNY)
            elif kind < 0.33:
                n = rng.randint(1, MAX_SKINNY)
            k = max(k, 16)
            rounding = rng.choice((1, 1, 2, 4, 8, 16, 64, 128))
            m, n, k = (max(s, s // rounding * rounding) for s in (m, n, k))
            if rounding > 1:
                n, k = (math.ceil(s / rounding) * rounding for s in (n, k))
            op, b = draw_op(rng)
            layouts = rng.choices(LAYOUTS, (5, 4, 2, 1))[0]
            yield draw_problem(rng, op, b, m, n, k, *layouts, (4, 4, 2, 2))


@dataclass(frozen=True)
class Skinny:
    """min(M, N) is from 1 to 64, as in decoding; the other sizes are log-uniform."""

    largest: int = 16384

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"skinny/{seed}")
        while True:
            thin = rng.choice((1, 2, 4, 8, 16, 32, 64, rng.randint(1, MAX_SKINNY)))
            wide, k = (
                max(8, log_uniform(rng, 64, self.largest) // 8 * 8) for _ in range(2)
            )  # most are a model's widths
            m, n = (thin, wide) if rng.random() < 0.8 else (wide, thin)
            op, b = draw_op(rng)
            layouts = rng.choices(LAYOUTS[:3], (4, 5, 1))[0]
            yield draw_problem(rng, op, b, m, n, k, *layouts, (5, 3, 1, 1))


@dataclass(frozen=True)
class Widths:
    """K is a usual width of networks, N is mostly a multiple of 16, and M is any number. Many such
    problems share kernels, so `collect --direct` times many more kernels than it compiles."""

    largest: int = 16384

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"widths/{seed}")
        while True:
            k = rng.choice(SMALL_WIDTHS)
            if rng.random() < 0.5:
                k = log_uniform(rng, SMALL_WIDTHS[-1], self.largest) // WIDTH_STEP * WIDTH_STEP
            multiple = rng.choices((16, 8), (5, 1))[0]
            n = max(multiple, log_uniform(rng, 16, self.largest) // multiple * multiple)
            m = (
                rng.randint(1, MAX_SKINNY)
                if rng.random() < 0.3
                else log_uniform(rng, 16, self.largest)
            )
            op, b = draw_op(rng)
            if find_operator(op).batched:
                m, n, k = (min(s, 2048) for s in (m, n, k))
            layouts = rng.choices(LAYOUTS[:3], (4, 5, 2))[0]
            if layouts[0] == "col":
                m = max(multiple, m // multiple * multiple)
            yield draw_problem(rng, op, b, m, n, k, *layouts, (5, 3, 1, 1))


@dataclass(frozen=True)
class Odd:
    """Sizes that are not rounded, so leading strides are odd, or divisible by only 2 or 4. There
    libraries and kernels are slow, and their times vary. Some operands are padded instead."""

    largest: int = 4096

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"odd/{seed}")
        while True:
            m, n, k = (
                (log_uniform(rng, 1 + least, self.largest) | 1) * rng.choice((1, 1, 1, 2, 4))
                for least in (0, 0, 15)
            )
            op, b = draw_op(rng)
            layouts = rng.choices(LAYOUTS, (4, 4, 2, 1))[0]
            drawn = draw_problem(rng, op, b, m, n, k, *layouts, (4, 4, 1, 1))
            yield _padded(rng, drawn) if rng.random() < 0.2 else drawn


def _padded(rng: random.Random, problem: Problem) -> Problem:
    """The problem with the leading stride of one operand rounded up to a multiple of 8."""
    name = rng.choice(("a", "b"))
    operand: Operand = getattr(problem, name)
    return Problem.from_dict({**problem.to_dict(), f"{name}_align": max(8, operand.align)})


@dataclass(frozen=True)
class SizeGrid:
    """Every M with every N and K, in each type and layout, in an order that depends on the seed."""

    m: tuple[int, ...] = (1, 16, 64, 256, 1024, 4096)
    n: tuple[int, ...] = (64, 256, 1024, 4096)
    k: tuple[int, ...] = (64, 256, 1024, 4096)
    b: int = 1
    op: str = "mm"

    def __post_init__(self) -> None:
        points = len(self.m) * len(self.n) * len(self.k) * len(TYPES) * len(LAYOUTS)
        if not 0 < points <= MAX_GRID_POINTS:
            raise CollectionError(
                f"This grid has {points} problems; give at least one and at most {MAX_GRID_POINTS}."
            )

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"grid/{seed}")
        op = find_operator(self.op)
        types = [(dtype, tf32) for dtype, tf32 in TYPES if dtype in op.dtypes]
        types = types or [(dtype, False) for dtype in op.dtypes]
        layouts = [pair for pair in LAYOUTS if pair in op.layouts]
        points = list(itertools.product(self.m, self.n, self.k, types, layouts))
        rng.shuffle(points)
        for m, n, k, (dtype, tf32), (a_layout, b_layout) in points:
            fields = {
                "op": self.op, "B": self.b, "M": m, "N": n, "K": k, "dtype": dtype,
                "allow_tf32": tf32, "a_layout": a_layout, "b_layout": b_layout,
            }  # fmt: skip
            yield complete_problem(rng, fields)


@dataclass(frozen=True)
class Powers:
    """The grid of all powers of two from `least` to `most`."""

    least: int = 16
    most: int = 8192
    b: int = 1
    op: str = "mm"

    def problems(self, seed: int) -> Iterator[Problem]:
        sizes = tuple(1 << e for e in range(31) if self.least <= 1 << e <= self.most)
        return SizeGrid(sizes, sizes, sizes, self.b, self.op).problems(seed)
