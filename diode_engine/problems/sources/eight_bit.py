"""Products of 8-bit layers, and sums of two products, in published models."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from diode_engine.core.named_layers import TRANSFORMERS
from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.problems.sources.drawing import check_names
from diode_engine.problems.sources.layers import TOKENS

# (outputs, inputs) of the linear layers of models that are trained or served in 8 bits, from their
# published configurations; those of TRANSFORMERS come on top. DeepSeek-V3 has low-rank projections
# to queries, keys and values, the output of attention, and the MLPs of dense layers and of shared
# experts. Layers of other experts are not here (see `experts`).
MORE_LAYERS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "deepseek-v3": (
        (1536, 7168), (24576, 1536), (576, 7168), (32768, 512), (7168, 16384),
        (36864, 7168), (18432, 7168), (7168, 18432), (4096, 7168), (2048, 7168), (7168, 2048),
    ),
    "llama-3.1-405b": ((16384, 16384), (18432, 16384), (53248, 16384), (16384, 53248)),
    "llama-3-70b": ((8192, 8192), (10240, 8192), (57344, 8192), (8192, 28672)),
    "qwen3-8b": ((6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)),
    "qwen3-14b": ((7168, 5120), (5120, 5120), (34816, 5120), (5120, 17408)),
    "qwen3-32b": ((10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600)),
    "qwen3-30b-a3b": ((5120, 2048), (2048, 4096)),
    "qwen3-235b-a22b": ((9216, 4096), (4096, 8192)),
    "llama-4": (
        (7168, 5120), (5120, 5120), (16384, 5120), (5120, 8192), (32768, 5120), (5120, 16384),
    ),
}  # fmt: skip
_LAYERS: Mapping[str, tuple[tuple[int, int], ...]] = {
    **MORE_LAYERS,
    **{
        name: tuple(sorted(model.weights))
        for name, model in TRANSFORMERS.items()
        if name.startswith(("llama", "qwen", "mistral"))
    },
}
_STEP = 16  # K and N of an 8-bit product must be divisible by this
_MAX_WIDTH = 65536  # larger ones are vocabularies, which are not computed in 8 bits
_MIN_INT_ROWS = 17  # torch._int_mm takes no fewer rows
_BY_BLOCKS = 0.3  # the share of forward products in float8 that are drawn with scales of blocks too


@dataclass(frozen=True)
class EightBit:
    """Products of the linear layers of models that run in 8 bits, at 1 to 8192 tokens: scaled_mm in
    float8 (forward and both gradients), int_mm in int8 (forward), and mm_plus_mm of the same sizes
    in 16 bits. `ops` and `models` say which ones are drawn; empty means all."""

    ops: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_names(self.ops, _MAKERS, "The source eight-bit has no op")
        check_names(self.models, _LAYERS, "The source eight-bit has no model")

    def problems(self, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"eight-bit/{seed}")
        ops = {op: weight for op, (weight, _) in _MAKERS.items() if not self.ops or op in self.ops}
        layers = sorted(
            {
                (outputs, inputs)
                for name in self.models or _LAYERS
                for outputs, inputs in _LAYERS[name]
                if max(outputs, inputs) <= _MAX_WIDTH and outputs % _STEP == inputs % _STEP == 0
            }
        )
        others = random.Random(f"eight-bit by blocks/{seed}")
        while True:
            outputs, inputs = rng.choice(layers)
            op = rng.choices(list(ops), list(ops.values()))[0]
            problem = _MAKERS[op][1](rng, rng.choice(TOKENS), outputs, inputs)
            yield problem
            forward = op == "scaled_mm" and (outputs, inputs) == (problem.N, problem.K)
            if forward and others.random() < _BY_BLOCKS:
                yield _by_blocks(others, problem)


def _scaled(rng: random.Random, tokens: int, outputs: int, inputs: int) -> Problem:
    """A product in float8, with a scale for each row or one for the tensor: training and serving
    use both. Half of the gradients have e5m2 operands, with fewer digits and more range, and none
    is accumulated fast."""
    e4m3, e5m2 = DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2
    scaling = rng.choices(("row", "tensor"), (3, 2))[0]
    kind = rng.random()
    fields: dict[str, Any] = {"scaling": scaling, "fast_accum": rng.random() < 0.6}
    if kind < 0.8:
        bias = "vector" if rng.random() < 0.15 else "none"
        out = rng.choices(("bfloat16", "float16", "float32"), (8, 1, 1))[0]
        if bias != "none" and out == "float32":  # the library adds no bias to such an output
            out = "bfloat16"
        return Problem.make(
            "scaled_mm", tokens, outputs, inputs, e4m3, bias=bias, out_dtype=out, **fields
        )
    fields["fast_accum"] = False
    gradient = e5m2 if rng.random() < 0.5 else e4m3
    if kind < 0.9:  # the input's
        return Problem.make("scaled_mm", tokens, inputs, outputs, gradient, **fields)
    depth = max(_STEP, tokens // _STEP * _STEP)  # the weight's
    return Problem.make("scaled_mm", outputs, inputs, depth, gradient, **fields)


def _by_blocks(rng: random.Random, p: Problem) -> Problem:
    """The product with scales of blocks, as in DeepSeek-V3: blocks of 1×128 for activations and
    gradients, of 128×128 for weights. It has no bias, as Inductor's Triton kernel has none."""
    scaling = rng.choices(("1x128_128x128", "1x128_1x128"), (3, 1))[0]
    return Problem.make("scaled_mm", p.M, p.N, p.K, DType.FLOAT8_E4M3FN, scaling=scaling)


def _whole(rng: random.Random, tokens: int, outputs: int, inputs: int) -> Problem:
    """A product in int8."""
    return Problem.make(
        "int_mm", max(tokens, _MIN_INT_ROWS), outputs, inputs, DType.INT8,
        b_layout=rng.choices(("col", "row"), (4, 1))[0],
    )  # fmt: skip


def _sum(rng: random.Random, tokens: int, outputs: int, inputs: int) -> Problem:
    """Two layers whose outputs are added, or the gradient of two layers with the same input."""
    dtype = rng.choices((DType.BFLOAT16, DType.FLOAT16), (3, 1))[0]
    if rng.random() < 0.7:
        return Problem.make(
            "mm_plus_mm", tokens, outputs, inputs, dtype, b_layout="col", d_layout="col"
        )
    return Problem.make("mm_plus_mm", tokens, inputs, outputs, dtype)


# How often each op is drawn (a weight), and the function that draws it.
_MAKERS = {"scaled_mm": (6, _scaled), "int_mm": (2, _whole), "mm_plus_mm": (2, _sum)}
