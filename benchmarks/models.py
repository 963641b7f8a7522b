"""Compile and step time of models with random weights, in each way that torch.compile offers.

    python benchmarks/models.py [--json FILE] [--seconds N] [--way-seconds N] [--layers N]
        [--written] [MODEL …]

A Llama-3-8B decoder block at prefill and at decode, BERT-base, ViT-B/16, a GPT-2 training step, a
mixture-of-experts block, an MLP of odd sizes. The first five are those of transformers and timm
where both are installed (`library_models.py`); without them, or with --written, they are the ones
written out here, in plain torch and in the same shapes. Of BERT, ViT and GPT-2 there are --layers
layers (2: the others would compile the same kernels again).
Ratios at the end: step time against DEFAULT max-autotune and against plain torch.compile,
compile time and peak memory against DEFAULT.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import torch
from measuring import MAX_AUTOTUNE, Measured, Way, diode, geomean, stock
from torch import nn

F = torch.nn.functional
QUICK = {
    "default": Way({}, stock),
    "Diode top-1": Way(MAX_AUTOTUNE, diode(top_k_configs=1)),
    "fast": Way({"fast_autotune": True}, diode(top_k_configs=1)),
}
SEARCH = {
    "DEFAULT": Way(MAX_AUTOTUNE, stock),
    "Diode top-5": Way(MAX_AUTOTUNE, diode(top_k_configs=5)),
}
WAYS = QUICK | SEARCH


class LlamaBlock(nn.Module):
    """A decoder block with grouped queries and SwiGLU; with a cache of keys and values `past`
    long it decodes one token."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, past: int, batch: int):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        shape = (batch, groups, past, self.size)
        self.register_buffer("past_k", torch.randn(shape))
        self.register_buffer("past_v", torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).view(b, s, -1, self.size).transpose(1, 2) for p in (self.q, self.k, self.v))
        if self.past_k.shape[2]:
            k, v = torch.cat((self.past_k, k), 2), torch.cat((self.past_v, v), 2)
        a = F.scaled_dot_product_attention(
            q, k, v, is_causal=not self.past_k.shape[2], enable_gqa=True
        )
        x = x + self.o(a.transpose(1, 2).reshape(b, s, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Encoder(nn.Module):
    """Layers of attention and a GELU MLP: BERT (norms after), ViT and GPT-2 (norms before)."""

    def __init__(self, width: int, heads: int, layers: int, *, before: bool, causal: bool):
        super().__init__()
        self.heads, self.before, self.causal = heads, before, causal
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                    "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
                    "norm1": nn.LayerNorm(width), "norm2": nn.LayerNorm(width),
                }
            )
            for _ in range(layers)
        )  # fmt: skip

    def attend(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = layer["qkv"](x).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return layer["out"](a.transpose(1, 2).reshape(b, s, w))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            n1, n2 = layer["norm1"], layer["norm2"]
            if self.before:
                x = x + self.attend(layer, n1(x))
                x = x + layer["down"](F.gelu(layer["up"](n2(x))))
            else:
                x = n1(x + self.attend(layer, x))
                x = n2(x + layer["down"](F.gelu(layer["up"](x))))
        return x


class Gpt2(nn.Module):
    def __init__(self, layers: int, width: int = 768, words: int = 50257):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(1024, width) * 0.02)
        self.body = Encoder(width, 12, layers, before=True, causal=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places[: tokens.shape[1]]
        logits = self.norm(self.body(x)) @ self.words.weight.t()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Vit(nn.Module):
    def __init__(self, layers: int, width: int = 768):
        super().__init__()
        self.patches = nn.Linear(3 * 16 * 16, width)
        self.body = Encoder(width, 12, layers, before=True, causal=False)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.head = nn.Linear(width, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        b = images.shape[0]
        x = images.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 1, 4, 5)
        x = torch.cat((self.first.expand(b, -1, -1), self.patches(x.reshape(b, 196, -1))), 1)
        return self.head(self.body(x)[:, 0])


class Experts(nn.Module):
    """A mixture of experts with a fixed capacity: tokens are gathered by expert, and two
    batched products work on all experts at once."""

    def __init__(self, width: int = 1024, hidden: int = 2816, experts: int = 8):
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


class OddMlp(nn.Sequential):
    def __init__(self) -> None:
        sizes = (1000, 3333, 777, 2049, 499)
        parts: list[nn.Module] = []
        for k, n in itertools.pairwise(sizes):
            parts += [nn.Linear(k, n), nn.ReLU()]
        super().__init__(*parts)


def inputs(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape, dtype=torch.bfloat16)


Recipe = tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]


def models(layers: int) -> dict[str, Recipe]:
    """By name, what makes the module and its input, on the default device."""
    return {
        "llama prefill": (lambda: LlamaBlock(4096, 32, 8, 14336, 0, 1), inputs(1, 2048, 4096)),
        "llama decode": (lambda: LlamaBlock(4096, 32, 8, 14336, 2048, 8), inputs(8, 1, 4096)),
        "bert": (
            lambda: Encoder(768, 12, layers, before=False, causal=False), inputs(16, 384, 768),
        ),
        "vit": (lambda: Vit(layers), inputs(32, 3, 224, 224)),
        "experts": (Experts, inputs(4096, 1024)),
        "odd mlp": (OddMlp, inputs(333, 1000)),
        "gpt2 training": (lambda: Gpt2(layers), lambda: torch.randint(0, 50257, (8, 1024))),
    }  # fmt: skip


def of_libraries(known: dict[str, Recipe], layers: int) -> dict[str, Recipe]:
    """The models, with the libraries' modules in place of those that are written out here."""
    import library_models

    theirs = library_models.models(layers)
    return {name: (theirs.get(name, make), given) for name, (make, given) in known.items()}


def program(
    make: Callable[[], nn.Module], make_input: Callable[[], torch.Tensor], *, train: bool
) -> measuring.Program:
    def made() -> tuple[Any, tuple[torch.Tensor, ...]]:
        torch.manual_seed(0)
        with torch.device("cuda"):
            net = make().to(torch.bfloat16)
            return net.train(train).requires_grad_(train), (make_input(),)

    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=2400)
    parser.add_argument("--way-seconds", type=float, default=120, help="limit of a compile")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--written", action="store_true", help="without library models")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    args = parser.parse_args()
    known = models(args.layers)
    if unknown := set(args.models) - set(known):
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    measuring.need_gpu()
    if not args.written and all(map(importlib.util.find_spec, ("transformers", "timm"))):
        known = of_libraries(known, args.layers)
        print("Llama, BERT, ViT and GPT-2 are those of transformers and timm.", flush=True)
    results = measuring.Results(args.json, args.seconds)
    done: dict[str, dict[str, Measured]] = {}
    measuring.warm_up(WAYS.values())
    with measuring.always(lambda: summary(list(done.values()))):
        for ways in (QUICK, SEARCH):
            for name in args.models or known:
                if results.late:
                    break
                train = "training" in name
                net = program(*known[name], train=train)
                limits = dict.fromkeys(ways, args.way_seconds)
                found = measuring.measure_ways(name, net, ways, results, train=train, limits=limits)
                done[name] = done.get(name, {}) | found


def summary(done: list[dict[str, Measured]]) -> None:
    for way in WAYS:
        both = [d for d in done if {way, "DEFAULT"} <= set(d)]
        step = [d[way].run_us / d["DEFAULT"].run_us for d in both]
        plain = [d[way].run_us / d["default"].run_us for d in done if {way, "default"} <= set(d)]
        compiling = [d["DEFAULT"].compile_s / d[way].compile_s for d in both]
        memory = [d[way].peak_bytes / max(d["DEFAULT"].peak_bytes, 1) for d in both]
        peak = geomean([m for m in memory if m > 0])
        print(
            f"{way:12s} step / DEFAULT {geomean(step):.3f}  step / default {geomean(plain):.3f}, "
            f"worst {max(plain, default=float('nan')):.3f}  "
            f"DEFAULT / compile {geomean(compiling):.2f}  peak / DEFAULT {peak:.2f}  "
            f"of {len(both)} models"
        )


if __name__ == "__main__":
    main()
