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
    `dynamic` torch.compile(dynamic=True), `tf32` whether float32 products may use it, `cold` that
    its inputs are not in the GPU's cache when it is timed."""

    name: str
    group: str
    source: str  # the library it comes from, or "written": in plain torch, here
    build: Build
    dtype: torch.dtype = torch.bfloat16
    train: bool = False
    dynamic: bool = False
    tf32: bool = False
    cold: bool = False

    def make(self) -> Built:
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


class Loss(nn.Module):
    """One number of all that a module returns, for a training step: a weighted sum, since the
    gradient of a mere sum is nothing behind a normalisation."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        found = self.module(*args)
        return sum(
            ((wide(x) * _weights(x)).sum() / x.numel() ** 0.5 if x.ndim else wide(x))
            for x in (found if isinstance(found, tuple) else (found,))
        )


def wide(x: torch.Tensor) -> torch.Tensor:
    """The tensor in float32, or as it is in float64."""
    return x if x.dtype is torch.float64 else x.float()


def _weights(x: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1.5, x.shape[-1], dtype=wide(x).dtype, device=x.device)


def numbers(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


def below(top: int, *shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, top, shape)


def make_record(
    name: str, group: str, make: Callable[[], nn.Module],
    given: Sequence[Callable[[], torch.Tensor]], **more: Any,
) -> Model:  # fmt: skip
    """Return the record of a module in plain torch; `given` makes its inputs."""

    def build() -> Built:
        return make(), tuple(each() for each in given)

    return Model(name, group, "written", build, **more)


# Ways to compile, for `make_record` and `also`.
HALF: Any = {"dtype": torch.float16}
FLOAT32: Any = {"dtype": torch.float32}
TF32: Any = {**FLOAT32, "tf32": True}
