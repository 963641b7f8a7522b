"""Encoders, models of an encoder and a decoder, and embedding models of transformers."""

from __future__ import annotations

from typing import Any

import torch

from zoo_models.record import Build, Model, also, configured, hugging_face, tokens


def encoder(kind: str, batch: int, length: int, layers: int = 2, **sizes: Any) -> Build:
    """Hidden states of tokens."""

    def config() -> Any:
        return configured(kind, num_hidden_layers=layers, **sizes)

    return hugging_face(config, {"input_ids": lambda: tokens(batch, length, 1000)})


def t5(batch: int, length: int, **sizes: Any) -> Build:
    """The encoder of T5."""

    def config() -> Any:
        return configured("T5", num_layers=2, use_cache=False, **sizes)

    return hugging_face(
        config, {"input_ids": lambda: tokens(batch, length, 1000)}, kind="T5EncoderModel"
    )


def both(config: Any, batch: int, source: int, target: int) -> Build:
    """A decoder's hidden states behind the encoder's."""
    return hugging_face(
        config,
        {
            "input_ids": lambda: tokens(batch, source, 1000),
            "decoder_input_ids": lambda: tokens(batch, target, 1000),
        },
        use_cache=False,
    )


_BERT_LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16}
_MINILM = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12}
_T5_LARGE = {"d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_heads": 16,
             "feed_forward_proj": "gated-gelu"}  # fmt: skip
_T5_SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8}
_ROBERTA: dict[str, Any] = {"vocab_size": 50265, "max_position_embeddings": 514,
                            "pad_token_id": 1}  # fmt: skip


def _deberta() -> Build:
    return encoder(
        "DebertaV2", 16, 128, vocab_size=128100, hidden_size=768, intermediate_size=3072,
        num_attention_heads=12, relative_attention=True, position_buckets=256,
        norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
        max_relative_positions=-1, position_biased_input=False, type_vocab_size=0,
    )  # fmt: skip


def _bart(size: int, wide: int, heads: int) -> Any:
    return lambda: configured(
        "Bart", d_model=size, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=wide,
        decoder_ffn_dim=wide, encoder_attention_heads=heads, decoder_attention_heads=heads,
    )  # fmt: skip


def _t5_both(**sizes: Any) -> Any:
    return lambda: configured("T5", num_layers=1, num_decoder_layers=1, **sizes)


def _model(name: str, build: Build, group: str = "encoder", **more: Any) -> Model:
    return Model(name, group, "transformers", build, **more)


_half: Any = {"dtype": torch.float16}
_single: Any = {"dtype": torch.float32}
_bert = _model("bert-base", encoder("Bert", 16, 384))
_modern = _model("modernbert-base", encoder("ModernBert", 8, 512))

MODELS = (
    _model("t5-large-encoder", t5(32, 77, **_T5_LARGE), "encoder-decoder"),
    _model("t5-small-training", both(_t5_both(**_T5_SMALL), 8, 256, 64), "encoder-decoder",
           train=True),
    _model("t5-large-float32", both(_t5_both(**_T5_LARGE), 8, 128, 64), "encoder-decoder",
           **_single),
    _bert,
    also(_bert, "training", train=True),
    also(_bert, "float32", **_single),
    also(_bert, "dynamic", dynamic=True),
    _model("bert-large-float16", encoder("Bert", 8, 512, **_BERT_LARGE), **_half),
    _model("roberta-base-training-float16", encoder("Roberta", 16, 128, **_ROBERTA), train=True,
           **_half),
    _model("xlm-roberta-large", encoder("XLMRoberta", 4, 333, **_BERT_LARGE, **_ROBERTA)),
    _model("deberta-v3-base", _deberta()),
    _model("deberta-v3-base-training", _deberta(), train=True),
    _modern,
    also(_modern, "training", train=True),
    _model("distilbert-tf32", hugging_face(
        lambda: configured("DistilBert", n_layers=2),
        {"input_ids": lambda: tokens(16, 128, 1000)}), **_single, tf32=True),
    _model("albert-base", encoder("Albert", 16, 128, vocab_size=30000, embedding_size=128,
                                  hidden_size=768, intermediate_size=3072,
                                  num_attention_heads=12)),
    _model("mpnet-base", encoder("MPNet", 16, 128), "embedding"),
    _model("esm2-650m", encoder("Esm", 4, 500, vocab_size=1000, hidden_size=1280,
                                intermediate_size=5120, num_attention_heads=20, pad_token_id=1,
                                position_embedding_type="rotary"), "scientific"),
    _model("minilm-l6-embedding-float32", encoder("Bert", 64, 64, **_MINILM), "embedding",
           **_single),
    _model("minilm-l6-embedding-dynamic", encoder("Bert", 64, 64, **_MINILM), "embedding",
           dynamic=True),
    _model("bge-large-embedding-float16", encoder("Bert", 32, 128, **_BERT_LARGE), "embedding",
           **_half),
    _model("qwen3-embedding-0.6b", encoder(
        "Qwen3", 16, 128, 1, hidden_size=1024, intermediate_size=3072, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=1000, use_cache=False), "embedding"),
    _model("nomic-embedding", encoder("NomicBert", 16, 128), "embedding"),
    _model("bart-large-training", both(_bart(1024, 4096, 16), 8, 256, 64), "encoder-decoder",
           train=True),
    _model("bart-base-float32", both(_bart(768, 3072, 12), 8, 128, 32), "encoder-decoder",
           **_single),
)  # fmt: skip
