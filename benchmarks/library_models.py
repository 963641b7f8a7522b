"""Models of transformers and timm with random weights, for `models.py` where both are installed.

The shapes are the published ones, with `layers` layers: more of the same layers would compile the
same kernels again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timm
import torch
import transformers
from torch import nn

LENGTH = 2048  # of the prompt, and of the cache that one token is decoded after


def llama_config() -> Any:
    """One layer of Llama 3 8B."""
    return transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=1, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=256, max_position_embeddings=8192,
        rms_norm_eps=1e-5, rope_theta=500000.0,
    )  # fmt: skip


class Prefill(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.llama = transformers.LlamaModel(llama_config())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.llama(inputs_embeds=x, use_cache=False).last_hidden_state


class Decode(nn.Module):
    """One token for each of a batch, with the keys and values of the tokens before it."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        config = llama_config()
        self.llama = transformers.LlamaModel(config)
        size = config.hidden_size // config.num_attention_heads
        shape = (batch, config.num_key_value_heads, LENGTH, size)
        self.register_buffer("keys", torch.randn(shape))
        self.register_buffer("values", torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cache = transformers.DynamicCache()
        cache.update(self.keys, self.values, 0)
        return self.llama(inputs_embeds=x, past_key_values=cache).last_hidden_state


class Hidden(nn.Module):
    """A model's last hidden state, from embeddings."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(inputs_embeds=x).last_hidden_state


class Loss(nn.Module):
    """A language model's loss on tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten()
        )


def models(layers: int) -> dict[str, Callable[[], nn.Module]]:
    """By the names in `models.py`, what makes the module. The input is the one in `models.py`."""
    return {
        "llama prefill": Prefill,
        "llama decode": lambda: Decode(8),
        "bert": lambda: Hidden(
            transformers.BertModel(
                transformers.BertConfig(num_hidden_layers=layers), add_pooling_layer=False
            )
        ),
        "vit": lambda: timm.create_model("vit_base_patch16_224", depth=layers),
        "gpt2 training": lambda: Loss(
            transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers))
        ),
    }
