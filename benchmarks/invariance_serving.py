"""The decoder of batch_invariance.py, which is served in batches of several sizes."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from invariance_tasks import DEVICE, OPTION, TUNED, compiled
from processes import Row
from replays import graph_of, in_turn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from zoo_measuring import Gpu

HEADS, GROUPS, HEAD, HIDDEN, INNER = 32, 8, 128, 4096, 14336
LAYERS, WORDS = 4, 32000
PROMPTS, LENGTH, NEW = 1000, 64, 32  # prompts, and the tokens of each and of its completion
SERVED = (8, 32, 128)  # prompts in a batch
TIMED = (1, 8, 32, 128)
SECONDS = 0.3
PLAIN = {"triton.autotune_pointwise": False}
# By name: Inductor's options, and whether attention is memory-efficient; else it is torch's choice.
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "plain": (PLAIN, False),
    "diode": (TUNED, False),
    "invariant": ({**TUNED, OPTION: True}, True),
}
Decoded = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def draw(*size: int) -> torch.Tensor:
    return torch.randn(size, device=DEVICE, dtype=torch.bfloat16)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


class Block(torch.nn.Module):
    """A block of the sizes of Llama 3 8B with a norm of each query's and key's head, as Qwen 3 has
    it. Keys and values of earlier tokens are given."""

    def __init__(self, *, efficient: bool) -> None:
        super().__init__()
        self.efficient = efficient
        sizes = {
            "qkv": ((HEADS + 2 * GROUPS) * HEAD, HIDDEN), "o": (HIDDEN, HEADS * HEAD),
            "up": (2 * INNER, HIDDEN), "down": (HIDDEN, INNER),
        }  # fmt: skip
        for name, (n, k) in sizes.items():
            self.register_buffer(name, draw(n, k) / math.sqrt(k))
        for name, size in (("before", HIDDEN), ("after", HIDDEN), ("head", HEAD)):
            self.register_buffer(name, torch.rand(size, device=DEVICE, dtype=torch.bfloat16))

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The block's result, and all keys and values."""
        batch, length, _ = x.shape
        qkv = functional.linear(rms_norm(x, self.before), self.qkv).view(batch, length, -1, HEAD)
        q, k, v = (y.transpose(1, 2) for y in qkv.split((HEADS, GROUPS, GROUPS), 2))
        q, k = rms_norm(q, self.head), rms_norm(k, self.head)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        k, v = (y.repeat_interleave(HEADS // GROUPS, 1) for y in (keys, values))
        efficient = sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)
        with efficient if self.efficient else contextlib.nullcontext():
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + functional.linear(out.transpose(1, 2).reshape(batch, length, -1), self.o)
        gate, up = functional.linear(rms_norm(x, self.after), self.up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, self.down), keys, values


class Decoder(torch.nn.Module):
    """Blocks between an embedding and a head. It sees the last LENGTH tokens."""

    def __init__(self, *, efficient: bool) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(efficient=efficient) for _ in range(LAYERS))
        self.register_buffer("words", draw(WORDS, HIDDEN))
        self.register_buffer("head", draw(WORDS, HIDDEN))
        self.register_buffer("last", torch.rand(HIDDEN, device=DEVICE, dtype=torch.bfloat16))

    def forward(self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Decoded:
        """The next token [batch, 1] after the tokens [batch, length], and the new keys and
        values [batch, layer, head, token, size]."""
        x, kept = self.words[tokens], []
        for number, block in enumerate(self.blocks):
            x, *both = block(x, keys[:, number], values[:, number])
            kept.append([y[:, :, -LENGTH:] for y in both])
        logits = functional.linear(rms_norm(x[:, -1], self.last), self.head)
        keys, values = (torch.stack(each, 1) for each in zip(*kept, strict=True))
        return logits.argmax(-1, keepdim=True), keys, values


Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Decoded]


def serve() -> Iterator[Row]:
    """By way, the prompts with one completion in all batches."""
    with Gpu().alone():
        prompts = drawn_prompts()
        for way, step in compiled_decoders():
            yield {"way": way, **compare_completions(step, prompts, SERVED)}


def time_serving() -> Iterator[Row]:
    """By batch, the tokens a second of each way."""
    with Gpu().alone():
        prompts, steps = drawn_prompts(), dict(compiled_decoders())
        for batch in TIMED:
            states = {way: started(step, prompts[:batch]) for way, step in steps.items()}
            graphs = {way: graph_of(step, [states[way]]) for way, step in steps.items()}
            us = in_turn(graphs, 7, SECONDS)
            rates = {way: batch / statistics.median(each) * 1e6 for way, each in us.items()}
            yield {"batch": batch, "tokens_per_s": rates}


def drawn_prompts() -> torch.Tensor:
    generator = torch.Generator(DEVICE).manual_seed(0)
    return torch.randint(WORDS, (PROMPTS, LENGTH), device=DEVICE, generator=generator)


def compiled_decoders() -> Iterator[tuple[str, Step]]:
    """The decoder in each way, with the same weights."""
    for way, (options, efficient) in WAYS.items():
        torch.manual_seed(0)
        yield way, compiled(Decoder(efficient=efficient), options, dynamic=None)


def compare_completions(step: Step, prompts: torch.Tensor, batches: Sequence[int]) -> Row:
    """Completes the prompts in batches of each size, whose members are drawn anew, and counts those
    with the same completion in all."""
    found = []
    for batch in batches:
        generator = torch.Generator().manual_seed(batch)
        order = torch.randperm(len(prompts), generator=generator).to(prompts.device)
        completed = torch.cat([complete(step, prompts[some]) for some in order.split(batch)])
        found.append(completed[order.argsort()])
    single = torch.stack([(each == found[0]).all(1) for each in found]).all(0)
    return {"prompts": len(prompts), "batches": list(batches), "single": int(single.sum())}


def complete(step: Step, prompts: torch.Tensor) -> torch.Tensor:
    """The NEW tokens after each prompt."""
    state = started(step, prompts)
    tokens = [state[0]]
    while len(tokens) < NEW:
        state = step(*_dynamic(state))
        tokens.append(state[0])
    return torch.cat(tokens, 1)


def started(step: Step, prompts: torch.Tensor) -> Decoded:
    """What the decoder returns for the prompts."""
    none = torch.empty(
        (len(prompts), LAYERS, GROUPS, 0, HEAD), device=prompts.device, dtype=torch.bfloat16
    )
    return step(*_dynamic((prompts, none, none.clone())))


def _dynamic(tensors: Decoded) -> Decoded:
    """The tensors, with a batch of any size from 2 on."""
    for x in tensors if len(tensors[0]) > 1 else ():
        torch._dynamo.maybe_mark_dynamic(x, 0)
    return tensors
