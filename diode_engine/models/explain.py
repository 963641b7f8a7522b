"""Why a model predicts that one candidate is faster than another on the same problem.

The features that differ between the two are put into groups. The part of each group in the
difference in log time is its Shapley value (Shapley, A Value for n-Person Games, 1953) with the
other candidate as the baseline (baseline Shapley: Sundararajan and Najmi, The Many Shapley Values
for Model Explanation, ICML 2020). It is the mean over all orders in which the groups could change
from one candidate's values to the other's. With few groups it is computed exactly, for any model,
and the product of the parts is the ratio of the two predicted times.

The rows in between belong to no real kernel. So a part says how the model uses a group of features,
not what would be measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.models.predictor import Predictor

# Every column that does not follow from the problem alone.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "kind of kernel": (
        "aten", "triton", "triton_tma", "decompose_k", "aten_bias_addmm", "log2_k_split",
    ),
    "tile": (
        "log2_block_m", "log2_block_n", "log2_block_k", "log2_tile", "log2_over_m",
        "log2_over_n", "log2_tile_intensity", "efficiency_m", "efficiency_n", "efficiency_k",
        "even_k",
    ),
    "waves": (
        "log2_group_m", "log2_tiles_m", "log2_tiles_n", "log2_tiles", "log2_waves",
        "log2_waves_resident", "fill", "fill_resident",
    ),
    "pipeline": (
        "stages", "log2_k_iterations", "log2_in_flight", "pipelined", "depth", "log2_loads_a",
        "log2_loads_b",
    ),
    "warps and memory on chip": (
        "log2_warps", "log2_shared", "log2_accumulator", "log2_registers",
        "blocks_per_multiprocessor", "threads_share", "shared_share", "wgmma", "spilled",
    ),
    "roofline": (
        "log2_compute_us", "log2_dram_us", "log2_l2_us", "log2_latency_us", "log2_issue_us",
        "log2_extra_us", "log2_base_us", "compute_share", "dram_share", "l2_share", "latency_share",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """`factors` has, for each group, the factor between the baseline's predicted time and the
    candidate's: below 1 where the group makes the candidate faster. The largest effects come first.
    Times are in microseconds."""

    candidate_us: float
    baseline_us: float
    factors: Mapping[str, float]


def explain(
    predictor: Predictor, problem: Problem, candidate: Candidate, baseline: Candidate
) -> Explanation | None:
    """Why the model's times of the candidate and the baseline differ; None where it predicts no
    time for one of them."""
    us = predictor.predict_us(problem, (candidate, baseline))
    if np.isnan(us).any():
        return None
    pair = features.matrix(
        (problem,), (candidate, baseline), np.zeros(2, np.intp), np.arange(2), predictor.hardware
    )
    group_of = {name: g for g, names in enumerate(GROUPS.values()) for name in names}
    column = np.array([group_of.get(name, -1) for name in features.NAMES])
    # Row s has the candidate's values of the groups whose bits are set in s.
    n = len(GROUPS)
    sets = np.arange(1 << n)
    taken = (sets[:, None] >> np.maximum(column, 0)) & 1 == 1
    log_us = predictor.log_us(np.where(taken, pair[0], pair[1]))
    size = np.array([s.bit_count() for s in range(1 << n)])
    factors = {}
    for g, name in enumerate(GROUPS):
        without = sets[(sets >> g) & 1 == 0]
        # How many orders have exactly these groups before g.
        orders = [math.factorial(k) * math.factorial(n - 1 - k) for k in size[without]]
        steps = log_us[without | (1 << g)] - log_us[without]
        factors[name] = math.exp(float(np.dot(orders, steps)) / math.factorial(n))
    largest_first = sorted(factors.items(), key=lambda item: -abs(math.log(item[1])))
    return Explanation(float(us[0]), float(us[1]), dict(largest_first))


def rival(ranked: Sequence[Candidate]) -> int | None:
    """The index of the candidate to compare the first of a ranking with: the best of the other
    kind (a library's kernel, or one of Inductor's own), else the second; None where there is no
    other."""
    other = (i for i, c in enumerate(ranked) if c.is_extern is not ranked[0].is_extern)
    return next(other, 1 if len(ranked) > 1 else None)
