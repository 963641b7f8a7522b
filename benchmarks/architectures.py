"""Architectures of transformers, timm and torchvision that the zoo does not have, made generically:
default sizes, few layers, random weights."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from harvest_models.programs import few_layers
from torch import nn
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from zoo_models.record import Built, Model

_SEVERAL = re.compile("expert|period|dense|layer_types|pattern")  # its layers are of two kinds
_IS_DEPTH = re.compile(
    r"^(?!.*feat)(num|n|encoder|decoder|enc|dec)_.*(layers|blocks)$|^(n_layers?|depth)$"
)
_IS_DEPTHS = re.compile(r"^(depths?|num_.*(layers|blocks)|layers)$")
_IS_WIDTH = re.compile(r"^(intermediate_size|.*ffn_dim|d_ff|n_inner|hidden_dim)$")
# model types and timm's modules of convolutions, and those of timm that have other layers
_CONVOLUTIONS = re.compile(
    "res|reg|hgnet|mobile|efficient|^bit$|conv|textnet|uvdoc|repvit|fastvit|levit|poolformer|edge"
)
_WITH_PRODUCTS = re.compile(
    "cait|beit|coat|vit|deit|eva|former|hiera|mixer|nest|^pit|pvt|sequencer|swin|tnt|twins|volo"
)
_WORDS = ("input_ids", "decoder_input_ids", "bbox")
_LENGTHS = ((2, 333), (4, 128), (1, 1000), (8, 80), (3, 56))  # batch, tokens


class NotBuilt(Exception):
    """The model, or inputs of it, cannot be made in this generic way."""


@dataclass(frozen=True)
class Architecture:
    """`build` makes a module and its inputs; its argument is the place in the list, by which sizes
    take turns."""

    name: str
    source: str
    build: Callable[[int], Built]
    usual: bool = True  # whether its inputs are those of most models


def known() -> list[Architecture]:
    """Those of the installed libraries that the zoo does not have, in an order that a time limit
    may cut: by chance, and those whose inputs are certain first."""
    folder = Path(__file__).parent / "zoo_models"
    zoo = "".join(path.read_text() for path in folder.glob("*.[pj]*"))
    found = [*_transformers(zoo), *_timm(zoo), *_torchvision(zoo)]
    random.Random(16).shuffle(found)
    return sorted(found, key=lambda each: not each.usual)


_TYPES: tuple[dict[str, Any], ...] = (
    {"dtype": torch.bfloat16},
    {"dtype": torch.float16},
    {"dtype": torch.float32},
    {"dtype": torch.bfloat16},
    {"dtype": torch.float32, "tf32": True},
)


def models() -> list[Model]:
    """The architectures as models of the zoo. Types, training and dynamic sizes take turns."""
    return [
        Model(
            each.name, "architecture", each.source, partial(each.build, turn),
            dynamic=turn % 8 in (2, 5), train=turn % 12 == 7, **_TYPES[turn % len(_TYPES)],
        )
        for turn, each in enumerate(known())
    ]  # fmt: skip


class _Called(nn.Module):
    """A library's model, called with named inputs. Returns the numbers of its answer."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, tuple(names)
        for part in model.modules():  # a torch without CUDA cannot lower their gradient
            if isinstance(part, nn.Embedding) and "weight" in part._parameters:
                part.register_buffer("weight", part._parameters.pop("weight").detach())

    def train(self, mode: bool = True) -> _Called:
        """Stays as it is: layers that are dropped by chance need data."""
        return super().train(False)

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answer = self.model(**dict(zip(self.names, args, strict=True)))
        if isinstance(answer, torch.Tensor):
            return (answer,)
        values = answer.values() if hasattr(answer, "values") else answer
        return tuple(x for x in values if isinstance(x, torch.Tensor) and x.is_floating_point())


def _called(model: nn.Module, offers: Sequence[dict[str, torch.Tensor]]) -> Built:
    """The model with the first of the inputs that it takes."""
    error: Exception | None = None
    for inputs in offers:
        module = _Called(model.eval(), tuple(inputs))
        here = active_fake_mode()
        try:
            with here or FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
                found = module(*(x if here else mode.from_tensor(x) for x in inputs.values()))
        except Exception as raised:  # noqa: BLE001  # the next ones may fit
            error = error or raised
            continue
        if found:
            return module, tuple(inputs.values())
    raise NotBuilt(f"no such inputs, {type(error).__name__}: {error}") from error


# --- transformers ---


def _transformers(zoo: str) -> Iterator[Architecture]:
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    usual = {
        *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, *auto.MODEL_FOR_CTC_MAPPING_NAMES,
    }  # fmt: skip
    for kind in auto.MODEL_MAPPING_NAMES:
        name = CONFIG_MAPPING_NAMES.get(kind, "").removesuffix("Config")
        if name and f'"{name}"' not in zoo and not _CONVOLUTIONS.search(kind):
            build = partial(_of_kind, kind)
            yield Architecture(f"transformers/{kind}", "transformers", build, kind in usual)


def _of_kind(kind: str, turn: int) -> Built:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING

    config_class = CONFIG_MAPPING[kind]
    error: NotBuilt | None = None
    for odd in (True, False) if turn % 3 == 1 else (False,):
        try:
            config = _small(config_class, odd=odd)
            mapping = MODEL_MAPPING
            if turn % 2 and config_class in MODEL_FOR_CAUSAL_LM_MAPPING:
                mapping = MODEL_FOR_CAUSAL_LM_MAPPING
            model_class = mapping[config_class]
            if isinstance(model_class, (tuple, list)):
                model_class = model_class[0]
            model = model_class(config)
            return _called(model, list(_inputs(model, config, turn)))
        except DataDependentOutputException:
            raise  # the caller makes it with data then
        except NotBuilt as raised:
            error = raised
        except Exception as raised:  # noqa: BLE001
            error = NotBuilt(f"{type(raised).__name__}: {raised}")
    assert error is not None
    raise error


def _small(config_class: Any, *, odd: bool) -> Any:
    """A configuration with few layers, and with odd sizes between two products of a layer."""
    config = config_class()
    given = _changes(config, odd=odd)
    try:
        return _without_cache(config_class(**given))
    except Exception:  # noqa: BLE001  # lists by layer that are made by other rules
        numbers = {name: x for name, x in given.items() if not isinstance(x, list)}
        return _without_cache(config_class(**numbers))


def _changes(config: Any, *, odd: bool) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    before = 0  # layers
    stages = any(_IS_DEPTHS.search(name) and _numbers(x) for name, x in vars(config).items())
    layers = 2 if any(map(_SEVERAL.search, vars(config))) else 1
    for name, value in vars(config).items():
        if hasattr(value, "to_dict"):  # of a part
            if below := _changes(value, odd=odd):
                whole = value.to_dict()
                changed[name] = {**whole, **below}
        elif isinstance(value, int) and not isinstance(value, bool):
            if _IS_DEPTH.search(name) and value > layers and not stages:
                changed[name] = layers
                before = max(before, value)
            elif odd and _IS_WIDTH.search(name) and value > 256:
                changed[name] = value * 2 // 3 | 1
        elif _IS_DEPTHS.search(name) and _numbers(value):
            changed[name] = [min(x, layers) for x in value]
    for name, value in vars(config).items():
        if before and isinstance(value, (list, tuple)) and len(value) == before:
            changed[name] = [value[0], value[-1]][-layers:]
    return changed


def _numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(type(x) is int for x in value)


def _without_cache(config: Any) -> Any:
    for part in (config, *(x for x in vars(config).values() if hasattr(x, "to_dict"))):
        if hasattr(part, "use_cache"):
            part.use_cache = False
    return config


def _inputs(model: nn.Module, config: Any, turn: int) -> Iterator[dict[str, torch.Tensor]]:
    """Sets of inputs that the model may take, the most complete ones first."""
    parameters = inspect.signature(model.forward).parameters
    made: dict[str, torch.Tensor] = {}
    for name in parameters:
        if make := _MAKERS.get(name):
            made[name] = make(config, turn)
    required = {
        name for name, each in parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    }  # fmt: skip
    main = getattr(model, "main_input_name", "input_ids")
    base = {name: made[name] for name in (*required, main) if name in made}
    words = {name: made[name] for name in _WORDS if name in made}
    masks = {name: made[name] for name in ("attention_mask",) if name in made and turn % 2}
    for given in (
        {**base, **words, **masks}, {**base, **words}, {**base, **masks}, base, words,
        *({name: x} for name, x in made.items()),
    ):  # fmt: skip
        if given:
            yield given
    if not made:
        raise NotBuilt(f"no such inputs, it asks for {', '.join(parameters)}")


def _first(config: Any, names: Sequence[str], default: Any) -> Any:
    """The first of the fields that the configuration or a part of it has."""
    parts = (config, *(x for x in vars(config).values() if hasattr(x, "to_dict")))
    for part in parts:
        for name in names:
            value = getattr(part, name, None)
            if isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
                value = value[0]
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return default


def _length(config: Any, turn: int) -> tuple[int, int]:
    batch, length = _LENGTHS[turn % len(_LENGTHS)]
    most = _first(config, ("max_position_embeddings", "n_positions", "max_target_positions"), 4096)
    return batch, max(8, min(length, most - 4))


def _tokens(config: Any, turn: int) -> torch.Tensor:
    words = _first(config, ("vocab_size",), 256)
    return torch.randint(0, min(words, 256), _length(config, turn))


def _target(config: Any, turn: int) -> torch.Tensor:
    return _tokens(config, turn)[:, :48]


def _mask(config: Any, turn: int) -> torch.Tensor:
    return torch.ones(_length(config, turn), dtype=torch.int64)


def _image(config: Any, turn: int) -> torch.Tensor:
    size = getattr(config, "image_size", None)
    if not _numbers(size):
        size = [_first(config, ("image_size", "input_size"), 224)] * 2
    channels = _first(config, ("num_channels", "in_channels", "in_chans"), 3)
    return torch.randn(2, channels, *size[-2:])


def _features_mask(config: Any, turn: int) -> torch.Tensor:
    x = _features(config, turn)
    return torch.ones(len(x), x.shape[-1], dtype=torch.int64)


def _boxes(config: Any, turn: int) -> torch.Tensor:
    return torch.zeros(*_length(config, turn), 4, dtype=torch.int64)


def _mels(config: Any) -> int:
    names = ("num_mel_bins", "n_mels", "feature_size", "input_feat_per_channel",
             "feature_projection_input_dim", "input_dim")  # fmt: skip
    return int(_first(config, names, 80))


def _sound(config: Any, turn: int) -> torch.Tensor:
    if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
        return torch.randn(2, config.max_length, config.num_mel_bins)
    if hasattr(config, "audio_channels"):
        return torch.randn(2, config.audio_channels, 24000)
    return torch.randn(2, 16000)


def _features(config: Any, turn: int) -> torch.Tensor:
    long = _first(config, ("max_source_positions",), 0)
    if long and not hasattr(config, "input_feat_per_channel"):
        return torch.randn(2, _mels(config), 2 * long)  # as Whisper has it
    return torch.randn(2, 400, _mels(config))


def _past(config: Any, turn: int) -> torch.Tensor:
    channels = _first(config, ("num_input_channels",), 0)
    length = _first(config, ("context_length",), 512)
    return torch.randn(4, length, channels) if channels else torch.randn(4, length)


def _hidden(config: Any, turn: int) -> torch.Tensor:
    return torch.randn(*_length(config, turn), _first(config, ("hidden_size", "d_model"), 768))


_MAKERS: dict[str, Callable[[Any, int], torch.Tensor]] = {
    "input_ids": _tokens, "decoder_input_ids": _target, "attention_mask": _mask,
    "pixel_values": _image, "bbox": _boxes, "input_values": _sound, "input_features": _features,
    "input_features_mask": _features_mask,
    "past_values": _past, "inputs_embeds": _hidden, "hidden_states": _hidden,
}  # fmt: skip


# --- timm and torchvision ---


def _timm(zoo: str) -> Iterator[Architecture]:
    import timm

    for module in timm.list_modules():
        if _CONVOLUTIONS.search(module) or not _WITH_PRODUCTS.search(module):
            continue
        names = [
            name for name in timm.list_models(module=module)
            if f'"{name}"' not in zoo and not name.startswith("test_")
        ]  # fmt: skip
        usual = [n for n in names if re.search("small|base|_s_|_b_|50", n)] or names
        if usual:
            name = usual[0]
            yield Architecture(f"timm/{module}/{name}", "timm", partial(_of_timm, name))


def _of_timm(name: str, turn: int) -> Built:
    import timm

    try:
        model = few_layers(timm.create_model(name))
    except DynamicOutputShapeException as error:  # has the caller make it with data
        raise DataDependentOutputException(error.func) from error
    images = torch.randn((2, 8, 3)[turn % 3], *model.default_cfg["input_size"])
    return _called(model, [{_name(model): images}])


def _torchvision(zoo: str) -> Iterator[Architecture]:
    import torchvision

    names = [
        name for name in torchvision.models.list_models()
        if f'"{name}"' not in zoo and re.search("maxvit|mvit|swin|^vit", name)
    ]  # fmt: skip
    for family, members in groupby(names, lambda name: re.split(r"[\d_]", name)[0]):
        name = min(members)
        build = partial(_of_torchvision, name)
        yield Architecture(f"torchvision/{family}/{name}", "torchvision", build)


def _of_torchvision(name: str, turn: int) -> Built:
    import torchvision

    model = few_layers(torchvision.models.get_model(name))
    video = re.search("3d|mvit|mc3|r2plus1d", name)
    shape = (3, 16, 112, 112) if video else (3, 224, 224)
    return _called(model, [{_name(model): torch.randn(2, *shape)}])


def _name(model: nn.Module) -> str:
    return next(iter(inspect.signature(model.forward).parameters))
