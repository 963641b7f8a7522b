"""A model of the zoo, and what the records of several libraries share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]
Build = Callable[[], Built]


@dataclass(frozen=True)
class Model:
    """`build` makes the module and its inputs on the default device, in the default dtype, which
    is `dtype` then. `group` is what the report has figures of; `train` a step of both passes,
    `dynamic` torch.compile(dynamic=True), `tf32` whether float32 products may use it."""

    name: str
    group: str
    source: str  # the library it comes from, or "written": in plain torch, here
    build: Build
    dtype: torch.dtype = torch.bfloat16
    train: bool = False
    dynamic: bool = False
    tf32: bool = False

    def made(self) -> Built:
        """What is compiled, and its inputs: the module, or with its loss where it trains."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            module, args = self.build()
        finally:
            torch.set_default_dtype(before)
        if self.train:
            module = Loss(module)
        return module.train(self.train).requires_grad_(self.train), args

    @property
    def kind(self) -> str:
        """The type and way of compiling in words."""
        dtype = str(self.dtype).removeprefix("torch.") + (" with TF32" if self.tf32 else "")
        return ", ".join(
            (dtype, "training" if self.train else "forward", *("dynamic",) * self.dynamic)
        )


def also(model: Model, suffix: str, **changes: Any) -> Model:
    """The same model compiled in another way."""
    return replace(model, name=f"{model.name}-{suffix}", **changes)


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
        return nn.functional.cross_entropy(_wide(logits), tokens[:, 1:].flatten())


class Loss(nn.Module):
    """One number of all that a module returns, for a training step: a weighted sum, since the
    gradient of a mere sum is nothing behind a normalisation."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        found = self.module(*args)
        return sum(
            ((_wide(x) * _weights(x)).sum() / x.numel() ** 0.5 if x.ndim else _wide(x))
            for x in (found if isinstance(found, tuple) else (found,))
        )


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.float64 else x.float()


def _weights(x: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1.5, x.shape[-1], dtype=_wide(x).dtype, device=x.device)


def tokens(batch: int, length: int, words: int) -> torch.Tensor:
    return torch.randint(0, words, (batch, length))


def configured(name: str, **sizes: Any) -> Any:
    """A configuration of transformers'."""
    import transformers

    return getattr(transformers, f"{name}Config")(**sizes)


def hugging_face(
    config: Callable[[], Any], inputs: dict[str, Callable[[], torch.Tensor]],
    results: Sequence[str] = ("last_hidden_state",), kind: str = "AutoModel", **fixed: Any,
) -> Build:  # fmt: skip
    """Builds transformers' model of the configuration; `kind` is its class."""

    def build() -> Built:
        import transformers

        maker = getattr(transformers, kind)
        make = maker.from_config if kind.startswith("AutoModel") else maker
        module = Call(make(config()), tuple(inputs), results, **fixed)
        return module, tuple(given() for given in inputs.values())

    return build
