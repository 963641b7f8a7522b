"""Decoders of transformers, dense and with experts: prompts, single tokens, training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zoo_models.record import (
    Build,
    Built,
    Model,
    NextToken,
    also,
    configured,
    hugging_face,
    tokens,
)  # fmt: skip

# The vocabulary is small where only hidden states are asked for: it is a table then, no product.
_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3-8b": ("Llama", {
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 256, "max_position_embeddings": 8192}),
    "llama-3.2-1b": ("Llama", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}),
    "qwen3-8b": ("Qwen3", {
        "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256}),
    "qwen2.5-0.5b": ("Qwen2", {
        "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}),
    "gemma-3-4b": ("Gemma3Text", {
        "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256, "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"]}),
    "mistral-7b": ("Mistral", {
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 256}),
    "phi-4": ("Phi3", {
        "hidden_size": 5120, "intermediate_size": 17920, "num_attention_heads": 40,
        "num_key_value_heads": 10, "vocab_size": 256, "pad_token_id": 0}),
    "olmo-2-1b": ("Olmo2", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16,
        "num_key_value_heads": 16, "vocab_size": 100352}),
    "smollm3-3b": ("SmolLM3", {
        "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
        "num_key_value_heads": 4, "vocab_size": 256, "pad_token_id": 0}),
    "starcoder2-3b": ("Starcoder2", {
        "hidden_size": 3072, "intermediate_size": 12288, "num_attention_heads": 24,
        "num_key_value_heads": 2, "vocab_size": 256}),
    "gpt2": ("GPT2", {"n_layer": 2}),
    "pythia-1b": ("GPTNeoX", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 8,
        "vocab_size": 256}),
    "opt-1.3b": ("OPT", {
        "hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "vocab_size": 256,
        "word_embed_proj_dim": 2048}),
    "bloom-560m": ("Bloom", {"hidden_size": 1024, "n_head": 16, "n_layer": 1, "vocab_size": 256}),
    "falcon-7b": ("Falcon", {
        "hidden_size": 4544, "num_attention_heads": 71, "vocab_size": 256}),
    "mixtral-8x7b": ("Mixtral", {
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 256}),
    "qwen3-30b-a3b": ("Qwen3Moe", {
        "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 256}),
    "deepseek-v2-lite": ("DeepseekV2", {
        "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
        "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512,
        "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 0, "topk_method": "greedy",
        "n_group": 1, "topk_group": 1, "vocab_size": 256}),
    "gpt-oss-20b": ("GptOss", {
        "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
        "num_experts_per_tok": 4, "vocab_size": 256, "num_hidden_layers": 1,
        "layer_types": ["full_attention"]}),
}  # fmt: skip


def config(name: str) -> Any:
    kind, sizes = _SIZES[name]
    layers = {} if "n_layer" in sizes or "num_hidden_layers" in sizes else {"num_hidden_layers": 1}
    # the tokens that begin and end a text are in the small vocabulary
    return configured(kind, **layers, **sizes, bos_token_id=1, eos_token_id=2)


def prefill(name: str, batch: int, length: int) -> Build:
    """Hidden states of whole prompts."""
    return hugging_face(
        lambda: config(name), {"input_ids": lambda: tokens(batch, length, 256)}, use_cache=False
    )


class Decode(nn.Module):
    """A token of each of a batch, with the keys and values of those before it."""

    def __init__(self, name: str, batch: int, past: int) -> None:
        import transformers

        super().__init__()
        sizes = config(name)
        self.model = transformers.AutoModel.from_config(sizes)
        self.layers = sizes.num_hidden_layers
        heads = sizes.num_key_value_heads
        wide = getattr(sizes, "head_dim", None) or sizes.hidden_size // sizes.num_attention_heads
        self.register_buffer("keys", torch.randn(batch, heads, past, wide))
        self.register_buffer("values", torch.randn(batch, heads, past, wide))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        import transformers

        cache = transformers.DynamicCache()
        for layer in range(self.layers):
            cache.update(self.keys, self.values, layer)
        return self.model(input_ids=words, past_key_values=cache).last_hidden_state


def decode(name: str, batch: int, past: int = 1024) -> Build:
    def build() -> Built:
        return Decode(name, batch, past), (tokens(batch, 1, 256),)

    return build


def loss(name: str, batch: int, length: int) -> Build:
    """The loss on tokens, the product with the whole vocabulary among it."""

    def build() -> Built:
        import transformers

        sizes = config(name)
        model = transformers.AutoModelForCausalLM.from_config(sizes)
        return NextToken(model), (tokens(batch, length, sizes.vocab_size),)

    return build


def logits(name: str, batch: int, length: int) -> Build:
    return hugging_face(
        lambda: config(name), {"input_ids": lambda: tokens(batch, length, 256)}, ("logits",),
        "AutoModelForCausalLM", use_cache=False,
    )  # fmt: skip


def _model(name: str, build: Build, **more: Any) -> Model:
    return Model(name, more.pop("group", "decoder"), "transformers", build, **more)


_half: Any = {"dtype": torch.float16}
_single: Any = {"dtype": torch.float32}
_llama = _model("llama-3-8b-prefill", prefill("llama-3-8b", 1, 2048))
_qwen = _model("qwen2.5-0.5b-logits", logits("qwen2.5-0.5b", 4, 256))

MODELS = (
    _model("qwen3-8b-prefill", prefill("qwen3-8b", 1, 2048)),
    _model("qwen3-8b-decode-16", decode("qwen3-8b", 16), group="decode"),
    _model("qwen3-8b-training", prefill("qwen3-8b", 1, 2048), train=True),
    _model("gemma-3-4b-prefill", prefill("gemma-3-4b", 1, 2048)),
    _model("gemma-3-4b-decode-8", decode("gemma-3-4b", 8), group="decode"),
    _llama,
    also(_llama, "dynamic", dynamic=True),
    *(
        _model(f"llama-3-8b-decode-{n}", decode("llama-3-8b", n), group="decode")
        for n in (1, 8, 64, 256)
    ),
    _model("llama-3-8b-decode-8-dynamic", decode("llama-3-8b", 8), group="decode", dynamic=True),
    _model("llama-3.2-1b-training", loss("llama-3.2-1b", 1, 1024), train=True),
    _qwen,
    also(_qwen, "dynamic", dynamic=True),
    _model("mistral-7b-prefill-float16", prefill("mistral-7b", 2, 512), **_half),
    _model("phi-4-decode-8", decode("phi-4", 8), group="decode"),
    _model("olmo-2-1b-training", loss("olmo-2-1b", 2, 512), train=True),
    _model("smollm3-3b-prefill", prefill("smollm3-3b", 4, 333)),
    _model("starcoder2-3b-prefill", prefill("starcoder2-3b", 1, 1000)),
    _model("gpt2-training", loss("gpt2", 8, 512), train=True),
    _model("pythia-1b-prefill-float16", prefill("pythia-1b", 4, 512), **_half),
    _model("opt-1.3b-prefill-tf32", prefill("opt-1.3b", 2, 512), **_single, tf32=True),
    _model("bloom-560m-prefill-float32", prefill("bloom-560m", 2, 256), **_single),
    _model("falcon-7b-prefill", prefill("falcon-7b", 1, 512)),
    _model("mixtral-8x7b-prefill", prefill("mixtral-8x7b", 1, 512), group="experts"),
    _model("mixtral-8x7b-decode-8", decode("mixtral-8x7b", 8), group="experts"),
    _model("qwen3-30b-a3b-prefill", prefill("qwen3-30b-a3b", 1, 1024), group="experts"),
    _model("qwen3-30b-a3b-decode-64", decode("qwen3-30b-a3b", 64), group="experts"),
    _model("deepseek-v2-lite-prefill", prefill("deepseek-v2-lite", 1, 1024), group="experts"),
    _model("gpt-oss-20b-prefill", prefill("gpt-oss-20b", 1, 512), group="experts"),
)
