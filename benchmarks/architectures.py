"""Other programs than the zoo's, to be lowered as its models are: forward passes of models of
transformers, timm and torchvision, by their published sizes, with a layer of each kind.

`architectures.json` has the models. Those of transformers are lists: the family, the class of the
configuration, the name on the hub, and the sizes that are not the class's defaults; for images and
sound also the shape of an example's input. `timm` and `torchvision` have names of models by family.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from zoo_models.libraries import Call, Decode, configured, tokens
from zoo_models.record import Build, Built, Model

MODELS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
BATCH = 23  # a prime, so that the sizes of products are not all aligned
TURNS = (("sdpa", BATCH), ("eager", BATCH), ("eager", 1))  # the way of attention, and the batch
SINGLE = 0.4  # the share of programs in float32; the others are in bfloat16
LENGTHS = (31, 64, 77, 100, 128, 197, 250, 256, 333, 384, 500, 512, 641, 777, 1000, 1024, 1500,
           2048, 4096)  # fmt: skip
SHORT = (16, 20, 32, 50, 64, 77, 100, 101, 128, 197, 250, 333, 384, 500, 512)
PASTS = (128, 333, 511, 1000, 1023, 1024, 2048)
PAIRS = ((128, 64), (512, 1), (333, 100), (64, 32), (1000, 128), (50, 17), (256, 1), (77, 40))
# The names that transformers' configurations have for the number of layers; a list has one entry
# for each stage.
DEPTHS = (
    "num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer", "n_layers",
    "encoder_layers", "decoder_layers", "num_encoder_layers", "depths", "num_encoder_blocks_each",
    "num_blocks_each",
)  # fmt: skip


def models() -> list[Model]:
    """The programs as models of the zoo: one of each family after the other, by an order that a
    seed draws, so that what a time limit cuts off is not one kind. TF32 and dynamic sizes take
    turns."""
    programs = list(_programs())
    random.Random("order of the architectures").shuffle(programs)
    of_family: dict[str, list[Model]] = {}
    for family, model in programs:
        of_family.setdefault(family, []).append(model)
    ordered = [m for turn in itertools.zip_longest(*of_family.values()) for m in turn if m]
    return [
        replace(
            model, dynamic=turn % 8 in (2, 5), tf32=model.dtype is torch.float32 and turn % 2 == 0
        )
        for turn, model in enumerate(ordered)
    ]


def _programs() -> Iterator[tuple[str, Model]]:
    """Each program with its family."""
    for group in ("decoders", "encoders", "encoder-decoders", "whisper", "images", "sound"):
        for family, kind, name, sizes, *shape in MODELS[group]:
            rng = random.Random(name)
            for attention, batch in TURNS:
                for what, build in _ways(rng, group, kind, sizes, attention, batch, *shape):
                    way = f"{what} {attention}{' alone' if batch == 1 else ''}"
                    yield family, _model(rng, "transformers", name, way, build)
    for library, load in (("timm", _timm), ("torchvision", _torchvision)):
        for family, names in MODELS[library].items():
            for name in names:
                rng = random.Random(name)
                for what, batch in (("forward", BATCH), ("forward alone", 1)):
                    build = partial(_image_model, load, name, batch)
                    yield family, _model(rng, library, name, what, build)


def _model(rng: random.Random, library: str, name: str, way: str, build: Build) -> Model:
    single = rng.random() < SINGLE
    return Model(
        f"{library}:{name} {way} {'fp32' if single else 'bf16'}", "architecture", library, build,
        torch.float32 if single else torch.bfloat16,
    )  # fmt: skip


def _ways(
    rng: random.Random, group: str, kind: str, sizes: dict[str, Any], attention: str, batch: int,
    shape: Sequence[int] = (),
) -> Iterator[tuple[str, Build]]:  # fmt: skip
    """What a model of transformers does, in words, and what builds it."""

    def build(maker: str, **given: int | Sequence[int]) -> Build:
        return partial(_transformer, maker, kind, sizes, attention, batch, given)

    if group == "decoders":
        length, past = rng.choice(LENGTHS), rng.choice(PASTS)
        yield f"prefill {length}", build("AutoModelForCausalLM", input_ids=length)
        yield f"decode after {past}", partial(_decode, kind, sizes, attention, batch, past)
    elif group == "encoders":
        length = rng.choice(SHORT[:6] if "CLIP" in kind else SHORT)
        yield f"encode {length}", build("AutoModel", input_ids=length)
    elif group == "encoder-decoders":
        s, t = rng.choice(PAIRS)
        made = build("AutoModelForSeq2SeqLM", input_ids=s, decoder_input_ids=t)
        yield f"forward {s}→{t}", made
    elif group == "whisper":
        t, sound = rng.choice((1, 64, 100, 4, 37)), (sizes.get("num_mel_bins", 80), 3000)
        maker = "WhisperForConditionalGeneration"
        yield f"forward 3000→{t}", build(maker, input_features=sound, decoder_input_ids=t)
    else:
        maker = f"{kind}Model" if kind.endswith("Vision") else "AutoModel"
        name = "input_features" if kind == "Wav2Vec2Bert" else "input_values"
        if len(shape) > 2:
            name = "pixel_values_videos" if kind == "VJEPA2" else "pixel_values"
        yield "forward", build(maker, **{name: shape})


# Modules


def _transformer(
    maker: str, kind: str, sizes: dict[str, Any], attention: str, batch: int,
    given: dict[str, int | Sequence[int]],
) -> Built:  # fmt: skip
    """`given` are inputs by name: a number of tokens, or the shape of numbers."""
    model = _made(maker, _config(kind, sizes), attention)
    inputs = tuple(
        tokens(batch, each, 30) if isinstance(each, int) else torch.randn(batch, *each)
        for each in given.values()
    )
    if maker == "AutoModel" or maker.endswith("VisionModel"):
        return Call(model, tuple(given), ("last_hidden_state",)), inputs
    last: dict[str, Any] = {"logits_to_keep": 1} if maker == "AutoModelForCausalLM" else {}
    return Call(model, tuple(given), ("logits",), use_cache=False, **last), inputs


def _decode(kind: str, sizes: dict[str, Any], attention: str, batch: int, past: int) -> Built:
    config = _config(kind, sizes)
    model = _made("AutoModelForCausalLM", config, attention)
    return Decode(model, config, batch, past, "logits"), (tokens(batch, 1, 30),)


def _image_model(load: Callable[[str], tuple[nn.Module, int]], name: str, batch: int) -> Built:
    module, edge = load(name)
    image = torch.randn(batch, 3, edge, edge)
    try:
        with torch.no_grad():
            few_layers(module).eval()(image)
    except Exception:  # noqa: BLE001  # its layers are not told apart by their sizes
        return load(name)[0], (image,)
    return module, (image,)


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
    """The module without repeated layers: of a list or a sequence, a layer is left out if it equals
    one of the last two that were kept (two, since some models have two kinds in turn)."""
    for part in list(module.modules()):
        if isinstance(part, (nn.ModuleList, nn.Sequential)):
            kept: list[tuple[Any, nn.Module]] = []
            for child in part:
                sizes = tuple((n, tuple(p.shape)) for n, p in child.named_parameters())
                buffers = tuple((n, tuple(p.shape)) for n, p in child.named_buffers())
                kind = (type(child), sizes, buffers)
                if not sizes or kind not in [of for of, _ in kept[-2:]]:
                    kept.append((kind, child))
            if len(kept) < len(part):
                del part[:]
                part.extend(child for _, child in kept)
    return module


def _config(kind: str, sizes: dict[str, Any]) -> Any:
    """The configuration with a layer of each kind."""
    config = configured(kind, **sizes)
    types = getattr(config, "layer_types", None)
    distinct = list(dict.fromkeys(types)) if types else []
    for name in DEPTHS:
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
    # else it follows from another field
    with contextlib.suppress(AttributeError, NotImplementedError):
        setattr(config, name, value)


def _made(maker: str, config: Any, attention: str) -> nn.Module:
    import transformers

    kind = getattr(transformers, maker)
    try:
        config._attn_implementation = attention
        if maker.startswith("AutoModel"):
            return kind.from_config(config, attn_implementation=attention)
        return kind(config)
    except ValueError:
        if attention == "eager":
            raise
        return _made(maker, config, "eager")  # it has only one
