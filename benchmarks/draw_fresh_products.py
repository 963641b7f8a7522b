"""Draws the products of `fresh_products.py`: sizes that no dataset has.

    python benchmarks/draw_fresh_products.py DATASET_OR_FOLDER …

Writes `fresh_products/`: the products that were slower than plain torch.compile's by name, 50 in
float32 as programs of science have them, and 50 others: half precision with sizes that are
divisible by 8 and with others, TF32, and heads of language models. No (B, M, N, K) of those that
are drawn occurs in the given datasets and folders of datasets. The seed is fixed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from diode_engine.core.problem import Problem
from diode_engine.problems.sources import write_shapeset
from diode_engine.store.datasets.reading import read_dataset

FOLDER = Path(__file__).parent / "fresh_products"
SEED = 34
MOST_FLOPS, MOST_BYTES = 4e11, 4e9
LINEAR = {"a_layout": "row", "b_layout": "col"}  # x @ weight.t()
LAYOUTS = (  # of products forward, of the gradients of inputs and of weights, and others
    LINEAR, {"a_layout": "row", "b_layout": "row"}, {"a_layout": "col", "b_layout": "row"},
    {"a_layout": "col", "b_layout": "col"},
)  # fmt: skip
Sizes = tuple[int, int, int, int]
Draw = Callable[[random.Random], Problem]


def named() -> Iterator[Problem]:
    """Products that were slower than plain's, and the like of them in the same programs."""
    yield Problem.make("mm", 16, 100_544, 6144, "bfloat16", **LINEAR)
    yield Problem.make("mm", 48, 67_584, 7168, "bfloat16", **LINEAR)
    yield Problem.make("mm", 1999, 17, 300, "float32", **LINEAR)
    yield Problem.make("mm", 1999, 17, 300, "float32")
    yield Problem.make("addmm", 647, 521, 15, "float32", a_layout="col", b_layout="col")
    yield Problem.make("addmm", 20_000, 300, 300, "float32", **LINEAR)
    yield Problem.make("baddbmm", 41, 87, 57, "float32", B=5, **LINEAR)
    yield Problem.make("addmm", 21_904, 96, 147, "float16", **LINEAR)
    yield Problem.make("addmm", 20_000, 1, 829, "float16", **LINEAR)
    for n, k in ((10, 512), (64, 6272), (64, 784), (10, 64)):  # a KAN of 784, 64 and 10
        yield Problem.make("mm", 2000, n, k, "float32", **LINEAR)
    yield Problem.make("addmm", 2000, 10, 512, "float32", bias="matrix", **LINEAR)


def whole(rng: random.Random, low: int, high: int, step: int = 1) -> int:
    """A multiple of `step` from low to high, small ones as likely as large ones."""
    return max(step, round(low * (high / low) ** rng.random() / step) * step)


def odd(rng: random.Random, low: int, high: int) -> int:
    return whole(rng, low, high) | 1


def plain(rng: random.Random, m: int, n: int, k: int, dtype: str, **more: Any) -> Problem:
    """mm, or addmm with one of the forms of a bias."""
    if rng.random() < 0.5:
        return Problem.make("mm", m, n, k, dtype, **more)
    bias = rng.choice(("vector", "vector", "vector", "column", "matrix", "scalar"))
    return Problem.make("addmm", m, n, k, dtype, bias=bias, **more)


def batched(rng: random.Random, b: int, m: int, n: int, k: int, dtype: str, **more: Any) -> Problem:
    """bmm, or baddbmm with a matrix or a vector."""
    if rng.random() < 0.6:
        return Problem.make("bmm", m, n, k, dtype, B=b, **more)
    bias = rng.choice(("matrix", "vector"))
    return Problem.make("baddbmm", m, n, k, dtype, B=b, bias=bias, **more)


def of_science(dtype: str, **more: Any) -> tuple[Draw, ...]:
    """Kinds of products as programs of science have them."""

    def rows(rng: random.Random) -> Problem:  # nodes, edges, points
        m, n, k = whole(rng, 1500, 60_000), whole(rng, 9, 400), whole(rng, 9, 400)
        return plain(rng, m, n, k, dtype, **rng.choice(LAYOUTS[:2]), **more)

    def few_columns(rng: random.Random) -> Problem:
        m, n, k = whole(rng, 300, 20_000), whole(rng, 1, 32), whole(rng, 40, 3000)
        return plain(rng, m, n, k, dtype, **rng.choice(LAYOUTS), **more)

    def short_sums(rng: random.Random) -> Problem:
        m, n, k = whole(rng, 200, 4000), whole(rng, 100, 3000), whole(rng, 2, 20)
        return plain(rng, m, n, k, dtype, **rng.choice(LAYOUTS), **more)

    def gradients(rng: random.Random) -> Problem:  # of weights
        m, n, k = whole(rng, 7, 500), whole(rng, 7, 500), whole(rng, 1000, 40_000)
        return Problem.make("mm", m, n, k, dtype, **LAYOUTS[2], **more)

    def squares(rng: random.Random) -> Problem:
        m, n, k = (odd(rng, 90, 2500) for _ in "mnk")
        return plain(rng, m, n, k, dtype, **rng.choice(LAYOUTS), **more)

    def batches(rng: random.Random) -> Problem:
        m, n, k = (whole(rng, 12, 500) for _ in "mnk")
        return batched(rng, whole(rng, 2, 50), m, n, k, dtype, **rng.choice(LAYOUTS), **more)

    def small_matrices(rng: random.Random) -> Problem:
        m, n, k = (whole(rng, 3, 40) for _ in "mnk")
        return batched(rng, whole(rng, 300, 9000), m, n, k, dtype, **rng.choice(LAYOUTS), **more)

    return rows, few_columns, short_sums, gradients, squares, batches, small_matrices


def half(rng: random.Random, step: int) -> Problem:
    """Of layers in half precision; all sizes but M are multiples of `step`, or none is even."""
    dtype, layouts = rng.choice(("bfloat16", "float16")), rng.choice(LAYOUTS[:3])
    if step == 1:
        m, n, k = (odd(rng, 30, 6000) for _ in "mnk")
    else:
        m, n, k = (whole(rng, low, 9000, step) for low in (16, 100, 100))
    if rng.random() < 0.3:
        sizes = (max(step, x // 6 // step * step + (step == 1)) for x in (m, n, k))
        return batched(rng, whole(rng, 4, 200), *sizes, dtype, **layouts)
    return plain(rng, m, n, k, dtype, **layouts)


def heads(rng: random.Random) -> Problem:
    """The head of a language model in decoding."""
    n, k = whole(rng, 30_000, 260_000, rng.choice((1, 64))), whole(rng, 700, 7200, 64)
    return Problem.make("mm", whole(rng, 1, 64), n, k, "bfloat16", **LINEAR)


def others() -> Iterator[Draw]:
    for _ in range(13):
        yield lambda rng: half(rng, 8)
        yield lambda rng: half(rng, 1)
    for _ in range(12):
        yield heads
    tf32 = of_science("float32", allow_tf32=True)
    for i in range(12):
        yield tf32[i % len(tf32)]


def sizes_of(problem: Problem) -> Sizes:
    return problem.B, problem.M, problem.N, problem.K


def known_sizes(paths: list[Path]) -> set[Sizes]:
    """The (B, M, N, K) of all problems of these datasets and folders of them."""
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*.zst")) if path.is_dir() else [path])
    ]
    return {sizes_of(problem) for file in files for problem in read_dataset(file).problems}


def drawn(draws: Iterator[Draw], known: set[Sizes]) -> list[Problem]:
    """One product of each draw, none of sizes that are known or were drawn before."""
    rng, found = random.Random(SEED), dict[Sizes, Problem]()
    for draw in draws:
        while True:
            problem = draw(rng)
            sizes = sizes_of(problem)
            small = problem.flops < MOST_FLOPS and problem.moved_bytes[1] < MOST_BYTES
            if small and sizes not in known and sizes not in found:
                found[sizes] = problem
                break
    return list(found.values())


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(str(__doc__))
    known = known_sizes([Path(path) for path in sys.argv[1:]])
    science = of_science("float32")
    FOLDER.mkdir(exist_ok=True)
    for name, products in (
        ("named", list(named())),
        ("float32", drawn((science[i % len(science)] for i in range(50)), known)),
        ("others", drawn(others(), known)),
    ):
        write_shapeset(products, FOLDER / f"{name}.json", "benchmarks/draw_fresh_products.py")
        print(f"{len(products)} products are in {FOLDER / name}.json")


if __name__ == "__main__":
    main()
