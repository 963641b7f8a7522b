"""Times calls on a GPU by replaying CUDA graphs of them, several in turn.

It imports no Diode: what is measured without Diode must not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

ROUNDS = 9


@dataclass(frozen=True)
class Replay:
    """A program that is timed: `run` makes `calls` calls of it."""

    run: Callable[[], Any]
    calls: int = 1


def graph_of(call: Callable[..., Any], sets: Sequence[tuple[Any, ...]]) -> Replay:
    """A CUDA graph of one call for each of the sets of operands, warmed up on a side stream. Where
    the sets together are larger than the cache, each call finds its operands outside of it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for operands in (*sets[:2], *sets[:2]):
            call(*operands)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for operands in sets:
            call(*operands)
    return Replay(graph.replay, len(sets))


def in_turn(ways: Mapping[str, Replay], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of a call in each way, round by round, for `seconds` a way. All ways take turns
    in each round, so that changes of the clock affect them alike, and no time of the host counts
    where a way is a graph."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(way: Replay, repeats: int) -> float:
        start.record()
        for _ in range(repeats):
            way.run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / repeats / way.calls

    for way in ways.values():
        once(way, 2)
    repeats = {
        name: max(1, min(1000, int(seconds * 1e6 / rounds / (once(way, 3) * way.calls))))
        for name, way in ways.items()
    }
    us: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            us[name].append(once(way, repeats[name]))
    return us
