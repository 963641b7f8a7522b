"""What sources draw alike: types, layouts, sizes."""

from __future__ import annotations

import math
import random
from typing import Any

from diode_engine.core.problem import Bias, DType, Op, Problem

# (dtype, TF32), in the order of the weights that sources give
TYPES = (
    (DType.BFLOAT16, False),
    (DType.FLOAT16, False),
    (DType.FLOAT32, True),
    (DType.FLOAT32, False),
)
LAYOUTS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
BATCHES = (2, 4, 8, 12, 16, 32, 64, 96, 128)
OPS = ("mm", "addmm", "bmm", "baddbmm")


def typed(
    rng: random.Random, op: str, b: int, m: int, n: int, k: int, a_layout: str, b_layout: str,
    weights: tuple[int, int, int, int],
) -> Problem:  # fmt: skip
    """The problem in bfloat16, float16, TF32 or float32, by weights."""
    dtype, tf32 = rng.choices(TYPES, weights)[0]
    return Problem.make(
        op, m, n, k, dtype, B=b, a_layout=a_layout, b_layout=b_layout, allow_tf32=tf32,
        bias=drawn_bias(rng, op),
    )  # fmt: skip


def drawn_bias(rng: random.Random, op: str) -> Bias | None:
    """A vector, as of nn.Linear, more often than a matrix; None where there is no choice."""
    if op != "addmm":
        return None
    return rng.choices((Bias.VECTOR, Bias.MATRIX), (4, 1))[0]


def drawn_op(rng: random.Random) -> tuple[str, int]:
    """(op, batch), most often not batched."""
    op = rng.choices(OPS, (5, 3, 1, 1))[0]
    return op, rng.choice(BATCHES) if Op(op).batched else 1


def log_uniform(rng: random.Random, least: int, most: int) -> int:
    """A whole number, as often between 16 and 32 as between 1024 and 2048."""
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def completed(rng: random.Random, fields: dict[str, Any]) -> Problem:
    """The problem of these fields; its type and layouts drawn where they are not given.

    Raises RecordError where a field is unknown, missing or impossible.
    """
    given = dict(fields)
    op = str(given.get("op", ""))
    if "dtype" not in given:
        given["dtype"], given["allow_tf32"] = rng.choices(TYPES, (5, 4, 1, 1))[0]
    if not {"a_layout", "b_layout", "a_align", "b_align"} & set(given):
        weights = (4, 4, 2 if op == "mm" else 1)
        given["a_layout"], given["b_layout"] = rng.choices(LAYOUTS[:3], weights)[0]
    if "bias" not in given and (bias := drawn_bias(rng, op)) is not None:
        given["bias"] = bias
    return Problem.from_dict(given)
