"""Which candidates of a problem are timed, and in which order."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from diode_engine.problem import Candidate, Problem, Scalar

# Neighbours are looked for around this many of the fastest candidates.
ELITE = 6
MOST_ACCUMULATORS = 128  # 32-bit registers a thread; beyond that a kernel spills


class CandidatePlan:
    """Hands out the candidates of one problem, batch by batch.

    Without a budget: all that Inductor offers. With one: first what every user meets (ATen,
    decompose_k, the DEFAULT space), then half of the rest of the budget spread at random over
    the plausible space, and then neighbours of the fastest so far, so that the region where
    the best kernel lies is known best.
    """

    def __init__(
        self,
        problem: Problem,
        offered: Sequence[Candidate],
        default: Collection[Candidate],
        *,
        done: Collection[str] = (),
        budget: int | None = None,
        seed: int = 0,
    ) -> None:
        """`done` holds keys of candidates that have been timed before; they count."""
        self._problem = problem
        self._random = random.Random(f"{seed}/{problem.key}")
        self._times: dict[Candidate, float] = {}
        first = [c for c in offered if c in default or "BLOCK_M" not in c.config]
        rest = [c for c in offered if c not in set(first)]
        if budget is not None:
            rest = [c for c in rest if plausible(problem, c)]
            self._random.shuffle(rest)
        done = set(done)
        known = sum(c.key in done for c in offered)
        self._first = [c for c in first if c.key not in done]
        self._rest = [c for c in rest if c.key not in done]
        self._places = np.array([_place(c) for c in self._rest]).reshape(-1, 6)
        self._open = np.ones(len(self._rest), dtype=bool)
        left = len(self._first) + len(self._rest)
        if budget is not None:
            left = min(left, max(0, budget - known))
        self.left = left
        spread = max(0, left - len(self._first))
        self._until_neighbours = len(self._first) + (spread + 1) // 2

    def record(self, candidate: Candidate, time_us: float | None) -> None:
        """What timing it gave; None where it failed."""
        if time_us is not None:
            self._times[candidate] = time_us

    def next_batch(self, size: int) -> list[Candidate]:
        """The next `size` candidates or fewer; none when the plan is done."""
        batch: list[Candidate] = []
        while len(batch) < size and self.left > 0:
            batch.append(self._next())
            self.left -= 1
            self._until_neighbours -= 1
        return batch

    def _next(self) -> Candidate:
        if self._first:
            return self._first.pop(0)
        chosen = int(np.argmax(self._open))  # the first one left of a shuffled list
        if self._until_neighbours <= 0:
            elite = sorted(self._times, key=self._times.__getitem__)
            near = [_place(c) for c in elite if "BLOCK_M" in c.config][:ELITE]
            if near:
                steps = np.abs(self._places[:, None, :] - np.array(near)[None]).sum(axis=2)
                steps += 0.5 * np.arange(len(near))  # the fastest has its neighbours first
                chosen = int(np.argmin(np.where(self._open, steps.min(axis=1), np.inf)))
        self._open[chosen] = False
        return self._rest[chosen]


def plausible(problem: Problem, candidate: Candidate) -> bool:
    """False for kernels that are known to spill or to idle, whatever the problem: too many
    accumulators a thread, or more threads than a tile has work for."""
    config = candidate.config
    tile = _number(config, "BLOCK_M") * _number(config, "BLOCK_N")
    warps = _number(config, "num_warps")
    if tile / (32 * warps) > MOST_ACCUMULATORS:
        return False
    return not (warps >= 8 and tile < 1024)


def _number(config: Mapping[str, Scalar], name: str) -> int:
    value = config.get(name, 1)
    return value if isinstance(value, int) else 1


def _place(candidate: Candidate) -> npt.NDArray[np.float64]:
    """[6] coordinates in which neighbours are one apart: doublings of a block or of the
    warps, two stages, another template."""
    c = candidate.config
    sizes = [_number(c, name) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")]
    template = float(candidate.template == "triton::mm_persistent_tma")
    return np.array([*np.log2(sizes), 0.5 * _number(c, "num_stages"), template])
