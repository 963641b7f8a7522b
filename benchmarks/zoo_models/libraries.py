"""Models of transformers, timm and torchvision, built as `libraries.json` describes them.

`configs` are (class of the configuration, sizes) by name. A model has `name`, `group` and `source`;
where they differ from the defaults `dtype`, `train`, `dynamic` and `tf32`; and what builds it:

- transformers: `config` (a name in `configs`, or its value), `inputs` by name, and maybe `class`
  (else AutoModel), `results` (else the last hidden state), `fixed` arguments, and a `way`: "loss"
  of the next token, or "decode" one token after `past` others;
- timm: `timm` (the name), `inputs`, maybe `options`, or `blocks`: how many are kept;
- torchvision: `torchvision` (the name), `inputs`, maybe `options` or, of a ResNet, `layers`.

An input is a shape, or {"tokens": [batch, length, number of words]}. `like` names another model,
from which all else is taken. Sizes are the published ones, with one or two layers.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from zoo_models.record import Built, Model, wide

Spec = dict[str, Any]


class Call(nn.Module):
    """A library's model, called with named inputs; returns the named fields of its answer."""

    def __init__(
        self, model: nn.Module, inputs: Sequence[str], results: Sequence[str], **fixed: Any
    ) -> None:
        super().__init__()
        self.model, self.inputs, self.results, self.fixed = model, inputs, results, fixed

    def train(self, mode: bool = True) -> Call:
        """Stays as it is: dropout would draw other numbers in each way, and layers that are
        dropped by chance are no step to time."""
        return super().train(False)

    def forward(self, *args: torch.Tensor) -> Any:
        answer = self.model(**dict(zip(self.inputs, args, strict=True)), **self.fixed)
        found = tuple(answer[name] for name in self.results)
        return found[0] if len(found) == 1 else found


class NextToken(Call):
    """A language model's loss on tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, ("input_ids",), ("logits",), use_cache=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = super().forward(tokens)[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(wide(logits), tokens[:, 1:].flatten())


class Decode(nn.Module):
    """One token of each of a batch, with the keys and values of the `past` tokens before it."""

    def __init__(self, model: nn.Module, config: Any, batch: int, past: int) -> None:
        super().__init__()
        self.model, self.layers = model, config.num_hidden_layers
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None)
        size = size or config.hidden_size // config.num_attention_heads
        self.register_buffer("keys", torch.randn(batch, heads, past, size))
        self.register_buffer("values", torch.randn(batch, heads, past, size))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        import transformers

        cache = transformers.DynamicCache()
        for layer in range(self.layers):
            cache.update(self.keys, self.values, layer)
        answer = self.model(input_ids=words, past_key_values=cache, use_cache=True)
        return answer["last_hidden_state"]


def _input(given: Sequence[int] | Spec) -> torch.Tensor:
    if not isinstance(given, dict):
        return torch.randn(*given)
    batch, length, words = given["tokens"]
    return torch.randint(0, words, (batch, length))


def _transformers(spec: Spec, configs: Spec) -> Built:
    given = spec["config"]
    name, sizes = configs[given] if isinstance(given, str) else given
    config = pkgutil.resolve_name(f"transformers:{name}Config")(**sizes)
    kind = spec.get("class", "AutoModel")
    make = pkgutil.resolve_name(kind if ":" in kind else f"transformers:{kind}")
    model = make.from_config(config) if kind.startswith("AutoModel") else make(config)
    inputs = {name: _input(each) for name, each in spec["inputs"].items()}
    if spec.get("way") == "decode":
        batch = len(inputs["input_ids"])
        module: nn.Module = Decode(model, config, batch, spec["past"])
    elif spec.get("way") == "loss":
        module = NextToken(model)
    else:
        results = spec.get("results", ("last_hidden_state",))
        module = Call(model, tuple(inputs), results, **spec.get("fixed", {}))
    return module, tuple(inputs.values())


def _timm(spec: Spec, _: Spec) -> Built:
    import timm

    model = timm.create_model(spec["timm"], **spec.get("options", {}))
    if "blocks" in spec:
        model.blocks = model.blocks[: spec["blocks"]]
    return model, (_input(spec["inputs"]),)


def _torchvision(spec: Spec, _: Spec) -> Built:
    import torchvision

    if "layers" in spec:
        resnet = torchvision.models.resnet
        module = resnet.ResNet(resnet.Bottleneck, spec["layers"])
    else:
        module = getattr(torchvision.models, spec["torchvision"])(**spec.get("options", {}))
    return module, (_input(spec["inputs"]),)


_BUILDERS: dict[str, Callable[[Spec, Spec], Built]] = {
    "transformers": _transformers, "timm": _timm, "torchvision": _torchvision
}  # fmt: skip


def models(table: Spec) -> Iterator[Model]:
    """The models of a table like `libraries.json`."""
    by_name = {spec["name"]: spec for spec in table["models"]}
    for own in table["models"]:
        spec = by_name[own["like"]] | own if "like" in own else own
        ways = {name: own[name] for name in ("train", "dynamic", "tf32") if name in own}
        build = partial(_BUILDERS[spec["source"]], spec, table["configs"])
        dtype = getattr(torch, own.get("dtype", "bfloat16"))
        yield Model(own["name"], spec["group"], spec["source"], build, dtype, **ways)


MODELS = tuple(models(json.loads(Path(__file__).with_suffix(".json").read_text())))
