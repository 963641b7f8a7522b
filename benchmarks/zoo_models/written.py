"""Models in plain torch: diffusion, recommenders, mixers, scientific networks, products as such."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import nn

from zoo_models.record import FLOAT32, HALF, TF32, also, below, make_record, numbers

F = nn.functional


def mlp(*sizes: int, act: Callable[[], nn.Module] = nn.ReLU, last: bool = True) -> nn.Sequential:
    """Linear layers of these sizes with an activation behind each, the last one's too if `last`."""
    parts: list[nn.Module] = []
    for k, n in itertools.pairwise(sizes):
        parts += [nn.Linear(k, n), act()]
    return nn.Sequential(*parts if last else parts[:-1])


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int) -> torch.Tensor:
    """Attention of [B, S, H·D] each."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Dlrm(nn.Module):
    """Dense features and embeddings of 26 tables, their products in pairs, and a tower on top."""

    def __init__(self, rows: int = 10_000, size: int = 128) -> None:
        super().__init__()
        self.bottom = mlp(13, 512, 256, size)
        self.tables = nn.Embedding(26 * rows, size)
        self.top = mlp(size + 27 * 26 // 2, 1024, 1024, 512, 256, 1, last=False)
        self.register_buffer("starts", torch.arange(26) * rows)
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        each = torch.cat((x.unsqueeze(1), self.tables(sparse + self.starts)), 1)
        products = torch.bmm(each, each.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((x, products), 1))


class Towers(nn.Module):
    """A recommender's two towers alone, each with its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = mlp(13, 512, 256, 128)
        self.top = mlp(479, 1024, 1024, 512, 256)

    def forward(self, dense: torch.Tensor, crossed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.bottom(dense), self.top(crossed)


class TwoTower(nn.Module):
    """Users and items, and the scores of all pairs of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = mlp(300, 512, 256, 64), mlp(450, 512, 256, 64)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        u, i = (F.normalize(x, dim=-1) for x in (self.user(user), self.item(item)))
        return u @ i.t() / 0.05


class Crosses(nn.Module):
    """DCN-v2: low-rank cross layers beside a deep tower."""

    def __init__(self, size: int = 845, rank: int = 256) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(size, rank, bias=False) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(rank, size) for _ in range(2))
        self.deep = mlp(size, 1000, 500)
        self.head = nn.Linear(size + 500, 1)

    def forward(self, first: torch.Tensor) -> torch.Tensor:
        x = first
        for down, up in zip(self.down, self.up, strict=True):
            x = first * up(down(x)) + x
        return self.head(torch.cat((x, self.deep(first)), -1))


class FullCrosses(nn.Module):
    """DCN-v2 as first published: cross layers of the whole width behind embeddings of 26 fields."""

    def __init__(self, rows: int = 10_000, size: int = 16) -> None:
        super().__init__()
        width = 13 + 26 * size
        self.tables = nn.Embedding(26 * rows, size)
        self.crosses = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.deep = mlp(width, 768, 385, 129)
        self.head = nn.Linear(width + 129, 1)
        self.register_buffer("starts", torch.arange(26) * rows)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        first = torch.cat((dense, self.tables(sparse + self.starts).flatten(1)), 1)
        x = first
        for cross in self.crosses:
            x = first * cross(x) + x
        return self.head(torch.cat((x, self.deep(first)), -1))


class DeepFm(nn.Module):
    """DeepFM: embeddings of 39 fields, their products in pairs by sums, and a tower beside."""

    def __init__(self, rows: int = 10_000, size: int = 10) -> None:
        super().__init__()
        self.tables, self.linear = nn.Embedding(39 * rows, size), nn.Embedding(39 * rows, 1)
        self.tower = mlp(39 * size, 400, 400, 400, 1, last=False)
        self.register_buffer("starts", torch.arange(39) * rows)

    def forward(self, sparse: torch.Tensor) -> torch.Tensor:
        each = self.tables(sparse + self.starts)
        pairs = (each.sum(1).square() - each.square().sum(1)).sum(-1, keepdim=True) / 2
        return self.linear(sparse + self.starts).sum(1) + pairs + self.tower(each.flatten(1))


class Patches(nn.Module):
    """Overlapping patches of an image as SegFormer's and CvT's, by one product: 7·7·3 to 96."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.norm = nn.Linear(147, 96), nn.LayerNorm(96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.out(F.unfold(x, 7, padding=3, stride=4).transpose(1, 2)))


class GatedExperts(nn.Module):
    """MMoE: experts that all tasks share, and a gate for each task."""

    def __init__(self, size: int = 512, experts: int = 8, tasks: int = 3) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, size, 256) / size**0.5)
        self.down = nn.Parameter(torch.randn(experts, 256, 128) / 256**0.5)
        self.gates = nn.Linear(size, experts * tasks, bias=False)
        self.heads = nn.Parameter(torch.randn(tasks, 128, 1) / 128**0.5)
        self.tasks = tasks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(torch.einsum("bi,eio->beo", x, self.up))
        out = torch.relu(torch.einsum("bei,eio->beo", hidden, self.down))
        gate = torch.softmax(self.gates(x).unflatten(-1, (self.tasks, -1)), -1)
        return torch.einsum("bte,beo,toh->bth", gate, out, self.heads)


class Sequential4Rec(nn.Module):
    """SASRec: attention over what a user saw, and scores of all items."""

    def __init__(self, items: int = 50_000, size: int = 64) -> None:
        super().__init__()
        self.items = nn.Embedding(items, size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.norm, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.mlp = mlp(size, 4 * size, size, act=nn.GELU, last=False)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        x = self.items(seen)
        x = x + self.out(attend(*self.qkv(self.norm(x)).chunk(3, -1), 2))
        x = x + self.mlp(self.norm2(x))
        return x[:, -1] @ self.items.weight.t()


class DitBlock(nn.Module):
    """A block of DiT-XL/2: attention and an MLP, shifted and scaled by the time."""

    def __init__(self, size: int = 1152, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(size, 6 * size))
        self.norm = nn.LayerNorm(size, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = mlp(size, 4 * size, size, act=lambda: nn.GELU("tanh"), last=False)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        s1, g1, a1, s2, g2, a2 = self.time(c).unsqueeze(1).chunk(6, -1)
        h = self.norm(x) * (1 + g1) + s1
        x = x + a1 * self.out(attend(*self.qkv(h).chunk(3, -1), self.heads))
        return x + a2 * self.mlp(self.norm(x) * (1 + g2) + s2)


class JointBlock(nn.Module):
    """A double block of Flux: image and text with weights of their own and one attention."""

    def __init__(self, size: int = 3072, heads: int = 24) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(size, elementwise_affine=False)
        self.qk = nn.RMSNorm(size // heads)

        def two(k: int, n: int) -> nn.ModuleList:
            return nn.ModuleList(nn.Linear(k, n) for _ in range(2))

        self.time, self.qkv, self.out = two(size, 6 * size), two(size, 3 * size), two(size, size)
        self.up, self.down = two(size, 4 * size), two(4 * size, size)

    def forward(
        self, image: torch.Tensor, text: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        streams = (image, text)
        mods = [time(F.silu(c)).unsqueeze(1).chunk(6, -1) for time in self.time]
        parts = [
            qkv(self.norm(x) * (1 + m[1]) + m[0]).chunk(3, -1)
            for x, m, qkv in zip(streams, mods, self.qkv, strict=True)
        ]
        q, k, v = (
            torch.cat(each, 1).unflatten(-1, (self.heads, -1)) for each in zip(*parts, strict=True)
        )
        q, k, v = (x.transpose(1, 2) for x in (self.qk(q), self.qk(k), v))
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        done = []
        for i, (x, h) in enumerate(
            zip(streams, a.split([image.shape[1], text.shape[1]], 1), strict=True)
        ):
            m = mods[i]
            x = x + m[2] * self.out[i](h)
            h = self.up[i](self.norm(x) * (1 + m[4]) + m[3])
            done.append(x + m[5] * self.down[i](F.gelu(h, approximate="tanh")))
        return tuple(done)


class UnetBlock(nn.Module):
    """Of a Stable Diffusion UNet: a residual block of convolutions with the time, attention to
    itself and to the text, and a gated MLP."""

    def __init__(self, channels: int, heads: int, text: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(1280, channels)
        self.inside, self.outside = (nn.Linear(channels, channels) for _ in range(2))
        self.layer_norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.out, self.out2 = (nn.Linear(channels, channels) for _ in range(2))
        self.q = nn.Linear(channels, channels, bias=False)
        self.kv = nn.Linear(text, 2 * channels, bias=False)
        self.gate, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        h = self.convs[0](F.silu(self.norms[0](x))) + self.time(F.silu(time))[..., None, None]
        x = x + self.convs[1](F.silu(self.norms[1](h)))
        n1, n2, n3 = self.layer_norms
        h = self.inside(self.norms[2](x).flatten(2).transpose(1, 2))
        h = h + self.out(attend(*self.qkv(n1(h)).chunk(3, -1), self.heads))
        h = h + self.out2(attend(self.q(n2(h)), *self.kv(text).chunk(2, -1), self.heads))
        up, gate = self.gate(n3(h)).chunk(2, -1)
        h = h + self.down(up * F.gelu(gate))
        return x + self.outside(h).transpose(1, 2).unflatten(-1, x.shape[-2:])


class Mixer(nn.Module):
    """Layers of MLP-Mixer: over the places, then over the channels."""

    def __init__(self, places: int, size: int, layers: int = 2) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2 * layers))
        self.places = nn.ModuleList(
            mlp(places, size // 2, places, act=nn.GELU, last=False) for _ in range(layers)
        )
        self.channels = nn.ModuleList(
            mlp(size, 4 * size, size, act=nn.GELU, last=False) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, (places, channels) in enumerate(zip(self.places, self.channels, strict=True)):
            x = x + places(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return x


class Physics(nn.Module):
    """A physics-informed network: its value and the residual of the heat equation, its
    derivatives carried forward beside it."""

    def __init__(self, size: int = 128, layers: int = 5) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, size), nn.Linear(size, 1)
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, ...]:
        u = torch.tanh(self.first(points))
        slope = 1 - u * u
        x, t = slope * self.first.weight[:, 0], slope * self.first.weight[:, 1]
        xx = -2 * u * slope * self.first.weight[:, 0] ** 2
        for layer in self.layers:
            x, t, xx = x @ layer.weight.t(), t @ layer.weight.t(), xx @ layer.weight.t()
            u = torch.tanh(layer(u))
            slope = 1 - u * u
            xx = slope * xx - 2 * u * slope * x * x
            x, t = slope * x, slope * t
        weight = self.last.weight.t()
        return self.last(u), t @ weight - 0.1 * (xx @ weight)


class Fourier(nn.Module):
    """A layer of a Fourier neural operator, its complex product as two real ones of each mode."""

    def __init__(self, size: int = 64, modes: int = 16) -> None:
        super().__init__()
        self.modes = modes
        self.lift, self.skip = nn.Linear(3, size), nn.Linear(size, size)
        self.weight = nn.Parameter(torch.randn(2, modes * modes, size, size) / size)
        self.out = mlp(size, 128, 1, act=nn.GELU, last=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, _ = x.shape
        m = self.modes
        x = self.lift(x)
        spectrum = torch.view_as_real(torch.fft.rfft2(x, dim=(1, 2))[:, :m, :m]).flatten(1, 2)
        real, imaginary = (spectrum[..., i].transpose(0, 1) for i in (0, 1))  # [modes, B, C]
        p, q = self.weight
        mixed = torch.stack((real @ p - imaginary @ q, real @ q + imaginary @ p), -1)
        mixed = mixed.transpose(0, 1).unflatten(1, (m, m))
        full = torch.zeros(b, h, w // 2 + 1, *mixed.shape[3:], dtype=x.dtype, device=x.device)
        full[:, :m, :m] = mixed
        back = torch.fft.irfft2(torch.view_as_complex(full), s=(h, w), dim=(1, 2))
        return self.out(F.gelu(back + self.skip(x)))


class DeepOperator(nn.Module):
    """DeepONet: functions by their values at sensors, asked at points."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = mlp(100, 256, 256, 256, last=False)
        self.trunk = mlp(2, 256, 256, 256, act=nn.Tanh)

    def forward(self, functions: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        return self.branch(functions) @ self.trunk(points).t()


class MeshGraph(nn.Module):
    """A step of MeshGraphNet: messages along edges, gathered at nodes."""

    def __init__(self, size: int = 128) -> None:
        super().__init__()
        self.edge, self.node = mlp(3 * size, size, size, size), mlp(2 * size, size, size, size)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))

    def forward(
        self, nodes: torch.Tensor, edges: torch.Tensor, sender: torch.Tensor, to: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        message = self.edge(torch.cat((edges, nodes[sender], nodes[to]), -1))
        edges = edges + self.norms[0](message)
        gathered = torch.zeros_like(nodes).index_add(0, to, edges)
        return nodes + self.norms[1](self.node(torch.cat((nodes, gathered), -1))), edges


class GraphConvolution(nn.Module):
    """Two layers on a dense adjacency matrix, as for molecules and small graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(75, 256), nn.Linear(256, 256)

    def forward(self, nodes: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        x = torch.relu(near @ self.first(nodes))
        return torch.relu(near @ self.second(x)).sum(1)


class Radiance(nn.Module):
    """NeRF's network, asked at points along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = mlp(63, 256, 256, 256, 256), mlp(319, 256, 256, 256)
        self.density, self.color = nn.Linear(256, 1), mlp(256 + 27, 128, 3, last=False)

    def forward(self, points: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
        x = self.second(torch.cat((self.first(points), points), -1))
        return torch.cat((self.density(x), self.color(torch.cat((x, way), -1))), -1)


class CapacityExperts(nn.Module):
    """A mixture of experts with a fixed capacity: tokens are gathered by expert, and two
    batched products work on all experts at once."""

    def __init__(self, width: int = 1024, hidden: int = 2816, experts: int = 8) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens, experts = x.shape[0], self.up.shape[0]
        weight = torch.softmax(self.router(x), -1)
        share, chosen = weight.t().topk(2 * tokens // experts, dim=1)  # by expert
        given = x[chosen]
        out = torch.bmm(F.silu(torch.bmm(given, self.up)), self.down) * share.unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, chosen.flatten(), out.flatten(0, 1))


class LowRank(nn.Module):
    """A linear layer with a low-rank adapter of rank 16, of which alone there are gradients."""

    def __init__(self, size: int = 4096, rank: int = 16) -> None:
        super().__init__()
        self.base = nn.Linear(size, size, bias=False)
        self.down, self.up = nn.Linear(size, rank, bias=False), nn.Linear(rank, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(F.linear(x, self.base.weight.detach()) + 2 * self.up(self.down(x)))


class LinearAttention(nn.Module):
    """Attention without softmax: keys times values first, in two batched products."""

    def __init__(self, size: int = 1024, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1)
        )
        q, k = F.elu(q) + 1, F.elu(k) + 1
        total = q @ k.sum(2).unsqueeze(-1)
        return self.out((q @ (k.transpose(2, 3) @ v) / total).transpose(1, 2).flatten(2))


class PlainAttention(nn.Module):
    """Attention by its two products, scores in the model's own type and a bias on them."""

    def __init__(self, size: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1)
        )
        scores = torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 + bias, -1)
        return self.out((scores @ v).transpose(1, 2).flatten(2))


_towers = make_record(
    "recommender-towers", "recommender", Towers, [numbers(6144, 13), numbers(6144, 479)], **FLOAT32
)
_dlrm = make_record(
    "dlrm", "recommender", Dlrm, [numbers(6144, 13), below(10_000, 6144, 26)], **FLOAT32
)
_deep_fm = make_record("deep-fm", "recommender", DeepFm, [below(10_000, 4096, 39)], **FLOAT32)
_two = make_record("two-tower", "recommender", TwoTower, [numbers(4096, 300), numbers(4096, 450)])
_pinn = make_record("physics-informed", "scientific", Physics, [numbers(20_000, 2)], **FLOAT32)
_mesh = make_record("mesh-graph-net", "scientific", MeshGraph, [
    numbers(10_000, 128), numbers(60_000, 128), below(10_000, 60_000), below(10_000, 60_000),
], **FLOAT32)  # fmt: skip
_odd = make_record("odd-mlp", "mlp", lambda: mlp(1000, 3333, 777, 2049, 499), [numbers(333, 1000)])
_dit = make_record("dit-xl-2", "diffusion", DitBlock, [numbers(8, 256, 1152), numbers(8, 1152)])

MODELS = (
    _towers,
    also(_towers, "float16", **HALF),
    also(_towers, "tf32", tf32=True),
    also(_towers, "dynamic", dynamic=True),
    _dlrm,
    also(_dlrm, "float16", **HALF),
    also(_dlrm, "training-tf32", train=True, tf32=True),
    _two,
    also(_two, "training", train=True),
    make_record("dlrm-odd", "recommender", lambda: Dlrm(size=33), [
        numbers(6144, 13), below(10_000, 6144, 26)], **FLOAT32),
    make_record("dlrm-odd-float16", "recommender", lambda: Dlrm(size=50), [
        numbers(6144, 13), below(10_000, 6144, 26)], **HALF),
    make_record("dcn-v2-full", "recommender", FullCrosses, [
        numbers(4096, 13), below(10_000, 4096, 26)], **FLOAT32),
    make_record("dcn-v2-full-odd-training", "recommender", lambda: FullCrosses(size=11), [
        numbers(4096, 13), below(10_000, 4096, 26)], train=True),
    _deep_fm,
    also(_deep_fm, "training-tf32", train=True, tf32=True),
    make_record("patches-float16", "vision", Patches, [numbers(1, 3, 592, 592)], **HALF),
    make_record("dcn-v2-float16", "recommender", Crosses, [numbers(4096, 845)], **HALF),
    make_record("mmoe-tf32", "recommender", GatedExperts, [numbers(2048, 512)], **TF32),
    make_record("sasrec-training", "recommender", Sequential4Rec, [below(50_000, 128, 200)],
                train=True),
    _dit,
    also(_dit, "training", train=True),
    also(_dit, "dynamic", dynamic=True),
    make_record("flux-double-block", "diffusion", JointBlock, [
        numbers(1, 1024, 3072), numbers(1, 512, 3072), numbers(1, 3072)]),
    make_record("sd15-unet-block-float16", "diffusion", lambda: UnetBlock(320, 8, 768), [
        numbers(2, 320, 64, 64), numbers(2, 1280), numbers(2, 77, 768)], **HALF),
    make_record("sdxl-unet-block", "diffusion", lambda: UnetBlock(1280, 20, 2048), [
        numbers(2, 1280, 32, 32), numbers(2, 1280), numbers(2, 77, 2048)]),
    make_record("mixer-written-training-float16", "mlp", lambda: Mixer(196, 512), [
        numbers(32, 196, 512)], train=True, **HALF),
    _odd,
    also(_odd, "training", train=True),
    also(_odd, "float32", **FLOAT32),
    also(_odd, "dynamic", dynamic=True),
    make_record("autoencoder-tf32", "mlp",
                lambda: mlp(784, 512, 256, 32, 256, 512, 784, last=False), [numbers(512, 784)],
                **TF32),
    _pinn,
    also(_pinn, "training", train=True),
    make_record("fourier-operator", "scientific", Fourier, [numbers(8, 64, 64, 3)], **FLOAT32),
    make_record("deep-operator-training", "scientific", DeepOperator, [
        numbers(1000, 100), numbers(5000, 2)], train=True, **FLOAT32),
    _mesh,
    also(_mesh, "training-tf32", train=True, tf32=True),
    make_record("graph-convolution", "scientific", GraphConvolution, [
        numbers(256, 50, 75), numbers(256, 50, 50)], **FLOAT32),
    make_record("radiance-field-float16", "scientific", Radiance, [
        numbers(65_536, 63), numbers(65_536, 27)], **HALF),
    make_record("capacity-experts", "experts", CapacityExperts, [numbers(4096, 1024)]),
    make_record("low-rank-adapter-training", "decoder", LowRank, [numbers(2048, 4096)], train=True),
    make_record("linear-attention", "encoder", LinearAttention, [numbers(8, 1024, 1024)]),
    make_record("plain-attention-float16", "encoder", PlainAttention, [
        numbers(16, 197, 768), numbers(12, 197, 197)], **HALF),
)  # fmt: skip
