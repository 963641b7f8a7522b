"""Programs: a model and how it is run."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from zoo_models.libraries import Call, Decode, NextToken, configured, tokens
from zoo_models.record import Built, Model

from harvest_models import MODELS, families

# The names that transformers' configurations have for the number of layers; a list has one entry
# for each stage.
_DEPTHS = (
    "num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer", "n_layers",
    "encoder_layers", "decoder_layers", "num_encoder_layers", "depths", "num_encoder_blocks_each",
    "num_blocks_each",
)  # fmt: skip


# Batches to trace. A model is traced with one that divides none of its sizes. Then a size of a
# product grows with the batch where the batch divides it.
PRIMES = (23, 31, 29, 41, 47, 53)


@dataclass(frozen=True)
class Program:
    """A model, run in one way, by batches of any size or of one. `model` is the name that its
    library or the hub knows; `way` the length and such: "prefill 512", "decode after 1024", …
    `make` builds it for a batch."""

    family: str
    model: str
    library: str
    way: str
    make: Callable[[int], Built]
    single: bool  # float32; else bfloat16
    train: bool = False
    batches: tuple[int, ...] = (1,)  # where there are several, the products are scaled to each

    @property
    def name(self) -> str:
        return f"{self.library}:{self.model} {self.way} {'fp32' if self.single else 'bf16'}"

    def in_zoo(self, batch: int | None = None) -> tuple[Model, list[int]]:
        """The program as a model of the zoo, with this batch. None: with a batch of 1, if the
        program has no other, else with a prime that divides none of the model's sizes. Once the
        model is built, the list has the batch that was taken."""
        taken: list[int] = []

        def build() -> Built:
            if batch is not None or self.batches == (1,):
                taken.append(batch or 1)
                return self.make(taken[-1])
            for prime in PRIMES:
                module, args = self.make(prime)
                several = itertools.chain(module.parameters(), module.buffers())
                sizes = {size for part in several for size in part.shape} - {
                    prime
                }  # a cache of keys
                if all(size % prime for size in sizes):
                    taken.append(prime)
                    return module, args
            raise ValueError("Each of the primes divides one of the model's sizes.")

        dtype = torch.float32 if self.single else torch.bfloat16
        kind = families.kinds()[self.family]
        return Model(self.name, kind, self.library, build, dtype, self.train), taken


def all_programs() -> list[Program]:
    """One of each family after the other, by an order that a seed draws, so that what a time limit
    cuts off is not one kind."""
    programs = [program for several in _models() for program in several]
    random.Random("order of the harvest").shuffle(programs)
    of_family: dict[str, list[Program]] = {}
    for program in programs:
        of_family.setdefault(program.family, []).append(program)
    return [p for turn in itertools.zip_longest(*of_family.values()) for p in turn if p]


def _models() -> Iterator[Iterator[Program]]:
    for kind, programs in (
        ("decoders", _decoder), ("encoders", _encoder), ("encoder-decoders", _both),
        ("whisper", _whisper), ("images", _seen), ("sound", _seen),
    ):  # fmt: skip
        yield from (programs(*entry) for entry in MODELS[kind])
    for library, load in (("timm", _timm), ("torchvision", _torchvision)):
        for family, names in MODELS[library].items():
            yield from (_images(family, name, library, load) for name in names)


# ways

_LENGTHS = (31, 64, 77, 100, 128, 197, 250, 256, 333, 384, 500, 512, 641, 777, 1000, 1024, 1500,
            2048, 4096)  # fmt: skip
_SHORT = (16, 20, 32, 50, 64, 77, 100, 101, 128, 197, 250, 333, 384, 500, 512)
_PASTS = (128, 333, 511, 1000, 1023, 1024, 2048)
_STEPS = (2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 100, 128, 192, 256)
_BATCHES = (2, 3, 4, 6, 7, 8, 12, 16, 24, 25, 32, 48, 64, 100, 128, 256)
_MAX_TOKENS = 32768


def _drawn(rng: random.Random, tokens: int) -> tuple[int, ...]:
    """Batches of examples with so many tokens: every second, and five that are drawn."""
    free = [b for b in _BATCHES if b * tokens <= _MAX_TOKENS] or [2]
    return tuple(sorted({*rng.sample(free, min(5, len(free))), *free[::2]}))


def _decoder(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    rng = random.Random(name)

    def program(what: str, attention: str, alone: bool, **more: Any) -> Program:
        length = 1 if what == "decode" else rng.choice(_LENGTHS)
        past = rng.choice(_PASTS) if what == "decode" else 0
        batches = (1,) if alone else _drawn(rng, length)
        if what == "decode" and not alone:
            batches = tuple(sorted({*rng.sample(_STEPS, 6), *_STEPS[::2]}))
        return Program(
            family, name, "transformers",
            f"{what} {f'after {past}' if past else length} {attention}{' alone' if alone else ''}",
            lambda b: _causal(kind, sizes, b, length, attention=attention, loss=what == "train",
                              past=past),
            single=rng.random() < 0.3, train=what == "train", batches=batches,
        )  # fmt: skip

    yield program("prefill", "sdpa", alone=rng.random() < 0.5)
    yield program("train", "sdpa", alone=False)
    yield program("decode", "sdpa", alone=False)
    yield program("prefill", "eager", alone=rng.random() < 0.5)
    yield program("decode", "eager", alone=rng.random() < 0.3)
    yield program("train", "eager", alone=rng.random() < 0.5)


@dataclass(frozen=True)
class _Way:
    """How a model is run. `batches` are those of the program, or how many tokens an example has, by
    which they are drawn."""

    way: str
    make: Callable[[int], Built]
    train: bool
    batches: tuple[int, ...] | int


def _programs(
    family: str, name: str, library: str, rng: random.Random, share: float, ways: Iterable[_Way]
) -> Iterator[Program]:
    """The programs of a model; `share` of them, drawn, are in float32."""
    for each in ways:
        single = rng.random() < share
        batches = each.batches
        if isinstance(batches, int):
            batches = _drawn(rng, batches)
        yield Program(family, name, library, each.way, each.make, single, each.train, batches)


def _turns(count: int) -> Iterator[tuple[int, str, bool]]:
    """Yield the number, the way of attention and whether it trains, of each program."""
    for i in range(count):
        yield i, ("sdpa", "eager")[i % 2], i in (1, 2)


def _encoder(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    rng = random.Random(name)
    lengths = rng.sample(_SHORT[:6] if "CLIP" in kind else _SHORT, 5)
    ways = []
    for (i, attention, train), length in zip(_turns(5), lengths, strict=True):

        def make(b: int, length: int = length, attention: str = attention) -> Built:
            given = {"input_ids": tokens(b, length, 30)}
            return _called("AutoModel", _config(kind, sizes), attention, given)

        way = f"{'train' if train else 'encode'} {length} {attention}"
        ways.append(_Way(way, make, train, (1,) if i == 4 else length))
    return _programs(family, name, "transformers", rng, 0.45, ways)


_PAIRS = ((128, 64), (512, 1), (333, 100), (64, 32), (1000, 128), (50, 17), (256, 1), (77, 40))


def _both(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    rng = random.Random(name)
    ways = []
    for (i, attention, train), (s, t) in zip(_turns(5), rng.sample(_PAIRS, 5), strict=True):

        def make(b: int, s: int = s, t: int = t, attention: str = attention) -> Built:
            given = {"input_ids": tokens(b, s, 30), "decoder_input_ids": tokens(b, t, 30)}
            return _called(
                "AutoModelForSeq2SeqLM", _config(kind, sizes), attention, given,
                ("logits",), use_cache=False,
            )  # fmt: skip

        way = f"{'train' if train else 'forward'} {s}→{t} {attention}"
        ways.append(_Way(way, make, train, (1,) if i == 4 else s))
    return _programs(family, name, "transformers", rng, 0.45, ways)


def _whisper(family: str, kind: str, name: str, sizes: dict[str, Any]) -> Iterator[Program]:
    ways = []
    for (i, attention, train), length in zip(_turns(5), (1, 64, 100, 4, 37), strict=True):

        def make(b: int, length: int = length, attention: str = attention) -> Built:
            config = _config(kind, sizes)
            given = {
                "input_features": torch.randn(b, config.num_mel_bins, 3000),
                "decoder_input_ids": tokens(b, length, 30),
            }
            return _called(
                "WhisperForConditionalGeneration", config, attention, given, ("logits",),
                use_cache=False,
            )  # fmt: skip

        way = f"{'train' if train else 'forward'} 3000→{length} {attention}"
        ways.append(_Way(way, make, train, (1,) if i == 3 else (2, 4, 8, 12, 16)))
    return _programs(family, name, "transformers", random.Random(name), 0.4, ways)


def _seen(
    family: str, kind: str, name: str, sizes: dict[str, Any], shape: Sequence[int]
) -> Iterator[Program]:
    """Programs whose input is numbers and not tokens: images, video, sound."""
    large = len(shape) != 3 or shape[-1] > 300
    ways = []
    for i, attention in enumerate(("sdpa", "eager", "eager", "eager")):

        def make(b: int, attention: str = attention) -> Built:
            maker = f"{kind}Model" if kind.endswith("Vision") else "AutoModel"
            config = _config(kind, sizes)
            name = "input_features" if kind == "Wav2Vec2Bert" else "input_values"
            if len(shape) > 2:
                name = "pixel_values_videos" if kind == "VJEPA2" else "pixel_values"
            return _called(maker, config, attention, {name: torch.randn(b, *shape)})

        way = f"{'train' if i == 1 else 'forward'} {attention}{' alone' if i == 3 else ''}"
        batches = (1,) if i == 3 else 4000 if large else 500
        ways.append(_Way(way, make, i == 1, batches))
    return _programs(family, name, "transformers", random.Random(name), 0.4, ways)


def _images(
    family: str, name: str, library: str, load: Callable[[str], tuple[nn.Module, int]]
) -> Iterator[Program]:
    def make(b: int) -> Built:
        module, edge = load(name)
        image = torch.randn(b, 3, edge, edge)
        try:
            with torch.no_grad():
                few_layers(module).eval()(image)
        except Exception:  # noqa: BLE001  # its layers are not told apart by their sizes
            return load(name)[0], (image,)
        return module, (image,)

    ways = [
        _Way("forward", make, train=False, batches=300),
        _Way("train", make, train=True, batches=300),
        _Way("forward alone", make, train=False, batches=(1,)),
    ]
    return _programs(family, name, library, random.Random(name), 0.4, ways)


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
    # else it follows from another field
    with contextlib.suppress(AttributeError, NotImplementedError):
        setattr(config, name, value)


def _called(
    maker: str, config: Any, attention: str, given: dict[str, torch.Tensor],
    results: Sequence[str] = ("last_hidden_state",), **fixed: Any,
) -> Built:  # fmt: skip
    return Call(_made(maker, config, attention), tuple(given), results, **fixed), tuple(
        given.values()
    )


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


class Prefill(Call):
    """The logits of the token after each prompt."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, ("input_ids",), ("logits",), use_cache=False, logits_to_keep=1)


def _causal(
    kind: str, sizes: dict[str, Any], batch: int, length: int, *, attention: str,
    loss: bool = False, past: int = 0,
) -> Built:  # fmt: skip
    config = _config(kind, sizes)
    model = _made("AutoModelForCausalLM", config, attention)
    given = tokens(batch, length, 30)
    if past:
        return Decode(model, config, batch, past, "logits"), (given,)
    return (NextToken(model) if loss else Prefill(model)), (given,)
