"""Products of the experts of published models."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from diode_engine.core.named_layers import EXPERTS
from diode_engine.core.operand import DType, Layout
from diode_engine.core.problem import Problem
from diode_engine.problems.sources.drawing import check_names

# Tokens of a batch: few in decoding, many in prompts and in training.
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
# How many GPUs the experts are divided among.
SPREAD = (1, 1, 2, 4, 8)
_STEP = 8  # groups are padded so that K of the weights' gradient is divisible by this
_STEP_8_BIT = 16  # the same in 8 bits
_IN_8_BITS = 0.3  # the share of products that are drawn in float8 too


@dataclass(frozen=True)
class GroupedExperts:
    """Products of groups in layers of experts at 1 to 16,384 tokens: up (with the gate) and down,
    and both gradients, in bfloat16, and in float8 with scales. `models` are names of EXPERTS; empty
    means all."""

    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_names(self.models, EXPERTS, "There is no model with experts")

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"experts in 8 bits/{seed}")
        for problem in self._of_16_bits(seed):
            yield problem
            if rng.random() < _IN_8_BITS:
                yield _of_8_bits(rng, problem)

    def _of_16_bits(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"experts/{seed}")
        models = [EXPERTS[name] for name in self.models or EXPERTS]
        while True:
            model = rng.choice(models)
            outputs, inputs = rng.choice(
                [(2 * model.inner, model.hidden), (model.hidden, model.inner)]
            )
            groups = max(1, model.experts // rng.choice(SPREAD))
            rows = max(1, rng.choice(TOKENS) * model.chosen * groups // model.experts)
            kind = rng.random()
            if kind < 0.65:  # the weights as a layer has them, or transposed already
                layout = rng.choices((Layout.COL, Layout.ROW), (2, 1))[0]
                yield _rows(groups, rows, outputs, inputs, layout)
            elif kind < 0.8:  # the input's gradient
                yield _rows(groups, rows, inputs, outputs, Layout.ROW)
            elif kind < 0.95:  # the weight's
                depth = -(-max(rows, groups) // _STEP) * _STEP
                yield Problem.make(
                    "grouped_mm_depth", outputs, inputs, depth, DType.BFLOAT16, B=groups,
                    a_layout=Layout.COL,
                )  # fmt: skip
            else:  # all experts have as many tokens
                each = max(_STEP, rows // groups // _STEP * _STEP)
                yield Problem.make(
                    "grouped_mm_batch", each, outputs, inputs, DType.BFLOAT16, B=groups,
                    b_layout=Layout.COL,
                )  # fmt: skip


def _rows(groups: int, rows: int, outputs: int, inputs: int, layout: Layout) -> Problem:
    return Problem.make(
        "grouped_mm_rows", rows, outputs, inputs, DType.BFLOAT16, B=groups, b_layout=layout
    )


def _of_8_bits(rng: random.Random, p: Problem) -> Problem:
    """The product in float8, with operands that are contiguous along K. The gradient of the weights
    is not accumulated fast."""
    depth = p.op == "grouped_mm_depth"
    return Problem.make(
        f"scaled_{p.op}", p.M, p.N, -(-p.K // _STEP_8_BIT) * _STEP_8_BIT, DType.FLOAT8_E4M3FN,
        B=p.B, fast_accum=not depth and rng.random() < 0.6,
    )  # fmt: skip
