"""The linear layers of transformers in wide use, and which of them a problem belongs to.

That a problem is a named model's is not stored anywhere: it follows from its sizes, so that it
holds for every timing, wherever it was collected, and one model at a time can be held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from diode_engine.core.problem import Problem


@dataclass(frozen=True)
class Transformer:
    """Widths of a model, by its published configuration."""

    hidden: int
    key_value: int  # of the projection to keys, and of that to values
    inner: int
    vocabulary: int

    @property
    def weights(self) -> frozenset[tuple[int, int]]:
        """(outputs, inputs) of its linear layers; the projections to queries, keys and values
        and those to gate and up also fused, as most implementations run them."""
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


@cache
def _owners() -> dict[tuple[int, int], frozenset[str]]:
    owners: dict[tuple[int, int], set[str]] = {}
    for name, model in TRANSFORMERS.items():
        for weight in model.weights:
            owners.setdefault(weight, set()).add(name)
    return {weight: frozenset(names) for weight, names in owners.items()}


def models_of(problem: Problem) -> frozenset[str]:
    """The names of the models that have a linear layer with this product, whatever the number of
    tokens: forward, or the gradient of the input or of the weight. Only the sizes are compared.
    A problem that differs from a held-out one in layouts, types or op alone would give away its
    time."""
    if problem.op.batched:
        return frozenset()
    m, n, k = problem.M, problem.N, problem.K
    # forward tokens×outputs×inputs, input's gradient tokens×inputs×outputs, weight's
    # gradient outputs×inputs×tokens or its transpose
    owners = _owners()
    return frozenset().union(
        *(owners.get(weight, frozenset()) for weight in ((n, k), (k, n), (m, n), (n, m)))
    )
