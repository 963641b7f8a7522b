"""Times FlexAttention's configs beside Inductor's default, for 200 calls.

    python benchmarks/flex_attention.py --json FILE [--seconds N] [--exhaustive] [--seed N]
    python benchmarks/flex_attention.py --plan
    python benchmarks/flex_attention.py --report FILE

The calls have heads of 64, 128 and 256 elements, grouped heads, lengths of 128 to 32,768, causal,
window, document and no masks; they are forward, backward and decoding. max-autotune benchmarks the
configs of each call (with --exhaustive also those of its EXHAUSTIVE space), and this notes the
times. Then the fastest config and the default are compiled alone and replayed in turn, with
operands that are not in the cache; that ratio is reported, since the best of many noisy times looks
too good.

The order of the calls is drawn by the seed, so that an interrupted run has a fair sample. Each row
is written to FILE at once, one JSON object a line; calls that it has are not measured again.
`flex_chooser.py` makes the table of the rows by which Diode chooses.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import measuring
import torch
from measuring import geomean, stock
from processes import Row, Rows
from replays import graph_of, in_turn_us
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

FORWARD, BACKWARD, DECODING = "forward", "backward", "decoding"
DENSE, CAUSAL, WINDOW, DOCUMENT = "dense", "causal", "window", "document"
BLOCK = 128  # rows and columns of a block of the mask, as create_block_mask has it by default
WINDOW_LENGTH = 1024
MEAN_DOCUMENT = 1500
MAX_FLOPS = 2.5e12  # of a call: some milliseconds
MAX_TOKENS = 1 << 16
OPERANDS_BYTES = 512 << 20  # of all sets of a call together: several times the cache
WORTH = 1.02
CONFIRMED = "confirmed"  # written as a row's tier: the config was timed once more
# How Inductor names each kind's kernel when it benchmarks, and the options of its configs.
NAMES = {FORWARD: "flex_attention", BACKWARD: "flex_attention_backward", DECODING: "flex_decoding"}
_ENDS = ("num_stages", "num_warps")
OPTIONS = {
    FORWARD: ("BLOCK_M", "BLOCK_N", *_ENDS),
    BACKWARD: ("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2", *_ENDS),
    DECODING: ("BLOCK_N", *_ENDS),
}

Config = tuple[int, ...]  # the values of OPTIONS of the kind, in their order


@dataclass(frozen=True)
class Family:
    """Calls that differ in batch and length. In decoding the batch is one of the family's."""

    kind: str
    head: int  # elements of a head
    dtype: str
    mask: str
    heads: int
    kv_heads: int
    batch: int | None = None  # where it decodes

    def __str__(self) -> str:
        heads = f"{self.heads}/{self.kv_heads}"
        return f"{self.kind} {self.mask} D={self.head} H={heads} {self.dtype}"


@dataclass(frozen=True)
class Problem:
    """A call with `length` tokens of queries and keys (one query in decoding)."""

    family: Family
    batch: int
    length: int

    @property
    def key(self) -> str:
        return f"{self.family} B={self.batch} L={self.length}"

    @property
    def flops(self) -> float:
        f = self.family
        queries = 1 if f.kind == DECODING else self.length
        product = 2.0 * self.batch * f.heads * queries * self.length * f.head
        share = 1.0  # of queries × keys that is computed, about
        if f.mask != DENSE:
            reach = {WINDOW: WINDOW_LENGTH + BLOCK, DOCUMENT: MEAN_DOCUMENT / 2}
            share = min(0.5, reach.get(f.mask, self.length) / self.length)
            share += 0.5 * BLOCK / self.length
        return (5 if f.kind == BACKWARD else 2) * product * share

    def row(self, config: Any, tier: int | str, **more: Any) -> Row:
        fields = {**asdict(self.family), "batch": self.batch, "length": self.length}
        return {**fields, "problem": self.key, "config": config, "tier": tier, **more}


def plan() -> list[Problem]:
    """The 200 calls, the same each time."""
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
    """`count` calls of a family, with lengths spread from 128 to 32,768."""
    if family.kind == DECODING:
        yield from (Problem(family, family.batch or 1, length) for length in (1024, 4096, 32768))
        return
    rng = random.Random(str(family))
    for i in range(count):
        length = BLOCK * max(1, round(2 ** (8 * (i + rng.random()) / count)))
        batches = [b for b in (1, 2, 4, 8, 16, 32, 64) if b * length <= MAX_TOKENS]
        fit = [b for b in batches if Problem(family, b, length).flops <= MAX_FLOPS]
        yield Problem(family, rng.choice(fit or [1]), length)


@functools.cache
def documents(length: int) -> torch.Tensor:
    """The number of each token's document; the same each time."""
    rng = random.Random(length)
    ids: list[int] = []
    while len(ids) < length:
        ids += [ids[-1] + 1 if ids else 0] * max(16, int(rng.expovariate(1 / MEAN_DOCUMENT)))
    return torch.tensor(ids[:length], dtype=torch.int32)


def block_mask(problem: Problem, device: str) -> Any:
    """The mask of the call's blocks; None where it has none."""
    mask, length = problem.family.mask, problem.length
    if mask == DENSE:
        return None
    ids = documents(length).to(device) if mask == DOCUMENT else None

    def is_kept(b: Any, h: Any, m: Any, n: Any) -> Any:
        if mask == WINDOW:
            return (m >= n) & (m - n < WINDOW_LENGTH)
        if ids is not None:
            return (m >= n) & (ids[m] == ids[n])
        return m >= n

    return create_block_mask(is_kept, None, None, length, length, device=device)


def operands(problem: Problem, device: str, total_bytes: int) -> list[tuple[torch.Tensor, ...]]:
    """Sets of (query, key, value) of `total_bytes` together, two at least."""
    f = problem.family
    rows = 1 if f.kind == DECODING else problem.length
    query = (problem.batch, f.heads, rows, f.head)
    key = (problem.batch, f.kv_heads, problem.length, f.head)
    dtype = getattr(torch, f.dtype)
    size = dtype.itemsize * (math.prod(query) + 2 * math.prod(key))
    return [
        tuple(
            torch.randn(shape, device=device, dtype=dtype, requires_grad=f.kind == BACKWARD)
            for shape in (query, key, key)
        )
        for _ in range(max(2, min(64, total_bytes // size)))
    ]


def compiled(
    problem: Problem, mask: Any, options: dict[str, Any], **kernel: Any
) -> Callable[..., Any]:
    """A step of the call, with Inductor's options and the kernel's. It is compiled when it is first
    called; of a call backward it also computes the gradients."""
    f = problem.family
    prefix = "bwd_" if f.kind == BACKWARD else "fwd_"
    given = {f"{prefix}{name}": value for name, value in kernel.items()} or None

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(
            q, k, v, block_mask=mask, enable_gqa=f.heads != f.kv_heads, kernel_options=given
        )

    call = torch.compile(attention, options=options, dynamic=False, fullgraph=True)

    def step(*tensors: torch.Tensor) -> Any:
        out = call(*tensors)
        if f.kind == BACKWARD:
            return torch.autograd.grad(out, tensors, torch.ones_like(out))
        return out

    return step


@contextlib.contextmanager
def benchmarked(kind: str, found: dict[Config, float]) -> Iterator[None]:
    """Notes in `found` the microseconds of the configs that Inductor benchmarks for kernels of the
    kind; infinite where one could not be run."""
    from torch._inductor.select_algorithm import get_algorithm_selector_cache

    def save(timings: dict[Any, float], name: str, *_: Any) -> None:
        if name == NAMES[kind]:
            for choice, ms in timings.items():
                found[config_of(kind, choice.description)] = 1e3 * ms

    savers = get_algorithm_selector_cache().feedback_saver_fns
    savers.append(save)
    try:
        yield
    finally:
        savers.remove(save)


def config_of(kind: str, description: str) -> Config:
    """The config in Inductor's description of a choice, such as "BLOCK_M=128, …, num_warps=4"."""
    values = dict(re.findall(r"(\w+)=(\w+)", description))
    return tuple(int(values[name]) for name in OPTIONS[kind])


def default_config(family: Family) -> Config:
    """The config that Inductor takes without max-autotune on the present GPU."""
    from dataclasses import astuple

    from torch._inductor import config
    from torch._inductor.virtualized import V

    asked = {
        BACKWARD: V.choices.get_flex_attention_bwd_configs,
        DECODING: V.choices.get_flex_decode_configs,
    }.get(family.kind, V.choices.get_flex_attention_fwd_configs)
    with config.patch(max_autotune=False):
        return astuple(asked(family.head, getattr(torch, family.dtype), "cuda")[0])[
            : len(OPTIONS[family.kind])
        ]


def measure(problem: Problem, spaces: Sequence[str]) -> Iterator[Row]:
    """The rows of a call: of each config that max-autotune benchmarks in these search spaces, and
    of the fastest one, timed once more."""
    from torch._inductor.utils import fresh_cache

    kind = problem.family.kind
    default = default_config(problem.family)
    mask = block_mask(problem, "cuda")
    first, *_ = operands(problem, "cuda", 0)
    times: dict[Config, float] = {}
    for tier, space in enumerate(spaces, 1):
        found: dict[Config, float] = {}
        torch._dynamo.reset()
        options = {"max_autotune": True, "max_autotune_flex_search_space": space}
        with stock(), fresh_cache(), benchmarked(kind, found):
            compiled(problem, mask, options)(*first)
        times = found | times
        for config, us in found.items():
            if math.isfinite(us) and default in found:
                yield problem.row(config, tier, us=us, default_us=found[default])
            else:
                yield problem.row(config, tier, error="Inductor could not run it")
    if not (best := min(times, key=times.__getitem__, default=default)) or best == default:
        return
    sets = operands(problem, "cuda", OPERANDS_BYTES)
    torch._dynamo.reset()
    with stock():
        graphs = {
            config: graph_of(
                compiled(problem, mask, {}, **dict(zip(OPTIONS[kind], config, strict=True))), sets
            )
            for config in (default, best)
        }
    us = {config: found_us for config, (found_us, _) in in_turn_us(graphs).items()}
    yield problem.row(best, CONFIRMED, us=us[best], default_us=us[default])


def report(rows: Sequence[Row]) -> None:
    """Prints how much faster the best configs are than the default."""
    for kind in (FORWARD, BACKWARD, DECODING):
        best: dict[str, dict[bool, float]] = {}
        for row in (r for r in rows if r["kind"] == kind):
            of = best.setdefault(row["problem"], {})
            if "us" in row:
                again, ratio = row["tier"] == CONFIRMED, row["default_us"] / row["us"]
                of[again] = ratio if again else max(of.get(False, 1.0), ratio)
        for what, again in (("as first timed", False), ("timed once more", True)):
            ratios = [of.get(again, 1.0) for of in best.values()]
            if ratios:
                print(
                    f"{kind}, the best config {what}: {geomean(ratios):.3f} × the default's speed,"
                    f" over {WORTH} for {sum(r > WORTH for r in ratios) / len(ratios):.0%}, at most"
                    f" {max(ratios):.2f} ({len(ratios)} calls)"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the rows; it is continued")
    parser.add_argument("--seconds", type=float, default=3600, help="time limit to begin a call")
    parser.add_argument("--exhaustive", action="store_true", help="also the EXHAUSTIVE space")
    parser.add_argument("--seed", type=int, default=0, help="of the calls' order")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--report", type=Path, metavar="FILE")
    args = parser.parse_args()
    problems = plan()
    random.Random(args.seed).shuffle(problems)
    if args.plan:
        for problem in problems:
            print(f"{problem.key}  {problem.flops / 1e9:.1f} GFLOP")
        return
    if args.report:
        report(Rows(args.report).rows)
        return
    measuring.need_gpu()
    rows = Rows(args.json, args.seconds)
    done = {row["problem"] for row in rows.rows}
    spaces = ("DEFAULT", "EXHAUSTIVE") if args.exhaustive else ("DEFAULT",)
    with measuring.always(lambda: report(rows.rows)):
        for problem in problems:
            if problem.key in done:
                continue
            if rows.late:
                break
            try:
                for row in measure(problem, spaces):
                    rows.add(row)
            except Exception as error:  # noqa: BLE001  # the other calls are worth having
                print(f"{problem.key}: {error!r}"[:300], file=sys.stderr, flush=True)
                rows.add(problem.row(None, 0, error=repr(error)[:300]))
            print(problem.key, flush=True)
    measuring.leave()


if __name__ == "__main__":
    main()
