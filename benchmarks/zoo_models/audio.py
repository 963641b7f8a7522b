"""Audio models of transformers."""

from __future__ import annotations

from typing import Any

import torch

from zoo_models.record import Build, Model, configured, hugging_face, tokens
from zoo_models.vision import images

_HUBERT_LARGE = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
    "feat_extract_norm": "layer", "do_stable_layer_norm": True,
}  # fmt: skip


def speech(kind: str, batch: int, seconds: int, **sizes: Any) -> Build:
    """Hidden states of sound at 16 kHz."""

    def config() -> Any:
        return configured(
            kind, num_hidden_layers=2, apply_spec_augment=False, layerdrop=0.0, **sizes
        )

    return hugging_face(config, {"input_values": images(batch, 16000 * seconds)})


def whisper(size: int, heads: int, mels: int, *, encoder: bool, batch: int) -> Build:
    def config() -> Any:
        return configured(
            "Whisper", d_model=size, encoder_layers=1, decoder_layers=1, num_mel_bins=mels,
            encoder_attention_heads=heads, decoder_attention_heads=heads,
            encoder_ffn_dim=4 * size, decoder_ffn_dim=4 * size, use_cache=False,
        )  # fmt: skip

    sound = {"input_features": images(batch, mels, 3000)}
    if encoder:

        def build() -> Any:
            from transformers.models.whisper.modeling_whisper import WhisperEncoder

            from zoo_models.record import Call

            module = Call(WhisperEncoder(config()), ("input_features",), ("last_hidden_state",))
            return module, (sound["input_features"](),)

        return build
    return hugging_face(
        config, {**sound, "decoder_input_ids": lambda: tokens(batch, 64, 1000)}, use_cache=False
    )


def _model(name: str, build: Build, **more: Any) -> Model:
    return Model(name, "audio", "transformers", build, **more)


_half: Any = {"dtype": torch.float16}
_single: Any = {"dtype": torch.float32}

MODELS = (
    _model("whisper-large-encoder", whisper(1280, 20, 128, encoder=True, batch=2)),
    _model("whisper-small", whisper(768, 12, 80, encoder=False, batch=4)),
    _model("whisper-small-training", whisper(768, 12, 80, encoder=False, batch=2), train=True),
    _model("wav2vec2-base-float32", speech("Wav2Vec2", 4, 5), **_single),
    _model("wav2vec2-base-training", speech("Wav2Vec2", 4, 5), train=True),
    _model("hubert-large-float16", speech("Hubert", 4, 5, **_HUBERT_LARGE), **_half),
    _model("wavlm-base", speech("WavLM", 4, 5)),
    _model("ast-base-tf32", hugging_face(
        lambda: configured("AST", num_hidden_layers=2),
        {"input_values": images(4, 1024, 128)}), **_single, tf32=True),
    _model("musicgen-decoder", hugging_face(
        lambda: configured("MusicgenDecoder", num_hidden_layers=1, hidden_size=1536, ffn_dim=6144,
                           num_attention_heads=24),
        {"input_ids": lambda: tokens(8 * 4, 256, 1000),
         "encoder_hidden_states": images(8, 32, 1536)}, kind="MusicgenModel", use_cache=False)),
)  # fmt: skip
