"""Products of published models: linear layers, attention, recorded model zoos."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from diode_engine.core.named_layers import TRANSFORMERS
from diode_engine.core.operand import DType, Layout
from diode_engine.core.problem import Problem
from diode_engine.problems.sources.drawing import (
    LAYOUTS,
    check_names,
    draw_layouts,
    draw_problem,
    draw_type,
)
from diode_engine.problems.sources.shapeset import read_shapeset

HALF = (DType.BFLOAT16, DType.FLOAT16)
TOKENS = (1, 1, 2, 3, 4, 7, 8, 13, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
          1536, 2048, 3072, 4096, 8192)  # fmt: skip
HEADS = (32, 40, 64, 64, 80, 96, 128, 128, 256)
CHANNELS = (8, 16, 32, 64, 128, 128, 256)
RESIDUES = (64, 96, 128, 197, 256, 256, 333, 384, 384, 512)
MODES = (12, 16, 20, 24, 32)
SAMPLES = (1, 4, 8, 16, 20, 32)
WIDTHS = (20, 32, 64, 128)
LENGTHS = (16, 49, 64, 77, 128, 196, 197, 256, 384, 448, 512, 577, 1024, 2048)


@dataclass(frozen=True)
class Transformers:
    """Linear layers of the named transformers: forward (with transposed weights) and both
    gradients, at 1 to 8192 tokens. `models` are names of TRANSFORMERS; empty means all."""

    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_names(self.models, TRANSFORMERS, "There is no transformer")

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"transformers/{seed}")
        models = [TRANSFORMERS[name] for name in self.models or TRANSFORMERS]
        while True:
            t = rng.choice(models)
            h, kv = t.hidden, t.key_value
            n, k = rng.choice(
                [
                    (h, h), (h + 2 * kv, h), (kv, h), (t.inner, h), (2 * t.inner, h), (h, t.inner),
                    (h, t.inner), (t.vocabulary, h) if rng.random() < 0.3 else (h, h),
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


@dataclass(frozen=True)
class Attention:
    """Batched products of attention: the scores, and the scores times the values."""

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"attention/{seed}")
        while True:
            head, length = rng.choice(HEADS), rng.choice(LENGTHS)
            b = rng.choice((1, 2, 4, 8, 16)) * rng.choice((8, 12, 16, 20, 32, 40))
            query = rng.choice((1, length, length, length))
            op = rng.choices(("bmm", "baddbmm"), (2, 1))[0]
            if rng.random() < 0.5:
                yield draw_problem(rng, op, b, query, length, head, "row", "col", (4, 4, 1, 1))
            else:
                yield draw_problem(rng, op, b, query, head, length, "row", "row", (4, 4, 1, 1))


@dataclass(frozen=True)
class InnerBatch:
    """Batched products whose batch is the innermost dimension of one operand or of both, as einsum
    makes them: triangle updates of AlphaFold and their gradients, outer products of the Evoformer,
    layers of Fourier modes."""

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"inner-batch/{seed}")
        while True:
            kind = rng.random()
            if kind < 0.6:
                channels = rng.choice(CHANNELS)
                b, m, n, k = channels, *(rng.choice(RESIDUES),) * 3
            elif kind < 0.8:
                b = rng.choice(CHANNELS)
                m, n, k = (rng.choice(RESIDUES) for _ in range(3))
            else:
                b = rng.choice(MODES) ** rng.choice((1, 2))
                m, n, k = rng.choice(SAMPLES), rng.choice(WIDTHS), rng.choice(WIDTHS)
            inner = rng.choices((("inner", "inner"), ("inner", "outer"), ("outer", "inner")),
                                (4, 1, 1))[0]  # fmt: skip
            a_layout, b_layout = rng.choices(LAYOUTS, (2, 4, 4, 1))[0]
            dtype, tf32 = draw_type(rng, "bmm", (5, 1, 3, 3))
            yield Problem.make(
                "bmm", m, n, k, dtype, B=b, allow_tf32=tf32, a_layout=a_layout, b_layout=b_layout,
                a_batch=inner[0], b_batch=inner[1],
            )  # fmt: skip


@dataclass(frozen=True)
class Zoo:
    """Operation shapes recorded from public model zoos (the shipped shapeset)."""

    def problems(self, seed: int) -> Iterator[Problem]:
        shipped = resources.files("diode_engine.problems").joinpath("shapes/model_zoo.json")
        with resources.as_file(shipped) as path:
            rows = read_shapeset(path).rows
        rng = random.Random(f"zoo/{seed}")
        while True:
            row = rng.choice(rows)
            op, b, m, n, k = (row[name] for name in ("op", "B", "M", "N", "K"))
            a_layout, b_layout = draw_layouts(rng, op)
            yield draw_problem(rng, op, b, m, n, k, a_layout, b_layout, (5, 4, 1, 1))
