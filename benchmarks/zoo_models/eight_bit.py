"""A Llama block whose linear layers compute in 8 bits, in plain torch, as torchao's do: scales are
found anew in each step from what comes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from zoo_models.experts import SharedHeads
from zoo_models.record import Model, also, make_record, numbers

F = nn.functional
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def in_float8(
    x: torch.Tensor, dim: int | None, dtype: torch.dtype = E4M3
) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrix in 8 bits, and the scales by which it is to be multiplied: one, or of each row of
    the other dimension than `dim`."""
    wide = x.float()
    most = torch.finfo(dtype).max
    largest = wide.abs().amax() if dim is None else wide.abs().amax(dim, keepdim=True)
    scale = largest.clamp(min=1e-12) / most
    return (wide / scale).clamp(-most, most).to(dtype), scale


def product(
    a: torch.Tensor, b: torch.Tensor, scales: tuple[torch.Tensor, torch.Tensor], out: torch.dtype,
    *, fast: bool,
) -> torch.Tensor:  # fmt: skip
    """a @ b of 8 bits; `b` is made column-major where it is not."""
    b = b.t().contiguous().t()
    return torch._scaled_mm(a, b, *scales, out_dtype=out, use_fast_accum=fast)


class Float8(nn.Module):
    """A linear layer that serves in float8; a scale for each row of its input and each output, or
    one for each of the two matrices."""

    def __init__(self, inputs: int, outputs: int, *, by_row: bool) -> None:
        super().__init__()
        self.by_row = by_row
        weight = torch.randn(outputs, inputs) / inputs**0.5
        quantized, scale = in_float8(weight, 1 if by_row else None)
        self.register_buffer("weight", quantized)
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float64:  # the reference, whose weights are as exact as these
            return F.linear(x, self.weight * self.scale)
        rows, scale = in_float8(x.flatten(0, -2), -1 if self.by_row else None)
        scales = scale, self.scale.t() if self.by_row else self.scale
        found = product(rows, self.weight.t(), scales, x.dtype, fast=True)
        return found.view(*x.shape[:-1], -1)


class _Float8Product(torch.autograd.Function):
    """x @ weight.t() in float8 with a scale for each matrix; gradients have more range and fewer
    digits, and are not accumulated fast."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        (a, of_a), (b, of_b) = in_float8(x, None), in_float8(weight, None)
        return product(a, b.t(), (of_a, of_b), x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        g, of_g = in_float8(grad, None, E5M2)
        (a, of_a), (b, of_b) = in_float8(x, None), in_float8(weight, None)
        return (
            product(g, b, (of_g, of_b), x.dtype, fast=False),
            product(g.t().contiguous(), a, (of_g, of_a), x.dtype, fast=False),
        )


class Float8Training(nn.Linear):
    """A linear layer that trains in float8: both passes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float64:
            return F.linear(x, self.weight)
        found = _Float8Product.apply(x.flatten(0, -2), self.weight)
        return found.view(*x.shape[:-1], -1)


class Int8(nn.Module):
    """A linear layer that serves in whole numbers of 8 bits: a scale for each row and output."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        weight = torch.randn(outputs, inputs).float() / inputs**0.5
        scale = weight.abs().amax(1) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float64:
            return F.linear(x, self.weight.double() * self.scale[:, None])
        wide = x.flatten(0, -2).float()
        scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        rows = (wide / scale).round().to(torch.int8)
        found = torch._int_mm(rows, self.weight.t()) * scale * self.scale
        return found.to(x.dtype).view(*x.shape[:-1], -1)


class Llama(nn.Module):
    """Attention and a gated MLP of Llama 3 8B's size; `linear` makes its layers."""

    def __init__(
        self, linear: Callable[[int, int], nn.Module], width: int = 4096, inner: int = 14336
    ) -> None:
        super().__init__()
        self.attention = SharedHeads(width, 32, 8, 128)
        self.attention.qkv = linear(width, sum(self.attention.sizes))
        self.attention.out = linear(width, width)
        self.up, self.down = linear(width, 2 * inner), linear(inner, width)
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def _model(name: str, linear: Callable[[int, int], nn.Module], **more: Any) -> Model:
    given = [numbers(1, 2048, 4096)]
    return make_record(f"llama-3-8b-{name}", "8 bits", lambda: Llama(linear), given, **more)


_rows = _model("float8-rows", lambda k, n: Float8(k, n, by_row=True))

MODELS = (
    _rows,
    also(_rows, "dynamic", dynamic=True),
    _model("float8-tensor", lambda k, n: Float8(k, n, by_row=False)),
    _model("float8-training", lambda k, n: Float8Training(k, n, bias=False), train=True),
    _model("int8", Int8),
)
