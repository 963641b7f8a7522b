"""Blocks of models with experts, in plain torch: each token goes to some of the experts, and all of
them are computed by products of groups (torch._grouped_mm)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zoo_models.record import also, make_record, numbers

F = nn.functional


def of_groups(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows up to each of `ends` [E] times that group's weights [E, K, N]."""
    if x.dtype is not torch.float64:
        return torch._grouped_mm(x, weights, offs=ends)
    # the reference's type, which the operator does not have
    parts = x.tensor_split(ends[:-1].long().cpu())
    return torch.cat([part @ weight for part, weight in zip(parts, weights, strict=True)])


class Experts(nn.Module):
    """A layer of gated experts. A router's bias has some of them asked more often than others, as
    they are in a trained model. With `shared` there is one more, of all tokens."""

    def __init__(
        self, width: int, inner: int, experts: int, chosen: int, *, shared: bool = False,
        sigmoid: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.chosen, self.sigmoid = chosen, sigmoid
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)
        self.shared_up = nn.Linear(width, 2 * inner, bias=False) if shared else None
        self.shared_down = nn.Linear(inner, width, bias=False) if shared else None
        self.register_buffer("bias", 0.2 * torch.randn(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, experts = x.shape[0], self.up.shape[0]
        scores = self.router(x)
        scores = scores.sigmoid() if self.sigmoid else scores.softmax(-1)
        chosen = (scores + self.bias).topk(self.chosen, -1).indices
        share = scores.gather(-1, chosen)
        share = share / share.sum(-1, keepdim=True)
        expert, order = chosen.flatten().sort()
        every = torch.arange(experts, device=x.device)
        ends = (expert <= every[:, None]).sum(1).to(torch.int32)
        gate, up = of_groups(x[order // self.chosen], self.up, ends).chunk(2, -1)
        found = of_groups(F.silu(gate) * up, self.down, ends)
        found = found[order.argsort()]  # by token again
        out = (found.view(count, self.chosen, -1) * share.unsqueeze(-1)).sum(1)
        if self.shared_up is not None and self.shared_down is not None:
            gate, up = self.shared_up(x).chunk(2, -1)
            out = out + self.shared_down(F.silu(gate) * up)
        return out


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Queries or keys [B, H, S, D] turned by their places."""
    half = x.shape[-1] // 2
    given: Any = {"device": x.device, "dtype": torch.promote_types(x.dtype, torch.float32)}
    speeds = 10_000 ** (-torch.arange(half, **given) / half)
    angle = torch.outer(torch.arange(x.shape[-2], **given), speeds)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class LatentAttention(nn.Module):
    """DeepSeek's: queries, keys and values come through narrow layers, and one key with the places
    is shared by all heads."""

    def __init__(
        self, width: int = 7168, heads: int = 128, of_q: int = 1536, of_kv: int = 512,
        plain: int = 128, turned: int = 64,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.plain, self.turned = heads, plain, turned
        self.q_down, self.q_norm = nn.Linear(width, of_q, bias=False), nn.RMSNorm(of_q)
        self.q_up = nn.Linear(of_q, heads * (plain + turned), bias=False)
        self.kv_down = nn.Linear(width, of_kv + turned, bias=False)
        self.kv_norm = nn.RMSNorm(of_kv)
        self.kv_up = nn.Linear(of_kv, heads * 2 * plain, bias=False)
        self.out = nn.Linear(heads * plain, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def by_head(y: torch.Tensor) -> torch.Tensor:
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q = by_head(self.q_up(self.q_norm(self.q_down(x))))
        narrow, key = self.kv_down(x).split([self.kv_norm.normalized_shape[0], self.turned], -1)
        k, v = by_head(self.kv_up(self.kv_norm(narrow))).split(self.plain, -1)
        key = rotated(key.unsqueeze(1)).expand(-1, self.heads, -1, -1)
        q = torch.cat((q[..., : self.plain], rotated(q[..., self.plain :])), -1)
        k = torch.cat((k, key), -1)
        # values as wide as keys, which the fast kernels of attention want
        found = F.scaled_dot_product_attention(q, k, F.pad(v, (0, self.turned)), is_causal=True)
        return self.out(found[..., : self.plain].transpose(1, 2).flatten(2))


class SharedHeads(nn.Module):
    """Attention whose queries share heads of keys and values."""

    def __init__(self, width: int, heads: int, kv_heads: int, each: int) -> None:
        super().__init__()
        self.sizes = [heads * each, kv_heads * each, kv_heads * each]
        self.each = each
        self.qkv = nn.Linear(width, sum(self.sizes), bias=False)
        self.out = nn.Linear(heads * each, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            y.unflatten(-1, (-1, self.each)).transpose(1, 2)
            for y in self.qkv(x).split(self.sizes, -1)
        )
        found = F.scaled_dot_product_attention(
            rotated(q), rotated(k), v, is_causal=True, enable_gqa=True
        )
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, and experts behind it."""

    def __init__(self, width: int, attention: nn.Module, experts: nn.Module) -> None:
        super().__init__()
        self.attention, self.experts = attention, experts
        self.norm, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.experts(self.norm2(x).flatten(0, 1)).view_as(x)


def deepseek_v3() -> Block:
    """64 of the 256 experts, so that the reference in float64 has room beside them."""
    experts = Experts(7168, 2048, 64, 8, shared=True, sigmoid=True)
    return Block(7168, LatentAttention(), experts)


def qwen3_30b_a3b() -> Block:
    return Block(2048, SharedHeads(2048, 32, 4, 128), Experts(2048, 768, 128, 8))


_qwen = make_record("qwen3-30b-a3b-block", "experts", qwen3_30b_a3b, [numbers(1, 2048, 2048)])

MODELS = (
    make_record("deepseek-v3-block", "experts", deepseek_v3, [numbers(1, 1024, 7168)]),
    _qwen,
    also(_qwen, "training", train=True),
)
