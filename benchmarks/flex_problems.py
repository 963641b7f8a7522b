"""The problems of flex_attention.py: the calls of FlexAttention, their tensors, and the blocks of
their masks."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

FORWARD, BACKWARD, DECODING = "forward", "backward", "decoding"
DENSE, CAUSAL, WINDOW, DOCUMENT = "dense", "causal", "window", "document"
BLOCK = 128  # rows and columns of a block of the mask, as create_block_mask has it by default
DENSE_BLOCK = 1 << 30  # flex_attention's for a call without a mask
WINDOW_LENGTH = 1024
MEAN_DOCUMENT = 1500
MAX_FLOPS = 2.5e12  # of a problem: some milliseconds
MAX_TOKENS = 1 << 16

Shape = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True)
class Family:
    """Calls that share kernels: batch and length are symbols in them (in decoding only the length
    is, because FlexDecoding needs a constant batch). With `fixed`, (batch, length), these are
    constants, as in a compile without dynamic shapes."""

    kind: str
    head: int  # elements of a head
    dtype: str
    mask: str
    heads: int
    kv_heads: int
    batch: int | None = None  # where it decodes
    fixed: tuple[int, int] | None = None

    @property
    def block(self) -> int:
        return DENSE_BLOCK if self.mask == DENSE else BLOCK

    def __str__(self) -> str:
        heads = f"{self.heads}/{self.kv_heads}"
        return f"{self.kind} {self.mask} D={self.head} H={heads} {self.dtype}"


@dataclass(frozen=True)
class Problem:
    """A call, with so many tokens of queries and keys (one query, in decoding)."""

    family: Family
    batch: int
    length: int

    @property
    def key(self) -> str:
        return f"{self.family} B={self.batch} L={self.length}"

    def __str__(self) -> str:
        return self.key

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.family), "batch": self.batch, "length": self.length}


def density(mask: str, length: int) -> float:
    """The share of queries × keys that is computed, about."""
    if mask == DENSE:
        return 1.0
    reach = {WINDOW: WINDOW_LENGTH + BLOCK, DOCUMENT: MEAN_DOCUMENT / 2}.get(mask, length)
    return min(0.5, reach / length) + 0.5 * BLOCK / length


def flops(problem: Problem) -> float:
    f = problem.family
    queries = 1 if f.kind == DECODING else problem.length
    product = 2.0 * problem.batch * f.heads * queries * problem.length * f.head
    return (5 if f.kind == BACKWARD else 2) * product * density(f.mask, problem.length)


def plan() -> list[Problem]:
    """The 200 problems, the same each time."""
    masks = (CAUSAL, WINDOW, DOCUMENT, DENSE)
    heads = {64: ((16, 16), (32, 8)), 128: ((32, 8), (16, 16)), 256: ((16, 8),)}
    forward = [
        Family(FORWARD, head, "bfloat16", mask, *some)
        for head, each in heads.items() for some in each for mask in masks
    ] + [
        Family(FORWARD, head, "float16", mask, *some)
        for head, some in ((64, (12, 12)), (128, (32, 32))) for mask in (CAUSAL, DENSE)
    ]  # fmt: skip
    backward = [
        Family(BACKWARD, head, "bfloat16", mask, *some)
        for head, some in ((64, (16, 16)), (128, (32, 8))) for mask in (CAUSAL, DENSE)
    ]  # fmt: skip
    decoding = [
        Family(DECODING, head, "bfloat16", DENSE, *some, batch)
        for head, some, batch in (
            (128, (32, 8), 1), (128, (32, 8), 16), (128, (32, 8), 64), (64, (16, 16), 8),
            (64, (32, 8), 32), (256, (16, 8), 4),
        )
    ]  # fmt: skip
    problems = [
        problem
        for families, count in ((forward, 7), (backward, 4), (decoding, 3))
        for family in families
        for problem in _sizes(family, count)
    ]
    return problems[:200]


def _sizes(family: Family, count: int) -> Iterator[Problem]:
    """So many problems of a family, with lengths spread from 128 to 32,768."""
    if family.kind == DECODING:
        yield from (Problem(family, family.batch or 1, length) for length in (1024, 4096, 32768))
        return
    rng = random.Random(str(family))
    for i in range(count):
        length = BLOCK * max(1, round(2 ** (8 * (i + rng.random()) / count)))
        batches = [b for b in (1, 2, 4, 8, 16, 32, 64) if b * length <= MAX_TOKENS]
        fit = [b for b in batches if flops(Problem(family, b, length)) <= MAX_FLOPS]
        yield Problem(family, rng.choice(fit or [1]), length)


def shapes(family: Family, batch: Any, length: Any, blocks: Any) -> dict[str, Shape]:
    """The tensors of a call; its output (`out`) is the last. Sizes may be symbols. `blocks` is the
    number of the mask's blocks in a row."""
    dtype = getattr(torch, family.dtype)
    queries = 1 if family.kind == DECODING else length
    found: dict[str, Shape] = {
        "query": ((batch, family.heads, queries, family.head), dtype),
        "key": ((batch, family.kv_heads, length, family.head), dtype),
        "value": ((batch, family.kv_heads, length, family.head), dtype),
    }
    if family.kind == BACKWARD:
        found["attended"] = found["grad_out"] = found["query"]
        found["logsumexp"] = ((batch, family.heads, length), torch.float32)
    lists = ("kv", "q") if family.kind == BACKWARD else ("kv",)
    whole = [f"full_{side}" for side in lists if family.mask != DENSE]
    for side in [*lists, *whole]:
        found[f"{side}_num_blocks"] = ((1, 1, blocks), torch.int32)
        found[f"{side}_indices"] = ((1, 1, blocks, blocks), torch.int32)
    if family.mask == DOCUMENT:
        found["documents"] = ((length,), torch.int32)
    return found


@functools.cache
def documents(length: int) -> torch.Tensor:
    """The number of each token's document; the same each time."""
    rng = random.Random(length)
    ids: list[int] = []
    while len(ids) < length:
        ids += [ids[-1] + 1 if ids else 0] * max(16, int(rng.expovariate(1 / MEAN_DOCUMENT)))
    return torch.tensor(ids[:length], dtype=torch.int32)


def kinds_of_blocks(mask: str, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which blocks [query block, key block] are computed with the mask, and which without it."""
    count = math.ceil(length / BLOCK)
    i, j = torch.arange(count)[:, None], torch.arange(count)[None, :]
    if mask == DOCUMENT:
        ids = documents(length)
        first, last = ids[::BLOCK], ids[BLOCK - 1 :: BLOCK]
        some = (j <= i) & (first[:, None] <= last[None, :])
        whole = (j < i) & (last[:, None] == first[None, :])
    elif mask == WINDOW:
        some = (j <= i) & ((i - j) * BLOCK - (BLOCK - 1) < WINDOW_LENGTH)
        whole = (j < i) & ((i - j) * BLOCK + (BLOCK - 1) < WINDOW_LENGTH)
    else:
        some, whole = j <= i, j < i
    return some & ~whole, whole


def block_lists(family: Family, length: int) -> dict[str, torch.Tensor]:
    """The tensors of `shapes` that say which blocks are computed, on the CPU."""
    if family.mask == DENSE:
        one, zero = torch.ones(1, 1, 1, dtype=torch.int32), torch.zeros(1, 1, 1, 1).int()
        return {
            "kv_num_blocks": one, "kv_indices": zero, "q_num_blocks": one, "q_indices": zero
        }  # fmt: skip
    found: dict[str, torch.Tensor] = {}
    for prefix, blocks in zip(("", "full_"), kinds_of_blocks(family.mask, length), strict=True):
        for side, of_side in (("kv", blocks), ("q", blocks.T)):
            order = torch.argsort(of_side.int(), dim=1, descending=True, stable=True)
            found[f"{prefix}{side}_num_blocks"] = of_side.sum(1).int()[None, None]
            found[f"{prefix}{side}_indices"] = order.int()[None, None].contiguous()
    return found
