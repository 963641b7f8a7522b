"""What several sources draw in the same way: types, layouts, sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

from diode_engine.core.operand import Bias, DType
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError

# (dtype, TF32), in the order in which sources give their weights
TYPES = (
    (DType.BFLOAT16, False),
    (DType.FLOAT16, False),
    (DType.FLOAT32, True),
    (DType.FLOAT32, False),
)
LAYOUTS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
BATCHES = (2, 4, 8, 12, 16, 32, 64, 96, 128)


def check_names(given: Sequence[str], known: Iterable[str], sentence: str) -> None:
    """Raise CollectionError for the first name that is not known. `sentence` is what comes before
    the name, such as "There is no op"."""
    names = tuple(known)
    if unknown := [name for name in given if name not in names]:
        raise CollectionError(f"{sentence} {unknown[0]!r}; there are {', '.join(names)}.")


def draw_problem(
    rng: random.Random, op: str, b: int, m: int, n: int, k: int, a_layout: str, b_layout: str,
    weights: tuple[int, int, int, int],
) -> Problem:  # fmt: skip
    """A problem in bfloat16, float16, TF32 or float32, drawn by these weights."""
    dtype, tf32 = draw_type(rng, op, weights)
    return Problem.make(
        op, m, n, k, dtype, B=b, a_layout=a_layout, b_layout=b_layout, allow_tf32=tf32,
        bias=draw_bias(rng, op),
    )  # fmt: skip


def draw_type(
    rng: random.Random, op: str, weights: tuple[int, int, int, int]
) -> tuple[DType, bool]:
    """One of TYPES that the op has, drawn by these weights; where it has none of TYPES, one of its
    own types."""
    dtypes = OPERATORS[op].dtypes if op in OPERATORS else tuple(DType)
    usual = {kind: weight for kind, weight in zip(TYPES, weights, strict=True) if kind[0] in dtypes}
    if not usual:
        return rng.choice(dtypes), False
    return rng.choices(list(usual), list(usual.values()))[0]


def draw_bias(rng: random.Random, op: str) -> Bias | None:
    """One of the biases that the op is drawn with; None where there is no choice."""
    known = OPERATORS.get(op)
    if known is None or not known.drawn_biases:
        return None
    biases, weights = zip(*known.drawn_biases, strict=True)
    bias: Bias = rng.choices(biases, weights)[0]
    return bias


def draw_op(rng: random.Random) -> tuple[str, int]:
    """(op, size of the batch); most often without a batch."""
    ops = [op for op in OPERATORS.values() if op.drawn]
    op = rng.choices(ops, [op.drawn for op in ops])[0]
    return op, rng.choice(BATCHES) if op.batched else 1


def draw_layouts(rng: random.Random, op: str) -> tuple[str, str]:
    """The layouts of a and b: those of a Linear layer and of its gradients. A gradient of weights
    is a plain product, so it is drawn more often for plain products."""
    known = OPERATORS.get(op)
    if known is not None and len(known.layouts) == 1:
        a, b = known.layouts[0]
        return str(a), str(b)
    plain = known is not None and not (known.batched or known.biased)
    return rng.choices(LAYOUTS[:3], (4, 4, 2 if plain else 1))[0]


def log_uniform(rng: random.Random, least: int, most: int) -> int:
    """A random whole number, log-uniform: it is between 16 and 32 as often as between 1024 and
    2048."""
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def complete_problem(rng: random.Random, fields: dict[str, Any]) -> Problem:
    """The problem of these fields. Type, layouts and bias are drawn where they are not given.

    Raises RecordError where a field is unknown, missing or impossible.
    """
    given = dict(fields)
    op = str(given.get("op", ""))
    if "dtype" not in given:
        given["dtype"], given["allow_tf32"] = draw_type(rng, op, (5, 4, 1, 1))
    if not {"a_layout", "b_layout", "a_align", "b_align"} & set(given):
        given["a_layout"], given["b_layout"] = draw_layouts(rng, op)
    if "bias" not in given and (bias := draw_bias(rng, op)) is not None:
        given["bias"] = bias
    return Problem.from_dict(given)
