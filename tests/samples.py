"""Candidates, timings and models that tests make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import KernelFacts, Timing
from diode_engine.inductor.lowering.kernel_class import KernelClass, shared_classes
from diode_engine.models.network import Network

SOMEWHERE = Environment(H200, "", "", "")


def tile(
    m: int, n: int, k: int, stages: int = 3, warps: int = 4, template: str = "triton::mm",
    **more: int,
) -> Candidate:  # fmt: skip
    """A config of a Triton template."""
    config = {"GROUP_M": 8, "num_stages": stages, "num_warps": warps, **more}
    return Candidate.make(template, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, **config)


def shared_class(problem: Problem, candidate: Candidate) -> KernelClass | None:
    """The class under which the candidate is timed on the problem."""
    return shared_classes(problem, [candidate])[0]


def pairs(problems: int, candidates: int) -> tuple[np.ndarray, np.ndarray]:
    """The problem and the candidate of each row, the candidates of a problem after each other."""
    p, c = np.divmod(np.arange(problems * candidates, dtype=np.int32), np.int32(candidates))
    return p, c


def table_of(
    problems: Sequence[Problem], candidates: Sequence[Candidate], us: Any,
    environment: Environment = SOMEWHERE, failures: np.ndarray | None = None,
) -> TimingTable:  # fmt: skip
    """The timings of all `pairs`: microseconds, and codes of failures."""
    p, c = pairs(len(problems), len(candidates))
    n = len(p)
    unknown, zero = np.full(n, np.nan), np.zeros(n, np.int32)
    failure = np.zeros(n, np.uint8) if failures is None else failures.astype(np.uint8)
    return TimingTable(
        tuple(problems), tuple(candidates), (environment,), p, c, zero,
        np.asarray(us, np.float64).ravel(), unknown, unknown, zero, failure,
    )  # fmt: skip


def timing_at(table: TimingTable, row: int) -> Timing:
    """A row as a record."""
    us = (table.min_us[row], table.median_us[row], table.spread_us[row])
    code, kernel = int(table.failure[row]), None
    if table.kernel is not None and table.kernel[row, 0] >= 0:
        kernel = KernelFacts(*table.kernel[row].tolist())
    return Timing(
        *(None if np.isnan(each) else float(each) for each in us),
        repeats=int(table.repeats[row]) or None, failure=FAILURES[code - 1] if code else None,
        kernel=kernel,
    )  # fmt: skip


def weighing(weights: Mapping[str, float], bias: float = 0.0, *, residual: bool = False) -> Network:
    """A network whose answer is a weighted sum of these features; `residual` adds the base time."""
    row = np.zeros(len(features.NAMES), np.float32)
    weight = row[:, None].copy()
    for name, value in weights.items():
        weight[features.NAMES.index(name)] = value
    layer = weight, np.full(1, bias, np.float32)
    return Network(row - 50, row + 50, row, row + 1, (layer,), residual)
