"""Programs: a model and how it is run, in an order by turns, so that what a time limit cuts off is
the last programs of each model and not the last models."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from zoo_models.record import Build, Built, Call, Model, NextToken, configured, tokens

from harvest_models import families, images, language

# What a depth is called in the configurations of transformers; lists have one entry a stage.
_DEPTHS = (
    "num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer", "n_layers",
    "encoder_layers", "decoder_layers", "num_encoder_layers", "depths", "num_encoder_blocks_each",
    "num_blocks_each",
)  # fmt: skip
_TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


@dataclass(frozen=True)
class Program:
    """A model, run in one way. `model` is the name that its library or the hub knows."""

    family: str
    model: str
    library: str
    way: str  # "prefill 4×512", "decode 8 after 1024", "train 8×256", …
    build: Build
    dtype: torch.dtype
    tf32: bool = False
    train: bool = False

    @property
    def type(self) -> str:
        return "tf32" if self.tf32 else _TYPES[self.dtype]

    @property
    def name(self) -> str:
        return f"{self.library}:{self.model} {self.way} {self.type}"

    def in_zoo(self) -> Model:
        """As the zoo lowers models."""
        return Model(
            self.name, families.kinds()[self.family], self.library, self.build, self.dtype,
            self.train, tf32=self.tf32,
        )  # fmt: skip


def all_programs() -> list[Program]:
    """By turns: the first program of each model, then the second of each."""
    of_models = [list(programs) for programs in _models()]
    rng = random.Random("order of the harvest")
    rng.shuffle(of_models)
    return [p for turn in itertools.zip_longest(*of_models) for p in turn if p is not None]


def _models() -> Iterator[Iterator[Program]]:
    for entry in language.DECODERS:
        yield _decoder(*entry)
    for entry in language.ENCODERS:
        yield _encoder(*entry)
    for entry in language.BOTH:
        yield _both(*entry)
    for entry in images.WHISPER:
        yield _whisper(*entry)
    for family, kind, name, sizes, edge in images.IMAGES:
        yield _seen(family, kind, name, sizes, (3, edge, edge))
    for family, kind, name, sizes, shape in images.SOUND:
        yield _seen(family, kind, name, sizes, shape)
    for family, names in images.TIMM.items():
        for name in names:
            yield _images(family, name, "timm", _timm)
    for family, names in images.TORCHVISION.items():
        for name in names:
            yield _images(family, name, "torchvision", _torchvision)


# ways

_PROMPTS = ((1, 2048), (1, 1024), (1, 512), (2, 777), (4, 512), (4, 333), (8, 128), (1, 1500),
            (16, 100), (2, 1000), (1, 4096), (1, 77), (32, 64), (1, 31), (3, 641))  # fmt: skip
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 100, 128, 192, 256)
_PASTS = (128, 333, 511, 1000, 1024, 2048)
_TEXTS = ((1, 128), (8, 512), (16, 128), (32, 77), (4, 333), (64, 64), (2, 500), (128, 32),
          (1, 16), (1, 384), (24, 197), (6, 250), (256, 20), (32, 128), (7, 101))  # fmt: skip
_PAIRS = ((8, 128, 64), (1, 512, 1), (4, 333, 100), (16, 64, 32), (2, 1000, 128), (32, 50, 17),
          (8, 256, 1), (6, 77, 40))  # fmt: skip
_BATCHES = (1, 2, 4, 7, 8, 12, 16, 25, 32, 48, 64)
_HALF, _FULL = (torch.bfloat16, torch.float16), (torch.float32,)


def _typed(rng: random.Random, single: float) -> dict[str, Any]:
    """A type: float32 with the probability `single`, then with TF32 for one half."""
    if rng.random() < single:
        return {"dtype": torch.float32, "tf32": rng.random() < 0.5}
    return {"dtype": rng.choices(_HALF, (2, 1))[0]}


def _ways(
    rng: random.Random, single: float, made: Sequence[tuple[str, bool, Build]]
) -> Iterator[dict[str, Any]]:
    for way, train, build in made:
        yield {"way": way, "train": train, "build": build, **_typed(rng, single)}


def _decoder(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    rng = random.Random(name)
    prompts, lessons = rng.sample(_PROMPTS, 4), rng.sample(_PROMPTS[1:], 3)
    steps = rng.sample(_STEPS, 4)

    def prefill(b: int, s: int, attention: str = "sdpa") -> tuple[str, bool, Build]:
        return (
            f"prefill {b}×{s} {attention}",
            False,
            lambda: _causal(kind, sizes, b, s, attention=attention),
        )

    def train(b: int, s: int, attention: str = "sdpa") -> tuple[str, bool, Build]:
        return (
            f"train {b}×{s} {attention}",
            True,
            lambda: _causal(kind, sizes, b, s, attention=attention, loss=True),
        )

    def decode(b: int, past: int, attention: str = "sdpa") -> tuple[str, bool, Build]:
        return (
            f"decode {b} after {past} {attention}",
            False,
            lambda: _causal(kind, sizes, b, 1, attention=attention, past=past),
        )

    pasts = rng.choices(_PASTS, k=4)
    made = [
        prefill(*prompts[0]), train(*lessons[0]), decode(steps[0], pasts[0]),
        prefill(*prompts[1], "eager"), decode(steps[1], pasts[1], "eager"),
        train(*lessons[1], "eager"), decode(steps[2], pasts[2]), prefill(*prompts[2]),
        train(*lessons[2]), decode(steps[3], pasts[3], "eager"), prefill(*prompts[3], "eager"),
    ]  # fmt: skip
    for fields in _ways(rng, 0.3, made):
        yield Program(family=family, model=name, library="transformers", **fields)


def _encoder(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    rng = random.Random(name)
    made = []
    for i, (b, s) in enumerate(rng.sample(_TEXTS, 8)):
        attention = "eager" if i % 2 else "sdpa"
        train = i % 4 in (1, 2)

        def build(b: int = b, s: int = s, attention: str = attention) -> Built:
            return _called(
                "AutoModel", _config(kind, sizes), attention, {"input_ids": tokens(b, s, 30)}
            )

        made.append((f"{'train' if train else 'encode'} {b}×{s} {attention}", train, build))
    for fields in _ways(rng, 0.45, made):
        yield Program(family=family, model=name, library="transformers", **fields)


def _both(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    rng = random.Random(name)
    made = []
    for i, (b, s, t) in enumerate(rng.sample(_PAIRS, 6)):
        attention = "eager" if i % 2 else "sdpa"
        train = i % 3 == 1

        def build(b: int = b, s: int = s, t: int = t, attention: str = attention) -> Built:
            given = {"input_ids": tokens(b, s, 30), "decoder_input_ids": tokens(b, t, 30)}
            return _called(
                "AutoModelForSeq2SeqLM", _config(kind, sizes), attention, given,
                ("logits",), use_cache=False,
            )  # fmt: skip

        made.append((f"{'train' if train else 'forward'} {b}×{s}→{t} {attention}", train, build))
    for fields in _ways(rng, 0.45, made):
        yield Program(family=family, model=name, library="transformers", **fields)


def _whisper(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    rng = random.Random(name)
    made = []
    for i, (b, t) in enumerate(((1, 1), (2, 64), (8, 1), (4, 100), (16, 4), (3, 37))):
        attention = "eager" if i % 2 else "sdpa"
        train = i % 3 == 1

        def build(b: int = b, t: int = t, attention: str = attention) -> Built:
            config = _config(kind, sizes)
            given = {
                "input_features": torch.randn(b, config.num_mel_bins, 3000),
                "decoder_input_ids": tokens(b, t, 30),
            }
            return _called(
                "WhisperForConditionalGeneration", config, attention, given, ("logits",),
                use_cache=False,
            )  # fmt: skip

        made.append((f"{'train' if train else 'forward'} {b}→{t} {attention}", train, build))
    for fields in _ways(rng, 0.4, made):
        yield Program(family=family, model=name, library="transformers", **fields)


def _seen(
    family: str, kind: str, name: str, sizes: dict[str, Any], shape: tuple[int, ...]
) -> Iterator[Program]:
    """What is given numbers: images, video, sound."""
    rng = random.Random(name)
    most = 64 if len(shape) == 3 and shape[-1] < 300 else 8
    made = []
    for i, b in enumerate(rng.sample([b for b in _BATCHES if b <= most], 5)):
        attention = "eager" if i % 2 else "sdpa"
        train = i % 3 == 1

        def build(b: int = b, attention: str = attention) -> Built:
            maker = f"{kind}Model" if kind.endswith("Vision") else "AutoModel"
            config = _config(kind, sizes)
            asked = "input_features" if kind == "Wav2Vec2Bert" else "input_values"
            if len(shape) > 2:
                asked = "pixel_values_videos" if kind == "VJEPA2" else "pixel_values"
            return _called(maker, config, attention, {asked: torch.randn(b, *shape)})

        made.append((f"{'train' if train else 'forward'} {b} {attention}", train, build))
    for fields in _ways(rng, 0.4, made):
        yield Program(family=family, model=name, library="transformers", **fields)


def _images(
    family: str, name: str, library: str, make: Callable[[str], tuple[nn.Module, int]]
) -> Iterator[Program]:
    rng = random.Random(name)
    made = []
    for i, b in enumerate(rng.sample(_BATCHES, 5)):
        train = i % 2 == 1

        def build(b: int = b) -> Built:
            module, edge = make(name)
            return few_layers(module), (torch.randn(b, 3, edge, edge),)

        made.append((f"{'train' if train else 'forward'} {b}", train, build))
    for fields in _ways(rng, 0.4, made):
        yield Program(family=family, model=name, library=library, **fields)


# modules


def _timm(name: str) -> tuple[nn.Module, int]:
    import timm

    module = timm.create_model(name)
    return module, module.default_cfg["input_size"][-1]


def _torchvision(name: str) -> tuple[nn.Module, int]:
    import torchvision

    more = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    if more:
        more["init_weights"] = False
    return getattr(torchvision.models, name)(**more), 299 if name == "inception_v3" else 224


def few_layers(module: nn.Module) -> nn.Module:
    """The module without the repetitions: of equal layers that follow each other in a list or a
    sequence, only the first."""
    for part in list(module.modules()):
        if isinstance(part, (nn.ModuleList, nn.Sequential)):
            kept, last = [], None
            for child in part:
                sign = (
                    type(child),
                    tuple((n, tuple(p.shape)) for n, p in child.named_parameters()),
                    tuple((n, tuple(p.shape)) for n, p in child.named_buffers()),
                )
                if sign != last or not sign[1]:
                    kept.append(child)
                last = sign
            if len(kept) < len(part):
                del part[:]
                for child in kept:
                    part.append(child)
    return module


def _config(kind: str, sizes: dict[str, Any]) -> Any:
    """The configuration with a layer of each kind."""
    config = configured(kind, **sizes)
    types = getattr(config, "layer_types", None)
    distinct = list(dict.fromkeys(types)) if types else []
    for name in _DEPTHS:
        value = getattr(config, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            _set(config, name, max(1, len(distinct)))
        elif isinstance(value, (list, tuple)):
            _set(config, name, type(value)(1 for _ in value))
    if distinct:
        _set(config, "layer_types", distinct)
    for name, value in (("layerdrop", 0.0), ("apply_spec_augment", False), ("use_cache", True)):
        if hasattr(config, name):
            _set(config, name, value)
    return config


def _set(config: Any, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except (AttributeError, NotImplementedError):  # it follows from another field
        pass


def _called(
    maker: str, config: Any, attention: str, given: dict[str, torch.Tensor],
    results: Sequence[str] = ("last_hidden_state",), **fixed: Any,
) -> Built:  # fmt: skip
    return Call(_made(maker, config, attention), tuple(given), results, **fixed), tuple(
        given.values()
    )


def _made(maker: str, config: Any, attention: str) -> nn.Module:
    import transformers

    config._attn_implementation = attention
    kind = getattr(transformers, maker)
    made = kind.from_config if maker.startswith("AutoModel") else kind
    if not maker.startswith("AutoModel"):
        return made(config)
    try:
        return made(config, attn_implementation=attention)
    except ValueError:  # it has only one
        return made(config, attn_implementation="eager")


class Prefill(Call):
    """The logits of the token after each prompt."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, ("input_ids",), ("logits",), use_cache=False, logits_to_keep=1)


class Decode(nn.Module):
    """The logits of the next token of each of a batch, with keys and values of those before."""

    def __init__(self, model: nn.Module, config: Any, batch: int, past: int) -> None:
        super().__init__()
        self.model, self.layers = model, config.num_hidden_layers
        query = getattr(config, "num_attention_heads", None) or config.n_heads
        heads = getattr(config, "num_key_value_heads", None) or query
        if getattr(config, "multi_query", False):
            heads = 1
        wide = getattr(config, "head_dim", None) or config.hidden_size // query
        self.register_buffer("keys", torch.randn(batch, heads, past, wide))
        self.register_buffer("values", torch.randn(batch, heads, past, wide))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        import transformers

        cache = transformers.DynamicCache()
        for layer in range(self.layers):
            cache.update(self.keys, self.values, layer)
        return self.model(input_ids=words, past_key_values=cache, use_cache=True).logits


def _causal(
    kind: str, sizes: dict[str, Any], batch: int, length: int, *, attention: str,
    loss: bool = False, past: int = 0,
) -> Built:  # fmt: skip
    config = _config(kind, sizes)
    model = _made("AutoModelForCausalLM", config, attention)
    given = tokens(batch, length, 30)
    if past:
        return Decode(model, config, batch, past), (given,)
    return (NextToken(model) if loss else Prefill(model)), (given,)
