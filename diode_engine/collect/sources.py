"""Where problems come from.

Each source is an endless stream drawn with a seed; `mixed` takes its share of each and drops
what has come before, so that n distinct problems are n distinct problems.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from importlib import resources

from diode_engine.problem import Bias, DType, Layout, Op, Problem

HALF = (DType.BFLOAT16, DType.FLOAT16)

# Hidden size, width of the key-value projection, intermediate size and vocabulary of
# transformers in wide use, from their published configurations.
TRANSFORMERS: dict[str, tuple[int, int, int, int]] = {
    "bert-base": (768, 768, 3072, 30522),
    "bert-large": (1024, 1024, 4096, 30522),
    "gpt2-xl": (1600, 1600, 6400, 50257),
    "gpt-j-6b": (4096, 4096, 16384, 50400),
    "phi-2": (2560, 2560, 10240, 51200),
    "gemma-2b": (2048, 256, 16384, 256000),
    "gemma-7b": (3072, 4096, 24576, 256000),
    "llama-2-7b": (4096, 4096, 11008, 32000),
    "llama-2-13b": (5120, 5120, 13824, 32000),
    "llama-2-70b": (8192, 1024, 28672, 32000),
    "llama-3.2-1b": (2048, 512, 8192, 128256),
    "llama-3.2-3b": (3072, 1024, 8192, 128256),
    "llama-3-8b": (4096, 1024, 14336, 128256),
    "mistral-7b": (4096, 1024, 14336, 32000),
    "mistral-nemo": (5120, 1024, 14336, 131072),
    "qwen2-0.5b": (896, 128, 4864, 151936),
    "qwen2-1.5b": (1536, 256, 8960, 151936),
    "qwen2-7b": (3584, 512, 18944, 152064),
    "qwen2.5-14b": (5120, 1024, 13824, 152064),
    "qwen2-72b": (8192, 1024, 29568, 152064),
}
TOKENS = (1, 1, 2, 3, 4, 7, 8, 13, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
          1536, 2048, 3072, 4096, 8192)  # fmt: skip
HEADS = (32, 40, 64, 64, 80, 96, 128, 128, 256)
LENGTHS = (16, 49, 64, 77, 128, 196, 197, 256, 384, 448, 512, 577, 1024, 2048)

# Above these a bad kernel takes a second, and cuBLAS is the answer anyway.
MOST_FLOPS = {DType.FLOAT32: 4e11}
MOST_FLOPS_16_BIT = 4.5e12
MOST_BYTES = 2**31


def transformer_layers(seed: int) -> Iterator[Problem]:
    """Linear layers of transformers: forward (weights transposed), and both gradients."""
    rng = random.Random(f"transformers/{seed}")
    while True:
        hidden, kv, inner, vocabulary = rng.choice(list(TRANSFORMERS.values()))
        n, k = rng.choice(
            [
                (hidden, hidden), (hidden + 2 * kv, hidden), (kv, hidden), (inner, hidden),
                (2 * inner, hidden), (hidden, inner), (hidden, inner),
                (vocabulary, hidden) if rng.random() < 0.3 else (hidden, hidden),
            ]
        )  # fmt: skip
        tokens = rng.choice(TOKENS)
        dtype = rng.choices(HALF, (4, 1))[0]
        kind = rng.random()
        if kind < 0.55:
            yield Problem.make("mm", tokens, n, k, dtype, b_layout=Layout.COL)
        elif kind < 0.75:
            yield Problem.make("addmm", tokens, n, k, dtype, b_layout=Layout.COL)
        elif kind < 0.85:
            yield Problem.make("mm", tokens, k, n, dtype)  # the input's gradient
        else:
            yield Problem.make("mm", n, k, max(tokens, 16), dtype, a_layout=Layout.COL)


def model_zoo(seed: int) -> Iterator[Problem]:
    """Operation shapes recorded from public model zoos (the shipped shapeset)."""
    text = resources.files("diode_engine.collect").joinpath("shapes/model_zoo.json").read_text()
    shapes = json.loads(text)["shapes"]
    rng = random.Random(f"zoo/{seed}")
    while True:
        op, b, m, n, k = rng.choice(shapes)
        a_layout, b_layout = rng.choices(
            [("row", "row"), ("row", "col"), ("col", "row")], (4, 4, 2 if op == "mm" else 1)
        )[0]
        yield _typed(rng, op, b, m, n, k, a_layout, b_layout, (5, 4, 1, 1))


def log_normal(seed: int) -> Iterator[Problem]:
    """Sizes drawn log-normally around 512; a third skinny, a third odd."""
    rng = random.Random(f"log-normal/{seed}")
    while True:
        m, n, k = (
            min(32768, max(1, round(math.exp(rng.gauss(math.log(512), 1.4))))) for _ in "mnk"
        )
        kind = rng.random()
        if kind < 0.2:
            m = rng.randint(1, 64)
        elif kind < 0.33:
            n = rng.randint(1, 64)
        k = max(k, 16)
        rounding = rng.choice((1, 1, 2, 4, 8, 16, 64, 128))
        m, n, k = (max(s, s // rounding * rounding) for s in (m, n, k))
        if rounding > 1:
            n, k = (math.ceil(s / rounding) * rounding for s in (n, k))
        op = rng.choices(("mm", "addmm", "bmm", "baddbmm"), (5, 3, 1, 1))[0]
        b = rng.choice((2, 4, 8, 12, 16, 32, 64, 96, 128)) if Op(op).batched else 1
        layouts = rng.choices(
            [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")], (5, 4, 2, 1)
        )[0]
        yield _typed(rng, op, b, m, n, k, *layouts, (4, 4, 2, 2))


def attention(seed: int) -> Iterator[Problem]:
    """Batched products of attention: scores, and scores times values."""
    rng = random.Random(f"attention/{seed}")
    while True:
        head, length = rng.choice(HEADS), rng.choice(LENGTHS)
        b = rng.choice((1, 2, 4, 8, 16)) * rng.choice((8, 12, 16, 20, 32, 40))
        query = rng.choice((1, length, length, length))
        op = rng.choices(("bmm", "baddbmm"), (2, 1))[0]
        if rng.random() < 0.5:
            yield _typed(rng, op, b, query, length, head, "row", "col", (4, 4, 1, 1))
        else:
            yield _typed(rng, op, b, query, head, length, "row", "row", (4, 4, 1, 1))


def _typed(
    rng: random.Random, op: str, b: int, m: int, n: int, k: int, a_layout: str, b_layout: str,
    weights: tuple[int, int, int, int],
) -> Problem:  # fmt: skip
    """The problem in bfloat16, float16, TF32 or float32, by weights."""
    dtype, tf32 = rng.choices(
        [(DType.BFLOAT16, False), (DType.FLOAT16, False), (DType.FLOAT32, True),
         (DType.FLOAT32, False)],
        weights,
    )[0]  # fmt: skip
    bias = None
    if op == "addmm":
        bias = rng.choices((Bias.VECTOR, Bias.MATRIX), (4, 1))[0]
    return Problem.make(
        op, m, n, k, dtype, B=b, a_layout=a_layout, b_layout=b_layout, allow_tf32=tf32, bias=bias
    )


SOURCES = {
    "transformers": transformer_layers,
    "zoo": model_zoo,
    "log-normal": log_normal,
    "attention": attention,
}
SHARES = {"transformers": 0.38, "zoo": 0.28, "log-normal": 0.24, "attention": 0.10}


def mixed(count: int, seed: int, names: tuple[str, ...] = tuple(SOURCES)) -> list[Problem]:
    """`count` distinct problems of moderate size from these sources, well mixed."""
    rng = random.Random(f"mixed/{seed}")
    streams = {name: SOURCES[name](seed) for name in names}
    taken: dict[Problem, None] = {}
    while len(taken) < count:
        name = rng.choices(names, [SHARES[n] for n in names])[0]
        problem = next(streams[name])
        if moderate(problem):
            taken.setdefault(problem)
    return list(taken)


def moderate(problem: Problem) -> bool:
    """Whether even a bad kernel is timed within a second and the operands fit a GPU."""
    p = problem
    limit = MOST_FLOPS.get(p.dtype, MOST_FLOPS_16_BIT)
    if p.allow_tf32:
        limit *= 2
    elements = p.B * (p.M * p.K + p.K * p.N + 3 * p.M * p.N)
    return p.flops <= limit and elements * p.dtype.itemsize <= MOST_BYTES
