"""Compiled functions timed without host time and with a cold cache, one after the other.

A CUDA graph for each competitor holds one call for each set of operands; the sets together are
larger than the cache. The graphs are replayed in turn, and the median round counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def graph_of(call: Callable[..., Any], sets: Sequence[tuple[Any, ...]]) -> torch.cuda.CUDAGraph:
    """A graph of one call for each of the sets of operands."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm up
        for operands in sets[:3]:
            call(*operands)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for operands in sets:
            call(*operands)
    return graph


def in_turn_us(
    graphs: Mapping[str, torch.cuda.CUDAGraph],
    calls: int,
    *,
    rounds: int = 9,
    round_us: float = 8000,
) -> dict[str, tuple[float, float]]:
    """By name, the microseconds of one of the `calls` of each graph, and how far its rounds differ
    (the longest divided by the shortest, less 1)."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(graph: torch.cuda.CUDAGraph, repeats: int) -> float:
        start.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / repeats / calls

    least = min(once(graph, 1) for graph in graphs.values())
    repeats = max(1, min(200, int(round_us / (least * calls))))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(once(graph, repeats))
    return {name: (statistics.median(t), max(t) / min(t) - 1) for name, t in times.items()}
