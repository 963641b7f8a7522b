"""The layers of transformers in wide use, and which of them a problem belongs to.

Which models a problem belongs to is not stored: it is computed from the problem's sizes. So it is
known of every timing, wherever the timing was collected, and all timings of one model can be held
out of a training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from diode_engine.core.operators import GROUPED, SCALED_GROUPED, Operator
from diode_engine.core.problem import Problem


@dataclass(frozen=True)
class Transformer:
    """Widths of a transformer, from its published configuration."""

    hidden: int
    key_value: int  # outputs of the projection to keys, and of that to values
    inner: int  # of the feed-forward layers
    vocabulary: int

    @property
    def weights(self) -> frozenset[tuple[int, int]]:
        """(outputs, inputs) of its linear layers. The projections to queries, keys and values are
        also there as one layer, and so are those to gate and up, since most implementations fuse
        them."""
        h, kv, inner = self.hidden, self.key_value, self.inner
        return frozenset(
            {
                (h, h), (kv, h), (h + 2 * kv, h), (inner, h), (2 * inner, h), (h, inner),
                (self.vocabulary, h),
            }
        )  # fmt: skip


TRANSFORMERS: Mapping[str, Transformer] = {
    "bert-base": Transformer(768, 768, 3072, 30522),
    "bert-large": Transformer(1024, 1024, 4096, 30522),
    "gpt2-xl": Transformer(1600, 1600, 6400, 50257),
    "gpt-j-6b": Transformer(4096, 4096, 16384, 50400),
    "phi-2": Transformer(2560, 2560, 10240, 51200),
    "gemma-2b": Transformer(2048, 256, 16384, 256000),
    "gemma-7b": Transformer(3072, 4096, 24576, 256000),
    "llama-2-7b": Transformer(4096, 4096, 11008, 32000),
    "llama-2-13b": Transformer(5120, 5120, 13824, 32000),
    "llama-2-70b": Transformer(8192, 1024, 28672, 32000),
    "llama-3.2-1b": Transformer(2048, 512, 8192, 128256),
    "llama-3.2-3b": Transformer(3072, 1024, 8192, 128256),
    "llama-3-8b": Transformer(4096, 1024, 14336, 128256),
    "mistral-7b": Transformer(4096, 1024, 14336, 32000),
    "mistral-nemo": Transformer(5120, 1024, 14336, 131072),
    "qwen2-0.5b": Transformer(896, 128, 4864, 151936),
    "qwen2-1.5b": Transformer(1536, 256, 8960, 151936),
    "qwen2-7b": Transformer(3584, 512, 18944, 152064),
    "qwen2.5-14b": Transformer(5120, 1024, 13824, 152064),
    "qwen2-72b": Transformer(8192, 1024, 29568, 152064),
}


@dataclass(frozen=True)
class Experts:
    """Widths of a model's mixture-of-experts layers, from its published configuration."""

    hidden: int
    inner: int  # of one expert
    experts: int
    chosen: int  # experts for each token
    # (outputs, inputs) of its other linear layers, some of them also fused; empty where Diode does
    # not list them.
    others: frozenset[tuple[int, int]] = frozenset()

    @property
    def weights(self) -> frozenset[tuple[int, int]]:
        """(outputs, inputs) of an expert's layers; gate and up are also there as one layer."""
        h, inner = self.hidden, self.inner
        return frozenset({(inner, h), (2 * inner, h), (h, inner)})


# From the config.json of openai/gpt-oss-20b and of meta-llama/Llama-4-Scout-17B-16E. gpt-oss has
# 64 heads for queries and 8 for keys and values, of 64 elements each. Llama 4 has 40 and 8, of 128
# elements each, and a shared expert beside the others; in Maverick every second layer is dense,
# with an inner width of 16,384.
_GPT_OSS = frozenset({(4096, 2880), (512, 2880), (5120, 2880), (2880, 4096), (201088, 2880)})
_LLAMA_4 = frozenset(
    {
        (5120, 5120), (1024, 5120), (7168, 5120), (8192, 5120), (16384, 5120), (5120, 8192),
        (202048, 5120),
    }
)  # fmt: skip
_DENSE = frozenset({(32768, 5120), (5120, 16384)})
EXPERTS: Mapping[str, Experts] = {
    "mixtral-8x7b": Experts(4096, 14336, 8, 2),
    "mixtral-8x22b": Experts(6144, 16384, 8, 2),
    "qwen3-30b-a3b": Experts(2048, 768, 128, 8),
    "qwen3-235b-a22b": Experts(4096, 1536, 128, 8),
    "deepseek-v3": Experts(7168, 2048, 256, 8),
    "deepseek-v2-lite": Experts(2048, 1408, 64, 6),
    "gpt-oss-20b": Experts(2880, 2880, 32, 4, _GPT_OSS),
    "gpt-oss-120b": Experts(2880, 2880, 128, 4, _GPT_OSS),
    "llama-4-scout": Experts(5120, 8192, 16, 1, _LLAMA_4),
    "llama-4-maverick": Experts(5120, 8192, 128, 1, _LLAMA_4 | _DENSE),
    "olmoe-1b-7b": Experts(2048, 1024, 64, 8),
}
NAMES = (*TRANSFORMERS, *EXPERTS)
# No model may be trained on layers that only these have (problems.splits).
HELD_OUT_MODELS = frozenset({"gpt-oss-20b", "gpt-oss-120b", "llama-4-scout", "llama-4-maverick"})


def weights_of(name: str, op: Operator) -> frozenset[tuple[int, int]]:
    """(outputs, inputs) of those layers of a model (of NAMES) that this op computes."""
    if op in _EXPERT_OPS:
        return EXPERTS[name].weights if name in EXPERTS else frozenset()
    if op.batched:
        return frozenset()
    return EXPERTS[name].others if name in EXPERTS else TRANSFORMERS[name].weights


_EXPERT_OPS = frozenset((*GROUPED, *SCALED_GROUPED))


@cache
def _owners(op: Operator) -> dict[tuple[int, int], frozenset[str]]:
    """The models that have a layer, by the layer's (outputs, inputs)."""
    owners: dict[tuple[int, int], set[str]] = {}
    for name in NAMES:
        for weight in weights_of(name, op):
            owners.setdefault(weight, set()).add(name)
    return {weight: frozenset(names) for weight, names in owners.items()}


def models_of(problem: Problem) -> frozenset[str]:
    """The names of the models that have a layer with this product, whatever the number of tokens:
    forward, or the gradient of the input or of the weight. Products of groups are compared with
    layers of experts, and other products without a batch with the other linear layers.

    Only the sizes are compared, not layouts and types: if two problems differ in these alone, and a
    model learned the time of one, it would know the time of the other.
    """
    owners = _owners(problem.op)
    m, n, k = problem.M, problem.N, problem.K
    # M×N×K is tokens×outputs×inputs forward, tokens×inputs×outputs in the gradient of the input,
    # and outputs×inputs×tokens, or its transpose, in the gradient of the weight.
    return frozenset().union(
        *(owners.get(weight, frozenset()) for weight in ((n, k), (k, n), (m, n), (n, m)))
    )
