"""Programs of science in plain torch, most of them in float32: splines, derivatives, kernels,
symmetries, molecules, proteins, and batches of small matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from zoo_models.record import FLOAT32, HALF, Model, also, below, make_record, numbers
from zoo_models.written import mlp

F = nn.functional


class SplineLayer(nn.Module):
    """A layer of a Kolmogorov-Arnold network as efficient-kan computes it: a product with the
    activation, and one with all B-splines of each input."""

    def __init__(self, size_in: int, size_out: int, cells: int = 5, order: int = 3) -> None:
        super().__init__()
        self.order = order
        knots = torch.arange(-order, cells + order + 1) * (2 / cells) - 1
        self.register_buffer("knots", knots.expand(size_in, -1).contiguous())
        self.base = nn.Parameter(torch.randn(size_out, size_in) / size_in**0.5)
        self.splines = nn.Parameter(0.1 * torch.randn(size_out, size_in, cells + order))
        self.scales = nn.Parameter(torch.randn(size_out, size_in) / size_in**0.5)

    def bases(self, x: torch.Tensor) -> torch.Tensor:
        """Return the B-splines of each input, [M, size_in, cells + order]."""
        x, knots = x.unsqueeze(-1), self.knots
        found = ((x >= knots[:, :-1]) & (x < knots[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (x - knots[:, : -k - 1]) / (knots[:, k:-1] - knots[:, : -k - 1])
            right = (knots[:, k + 1 :] - x) / (knots[:, k + 1 :] - knots[:, 1:-k])
            found = left * found[..., :-1] + right * found[..., 1:]
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = (self.splines * self.scales.unsqueeze(-1)).flatten(1)
        return F.linear(F.silu(x), self.base) + F.linear(self.bases(x).flatten(1), weights)


class Burgers(nn.Module):
    """A physics-informed network of the usual narrow size: its value, and the residual of Burgers'
    equation with derivatives that torch.func takes backward through the network twice."""

    def __init__(self, width: int = 20, layers: int = 4) -> None:
        super().__init__()
        self.net = mlp(2, *[width] * layers, 1, act=nn.Tanh, last=False)

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def value(given: torch.Tensor) -> torch.Tensor:
            return self.net(given)[:, 0]

        slopes = torch.func.grad(lambda given: value(given).sum())
        u, first = value(points), slopes(points)
        second = torch.func.grad(lambda given: slopes(given)[:, 0].sum())(points)
        residual = first[:, 1] + u * first[:, 0] - 0.01 / math.pi * second[:, 0]
        return u, residual


class GaussianProcess(nn.Module):
    """Gaussian processes on several data sets: the matrix of a kernel, steps of conjugate gradients
    for the data and ten probe vectors, and the mean at new points."""

    def __init__(self, steps: int = 5) -> None:
        super().__init__()
        self.steps = steps
        self.length = nn.Parameter(torch.ones(1))

    def kernel(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x / self.length, y / self.length
        squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2)
        return torch.exp((x @ y.transpose(-1, -2) - squares / 2).clamp(max=0))

    def forward(
        self, x: torch.Tensor, right: torch.Tensor, new: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        matrix = self.kernel(x, x)
        found = torch.zeros_like(right)
        rest = way = right
        norm = rest.square().sum(-2, keepdim=True)
        for _ in range(self.steps):
            image = matrix @ way + 0.1 * way
            step = norm / (way * image).sum(-2, keepdim=True)
            found, rest = found + step * way, rest - step * image
            before, norm = norm, rest.square().sum(-2, keepdim=True)
            way = rest + norm / before * way
        return self.kernel(new, x) @ found, found.transpose(-1, -2) @ right


class TensorProduct(nn.Module):
    """Messages of an equivariant network as e3nn's: scalars and vectors of the senders times the
    direction's spherical harmonics (l = 0, 1), with weights for each edge from its length, and then
    linear layers that mix channels."""

    def __init__(self, channels: int = 17) -> None:
        super().__init__()
        self.channels = channels
        self.radial = mlp(8, 64, 5 * channels * channels, act=nn.SiLU, last=False)
        self.scalars = nn.Parameter(torch.randn(2 * channels, channels) / channels**0.5)
        self.vectors = nn.Parameter(torch.randn(3 * channels, channels) / channels**0.5)

    def forward(
        self, scalars: torch.Tensor, vectors: torch.Tensor, direction: torch.Tensor,
        length: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        """Return scalars [edges, channels] and vectors [edges, channels, 3]."""
        w = self.radial(length).unflatten(-1, (5, self.channels, self.channels)).unbind(1)
        y = direction.unsqueeze(1).expand_as(vectors)
        paths = (
            scalars.unsqueeze(-1), (vectors * y).sum(-1, keepdim=True),
            scalars.unsqueeze(-1) * y, vectors, torch.linalg.cross(vectors, y),
        )  # fmt: skip
        mixed = [torch.einsum("zuv,zui->zvi", *pair) for pair in zip(w, paths, strict=True)]
        out = torch.cat(mixed[:2], 1).squeeze(-1) @ self.scalars
        return out, torch.einsum("zui,uv->zvi", torch.cat(mixed[2:], 1), self.vectors)


class TriangleUpdates(nn.Module):
    """AlphaFold's triangle multiplications of pairs whose channels are innermost; an equation for
    each, along outgoing or along incoming edges."""

    def __init__(self, *products: str, size: int = 128) -> None:
        super().__init__()
        self.products = products
        count = len(products)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2 * count))
        self.both = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(count))
        self.gates = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(count))
        self.outs = nn.ModuleList(nn.Linear(size, size) for _ in range(count))
        self.gate = nn.ModuleList(nn.Linear(size, size) for _ in range(count))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        for i, product in enumerate(self.products):
            x = self.norms[2 * i](pairs)
            a, b = (self.both[i](x) * torch.sigmoid(self.gates[i](x))).chunk(2, -1)
            found = self.outs[i](self.norms[2 * i + 1](torch.einsum(product, a, b)))
            pairs = pairs + torch.sigmoid(self.gate[i](x)) * found
        return pairs


class SequenceBlock(nn.Module):
    """The part of an Evoformer block with sequences: attention along a row with the pairs' bias,
    written out, a transition, and the mean of the outer products for the pairs."""

    def __init__(self, size: int = 256, pair: int = 128, heads: int = 8, outer: int = 32) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.norm = nn.LayerNorm(pair)
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.bias = nn.Linear(pair, heads, bias=False)
        self.gate, self.out = nn.Linear(size, size), nn.Linear(size, size)
        self.transition = mlp(size, 4 * size, size, last=False)
        self.left, self.right = nn.Linear(size, outer), nn.Linear(size, outer)
        self.mean = nn.Linear(outer * outer, pair)

    def forward(self, sequences: torch.Tensor, pairs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.norms[0](sequences)  # [B, S, L, C]
        q, k, v = (y.unflatten(-1, (self.heads, -1)) for y in self.qkv(x).chunk(3, -1))
        scores = torch.einsum("bsihc,bsjhc->bshij", q * q.shape[-1] ** -0.5, k)
        bias = self.bias(self.norm(pairs)).permute(0, 3, 1, 2).unsqueeze(1)
        weighed = torch.einsum("bshij,bsjhc->bsihc", torch.softmax(scores + bias, -1), v)
        sequences = sequences + self.out(torch.sigmoid(self.gate(x)) * weighed.flatten(-2))
        sequences = sequences + self.transition(self.norms[1](sequences))
        x = self.norms[2](sequences)
        outer = torch.einsum("bsic,bsjd->bijcd", self.left(x), self.right(x)) / x.shape[1]
        return sequences, pairs + self.mean(outer.flatten(-2))


class Molecules(nn.Module):
    """Messages along directed bonds as in chemprop: steps of 300 channels, and what each atom
    gathers, of 133 features an atom and 14 a bond."""

    def __init__(self, size: int = 300, steps: int = 2) -> None:
        super().__init__()
        self.steps = steps
        self.first = nn.Linear(133 + 14, size, bias=False)
        self.step = nn.Linear(size, size, bias=False)
        self.last = nn.Linear(133 + size, size)
        self.head = mlp(size, size, 1, last=False)

    def forward(
        self, atoms: torch.Tensor, bonds: torch.Tensor, sender: torch.Tensor, to: torch.Tensor,
        reverse: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        start = self.first(torch.cat((atoms[sender], bonds), -1))
        message = torch.relu(start)
        for _ in range(self.steps):
            gathered = self.gathered(atoms, message, to)
            message = torch.relu(start + self.step(gathered[sender] - message[reverse]))
        gathered = self.gathered(atoms, message, to)
        return self.head(torch.relu(self.last(torch.cat((atoms, gathered), -1))))

    @staticmethod
    def gathered(atoms: torch.Tensor, message: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
        return message.new_zeros(atoms.shape[0], message.shape[1]).index_add(0, to, message)


class Distances(nn.Module):
    """A layer of EGNN with odd widths: messages by the distance, and nodes and places moved by
    them."""

    def __init__(self, size: int = 75) -> None:
        super().__init__()
        self.edge = mlp(2 * size + 1, size, size, act=nn.SiLU)
        self.move = mlp(size, size, 1, act=nn.SiLU, last=False)
        self.node = mlp(2 * size, size, size, act=nn.SiLU, last=False)

    def forward(
        self, nodes: torch.Tensor, places: torch.Tensor, sender: torch.Tensor, to: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        apart = places[to] - places[sender]
        square = apart.square().sum(-1, keepdim=True)
        message = self.edge(torch.cat((nodes[to], nodes[sender], square), -1))
        moved = torch.zeros_like(places).index_add(0, to, apart * self.move(message))
        gathered = torch.zeros_like(nodes).index_add(0, to, message)
        return nodes + self.node(torch.cat((nodes, gathered), -1)), places + moved


class Fourier1d(nn.Module):
    """Layers of a Fourier neural operator in one dimension as published: the modes are the
    innermost dimension of the weights, and a complex product is four real ones."""

    def __init__(self, size: int = 64, modes: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.modes = modes
        self.lift, self.out = nn.Linear(2, size), mlp(size, 128, 1, act=nn.GELU, last=False)
        self.skips = nn.ModuleList(nn.Conv1d(size, size, 1) for _ in range(layers))
        self.weights = nn.Parameter(torch.randn(layers, 2, size, size, modes) / size)

    def mixed(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        """Return the spectrum of x, [B, C, length], times the weights, real and imaginary parts in
        the last dimension."""
        spectrum = torch.view_as_real(torch.fft.rfft(x)[..., : self.modes])
        real, imaginary = spectrum.unbind(-1)
        p, q = self.weights[layer]

        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.einsum("bim,iom->bom", a, b)

        return torch.stack((
            product(real, p) - product(imaginary, q), product(real, q) + product(imaginary, p)
        ), -1)  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lift(x).transpose(1, 2)
        for i, skip in enumerate(self.skips):
            rest = x.shape[-1] // 2 + 1 - self.modes
            whole = F.pad(self.mixed(x, i), (0, 0, 0, rest))
            x = F.gelu(torch.fft.irfft(torch.view_as_complex(whole), x.shape[-1]) + skip(x))
        return self.out(x.transpose(1, 2))


class Subspace(nn.Module):
    """Steps of a subspace iteration, as a randomised decomposition takes them: a tall matrix and
    its transpose times a few columns, and the small matrix at the end."""

    def forward(self, matrix: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for _ in range(2):
            image = matrix @ columns
            columns = F.normalize(matrix.t() @ image, dim=0)
        image = matrix @ columns
        return image, image.t() @ image


class Kalman(nn.Module):
    """A step of many Kalman filters with given gains: states of 13 numbers, observations of 6."""

    def __init__(self, state: int = 13, seen: int = 6) -> None:
        super().__init__()
        self.noise = nn.Parameter(torch.eye(state))
        self.seen_noise = nn.Parameter(torch.eye(seen))

    def forward(
        self, state: torch.Tensor, spread: torch.Tensor, motion: torch.Tensor, view: torch.Tensor,
        gain: torch.Tensor, seen: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        state = motion @ state
        spread = motion @ spread @ motion.transpose(1, 2) + self.noise
        keep = torch.eye(state.shape[1], dtype=state.dtype, device=state.device) - gain @ view
        state = state + gain @ (seen - view @ state)
        of_seen = gain @ self.seen_noise @ gain.transpose(1, 2)
        return state, keep @ spread @ keep.transpose(1, 2) + of_seen


class Ensemble(nn.Module):
    """Five small networks as one, as model-based control has them: each layer is a batched product
    with a residual added to it, in odd widths."""

    def __init__(self, members: int = 5, state: int = 57, hidden: int = 87) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(members, hidden, state) / state**0.5)
        self.inner = nn.Parameter(torch.randn(members, hidden, hidden) / hidden**0.5)
        self.down = nn.Parameter(torch.randn(members, state, hidden) / hidden**0.5)
        self.bias = nn.Parameter(torch.randn(members, 1, state))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(torch.baddbmm(residual, x, self.up.transpose(1, 2)))
        h = torch.tanh(torch.baddbmm(h, h, self.inner.transpose(1, 2)))
        return x + torch.baddbmm(self.bias, h, self.down.transpose(1, 2))


class LongAttention(nn.Module):
    """Attention to a long past, written out because its scores are capped: groups of queries share
    keys."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return [B, groups, queries, size] for q of this shape; k and v are [B, groups, past,
        size]."""
        scores = 50 * torch.tanh(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 / 50)
        return torch.softmax(scores, -1) @ v


class Heads(nn.Module):
    """The head of a language model, its weights shared by decoding steps of several batches."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.norm, self.head = nn.RMSNorm(size), nn.Linear(size, words, bias=False)

    def forward(self, *hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.head(self.norm(x)) for x in hidden)


def _heads(words: int, size: int, *batches: int, **more: Any) -> Model:
    given = [numbers(m, size) for m in batches]
    return make_record(f"head-{words}", "decode", lambda: Heads(words, size), given, **more)


def _spread(*shape: int) -> Callable[[], torch.Tensor]:
    """Symmetric positive matrices."""

    def make() -> torch.Tensor:
        x = torch.randn(*shape) / shape[-1] ** 0.5
        return x @ x.transpose(-1, -2)

    return make


_kan = make_record(
    "kan", "scientific", lambda: nn.Sequential(SplineLayer(784, 64), SplineLayer(64, 10)),
    [numbers(2000, 784)], **FLOAT32,
)  # fmt: skip
_burgers = make_record("burgers-network", "scientific", Burgers, [numbers(10_100, 2)], **FLOAT32)
_gaussian = make_record("gaussian-process", "scientific", GaussianProcess, [
    numbers(8, 1501, 7), numbers(8, 1501, 11), numbers(8, 333, 7)], **FLOAT32)  # fmt: skip
_tensor = make_record("tensor-product-messages", "scientific", TensorProduct, [
    numbers(3001, 17), numbers(3001, 17, 3), numbers(3001, 3), numbers(3001, 8)],
    **FLOAT32)  # fmt: skip
_triangles = make_record(
    "triangle-updates", "scientific",
    lambda: TriangleUpdates("bikc,bjkc->bijc", "bkic,bkjc->bijc"), [numbers(1, 384, 384, 128)],
)  # fmt: skip
_sequences = make_record("evoformer-sequences", "scientific", SequenceBlock, [
    numbers(1, 64, 200, 256), numbers(1, 200, 200, 128)])  # fmt: skip
_molecules = make_record("molecule-messages", "scientific", Molecules, [
    numbers(9500, 133), numbers(20_000, 14), below(9500, 20_000), below(9500, 20_000),
    below(20_000, 20_000)], **FLOAT32)  # fmt: skip
_fourier = make_record("fourier-operator-1d", "scientific", Fourier1d, [numbers(20, 1000, 2)],
                   **FLOAT32)  # fmt: skip

MODELS = (
    _kan,
    also(_kan, "training", train=True),
    also(_kan, "tf32", tf32=True),
    also(_burgers, "training", train=True),
    _gaussian,
    also(_gaussian, "tf32", tf32=True),
    _tensor,
    also(_tensor, "training", train=True),
    _triangles,
    also(_triangles, "tf32", **FLOAT32, tf32=True),
    make_record("triangle-multiplication", "scientific",
                lambda: TriangleUpdates("ikc,jkc->ijc"), [numbers(256, 256, 128)]),
    _sequences,
    also(_sequences, "float32", **FLOAT32),
    _molecules,
    also(_molecules, "training-tf32", train=True, tf32=True),
    make_record("distance-messages", "scientific", Distances, [
        numbers(4003, 75), numbers(4003, 3), below(4003, 30_011), below(4003, 30_011)], **FLOAT32),
    _fourier,
    also(_fourier, "training", train=True),
    make_record("subspace-iteration", "scientific", Subspace, [
        numbers(30_001, 700), numbers(700, 21)], **FLOAT32),
    make_record("kalman-filters", "scientific", Kalman, [
        numbers(4096, 13, 1), _spread(4096, 13, 13), numbers(4096, 13, 13), numbers(4096, 6, 13),
        numbers(4096, 13, 6), numbers(4096, 6, 1)], **FLOAT32),
    make_record("ensemble", "mlp", Ensemble, [numbers(5, 41, 57), numbers(5, 41, 87)], **FLOAT32),
    make_record("long-attention", "decoder", LongAttention, [
        numbers(1, 4, 2048, 128), numbers(1, 4, 16_384, 128), numbers(1, 4, 16_384, 128)]),
    make_record("long-attention-decode-float16", "decode", LongAttention, [
        numbers(4, 8, 5, 128), numbers(4, 8, 10_007, 128), numbers(4, 8, 10_007, 128)], **HALF),
    _heads(30_522, 768, 1, 8, 33),
    _heads(100_544, 6144, 2, 16),
    _heads(151_936, 3584, 4, 64),
    _heads(262_144, 2560, 1, 48),
)  # fmt: skip
