"""How often Diode's choice is slower than the kernel that plain torch.compile calls, and what it
costs to avoid that.

    python benchmarks/never_slower.py [MODEL]

It uses measured times of the products of real layers (datasets/nvidia-h200/real-layers-…). For each
product there are the library's kernels, the four that `gemm@6` predicted to be fastest, and the one
that it predicted to be fastest in max-autotune's DEFAULT space. The margins of
diode_engine/models/preference.py were chosen on one half of the families of layers, by name, and
are judged on the other half. The reference is the model's own order, without margins. There is also
a row by the rule for models without members. Then it prints, by type and for both halves, what
other margins would do (where the model is sure, where it is less sure, and of its members), because
a model of another precision needs others, and what other least confidences would do. Then come
held-out problems of the other datasets of directly launched kernels. At the end it prints how far
the times of float32 kernels are from the predictions: of those that ptxas may spill
(`core/resources.py`), and of the others.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.resources import spills_erratically
from diode_engine.core.table import TimingTable
from diode_engine.models.predictor import Predictor
from diode_engine.models.preference import SURE, Policy, chosen, plain_library_call
from diode_engine.problems.splits import split
from diode_engine.registry import load_predictor
from diode_engine.store import read_dataset

FOLDER = Path(__file__).parents[1] / "datasets" / "nvidia-h200"
LAYERS = FOLDER / "real-layers-2026-11-22.packed.zst"
FAMILIES = Path(__file__).parent / "results" / "real-layers-2026-11-22.json"
SLOWER = 1.05
MARGINS = (1.0, 1.02, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09, 1.1, 1.12, 1.15, 1.2, 1.25, 1.3)
CONFIDENCES = (0.0, 0.2, 0.3, 0.4, 0.5)
NO_FAMILY = "odd"  # sizes that were drawn: each is a family of its own
Rule = tuple[str, float]  # a rule, and its margin or least confidence
COMPILE, WHOLE, OWN = "with margins", "of the whole", "without"
BY_SURE = "another margin where the model is sure"
BY_UNSURE = "another margin where the model is less sure"
BY_LEAST = "another margin of the members"
BY_CONFIDENCE = "the margins with another least confidence"


class Result(NamedTuple):
    """The speed of a choice divided by that of the library's kernel, and its efficiency (the best
    measured time divided by the choice's)."""

    speed: float
    efficiency: float


class Case(NamedTuple):
    """The results on a problem, by rule: what a compile takes (COMPILE), what it would take if the
    model had no members (WHOLE), the model's own order (OWN), and others."""

    problem: Problem
    results: dict[str | Rule, Result]


def cases(table: TimingTable, model: Predictor) -> Iterator[Case]:
    table = table.take(table.failure == 0)
    order = np.argsort(table.problem, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(table.problem[order])) + 1):
        problem = table.problems[table.problem[rows[0]]]
        candidates = [table.candidates[i] for i in table.candidate[rows]]
        ranking, us = model.rank(problem, candidates), table.time_us[rows]
        library = plain_library_call(candidates)
        if not np.isfinite(ranking.predicted_us[library]).any():
            continue
        policy = Policy.of(problem, candidates, ranking.confidence, ranking.members)
        whole = Policy.of(problem, candidates, ranking.confidence)
        policies = {COMPILE: policy, WHOLE: whole}
        sure = (ranking.confidence or 0) >= SURE
        for margin in MARGINS:
            other = replace(policy, margin=margin)
            policies[BY_SURE, margin] = other if sure else policy
            policies[BY_UNSURE, margin] = policy if sure else other
            policies[BY_LEAST, margin] = replace(policy, margin_of_members=margin)
        for least in CONFIDENCES:
            enough = Policy.of(problem, candidates, None).sure
            enough &= (ranking.confidence or 0) >= least
            policies[BY_CONFIDENCE, least] = replace(policy, sure=enough)
        costs = ranking.predicted_us[None]
        taken = {rule: us[chosen(costs, each)[0][0]] for rule, each in policies.items()}
        taken[OWN] = us[ranking.order[0]]
        best, plain = us.min(), us[library].min()
        yield Case(
            problem, {rule: Result(plain / each, best / each) for rule, each in taken.items()}
        )


def show(name: str, found: list[Case]) -> None:
    print(name)
    for rule in (COMPILE, WHOLE, OWN):
        speeds, efficiencies = np.array([case.results[rule] for case in found]).T
        slower = int((speeds * SLOWER < 1).sum())
        print(
            f"  {rule:15} {geomean(speeds):.4f} × the library's speed, slower by over 5 % on "
            f"{slower} of {len(speeds)} ({slower / len(speeds):.2%}), at worst "
            f"{1 / speeds.min():.2f} times as slow; efficiency {geomean(efficiencies):.4f}"
        )


def show_others(name: str, found: list[Case]) -> None:
    """Prints the results of other margins and least confidences, by type."""
    for what, values in (
        (BY_SURE, MARGINS), (BY_UNSURE, MARGINS), (BY_LEAST, MARGINS), (BY_CONFIDENCE, CONFIDENCES)
    ):  # fmt: skip
        print(f"{name}, {what}: efficiency, and slower than the library's by over 5 %")
        for each in sorted({kind(c.problem).split(",")[0] for c in found}):
            some = [c.results for c in found if kind(c.problem).startswith(each)]
            cells = []
            for value in values:
                speed, efficiency = np.array([results[what, value] for results in some]).T
                slower = (speed * SLOWER < 1).mean()
                cells.append(f"{value}: {geomean(efficiency):.4f} {slower:.2%}")
            print(f"  {each} ({len(some)})  " + "  ".join(cells))


def geomean(values: np.ndarray) -> float:
    return float(np.exp(np.log(values).mean()))


def show_spilling(tables: list[TimingTable], model: Predictor) -> None:
    """Prints how many timings in float32 without TF32 are over twice the prediction."""
    slower: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for table in tables:
        for i, problem in enumerate(table.problems):
            if problem.dtype != "float32" or problem.allow_tf32:
                continue
            rows = table.take((table.problem == i) & (table.failure == 0))
            candidates = [table.candidates[j] for j in rows.candidate]
            times = rows.time_us / model.predict_us(problem, candidates)
            erratic = spills_erratically(problem, candidates)
            for may in slower:
                slower[may].append(times[(erratic == may) & np.isfinite(times)])
    for may, name in ((True, "float32 kernels that may spill"), (False, "other float32 kernels")):
        times = np.concatenate(slower[may])
        print(
            f"{name}: {(times > 2).mean():.1%} of {len(times):,} timings took over twice the "
            f"prediction, at worst {times.max():.0f} times"
        )


def kind(problem: Problem) -> str:
    dtype = "tf32" if problem.allow_tf32 else str(problem.dtype)
    return f"{'float32' if dtype == 'float32' else 'TF32' if dtype == 'tf32' else 'half'}, " + (
        "in batches" if problem.op.batched else "not in batches"
    )


def main() -> None:
    model = Predictor.load(Path(sys.argv[1])) if len(sys.argv) > 1 else load_predictor(H200)
    family = {key: name for name, keys in json.loads(FAMILIES.read_text()).items() for key in keys}

    def tuned(problem: Problem) -> bool:
        name = family[problem.key[:10]]
        digest = hashlib.sha256((str(problem) if name == NO_FAMILY else name).encode()).hexdigest()
        return int(digest, 16) % 2 == 0

    layers = read_dataset(LAYERS)
    found = list(cases(layers, model))
    show(
        "real layers, the families that the margins were chosen on",
        [c for c in found if tuned(c.problem)],
    )
    judged = [c for c in found if not tuned(c.problem)]
    show("real layers, the other families", judged)
    for each in sorted({kind(c.problem) for c in judged}):
        show(f"  of these {each}", [c for c in judged if kind(c.problem) == each])
    show_others(
        "real layers, the families that the margins were chosen on",
        [c for c in found if tuned(c.problem)],
    )
    show_others("real layers, the other families", judged)
    show("real layers, all", found)
    others = [read_dataset(file) for file in sorted(FOLDER.glob("gemm-direct-*.zst"))]
    held = [
        case
        for table in others
        for case in cases(split(table, model.manifest.held_out_by)[1], model)
    ]
    show("held-out problems of the other datasets", held)
    show_spilling([*others, layers], model)


if __name__ == "__main__":
    main()
