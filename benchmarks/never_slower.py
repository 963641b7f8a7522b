"""How often Diode's choice is slower than the kernel that plain torch.compile calls, and what it
costs to avoid that.

    python benchmarks/never_slower.py [MODEL]

It uses measured times of the products of real layers (datasets/nvidia-h200/real-layers-…). For each
product there are the library's kernels, the four that `gemm@6` predicted to be fastest, and the one
that it predicted to be fastest in max-autotune's DEFAULT space. The margins of
diode_engine/models/preference.py were chosen on one half of the families of layers, by name, and
are judged on the other half. The reference is the model's own order, without margins. Then it
prints, by type and for both halves, what other margins would do, because a model of another
precision needs others. Then come held-out problems of the other datasets of directly launched
kernels. At the end it prints how far the times of float32 kernels are from the predictions: of
those that ptxas may spill (`core/resources.py`), and of the others.
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
from diode_engine.models.preference import Policy, chosen, plain_library_call, taken
from diode_engine.problems.splits import split
from diode_engine.registry import load_predictor
from diode_engine.store import read_dataset

FOLDER = Path(__file__).parents[1] / "datasets" / "nvidia-h200"
LAYERS = FOLDER / "real-layers-2026-11-22.packed.zst"
FAMILIES = Path(__file__).parent / "results" / "real-layers-2026-11-22.json"
SLOWER = 1.05
MARGINS = (1.0, 1.03, 1.05, 1.08, 1.1, 1.15, 1.2, 1.3, 1.4)
NO_FAMILY = "odd"  # sizes that were drawn: each is a family of its own


class Case(NamedTuple):
    """The speed of the choice divided by that of the library's kernel, and its efficiency (the best
    measured time divided by the choice's), with margins and without."""

    problem: Problem
    speed: float
    speed_without: float
    efficiency: float
    efficiency_without: float
    by_margin: tuple[tuple[float, float], ...]  # (speed, efficiency) with each of MARGINS


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
        best, plain = us.min(), us[library].min()
        ours = us[taken(problem, candidates, ranking)[0]]
        own = us[ranking.order[0]]
        policy = Policy.of(problem, candidates, ranking.confidence)
        others = [
            us[chosen(ranking.predicted_us[None], replace(policy, margin=margin))[0][0]]
            for margin in MARGINS
        ]
        by_margin = tuple((plain / other, best / other) for other in others)
        yield Case(problem, plain / ours, plain / own, best / ours, best / own, by_margin)


def show(name: str, found: list[Case]) -> None:
    def figures(speeds: list[float], efficiencies: list[float]) -> str:
        slower = sum(speed * SLOWER < 1 for speed in speeds)
        return (
            f"{np.exp(np.mean(np.log(speeds))):.4f} × the library's speed, slower by over 5 % on "
            f"{slower} of {len(speeds)} ({slower / len(speeds):.2%}), at worst "
            f"{1 / min(speeds):.2f} times as slow; efficiency "
            f"{np.exp(np.mean(np.log(efficiencies))):.4f}"
        )

    print(name)
    with_margins = [c.speed for c in found], [c.efficiency for c in found]
    without = [c.speed_without for c in found], [c.efficiency_without for c in found]
    print(f"  with margins  {figures(*with_margins)}\n  without       {figures(*without)}")


def show_margins(name: str, found: list[Case]) -> None:
    """Prints the results of other margins, by type."""
    print(f"{name}, with other margins: efficiency, and slower than the library's by over 5 %")
    for each in sorted({kind(c.problem).split(",")[0] for c in found}):
        some = [c.by_margin for c in found if kind(c.problem).startswith(each)]
        cells = []
        for i, margin in enumerate(MARGINS):
            speed, efficiency = np.array([by[i] for by in some]).T
            slower, mean = (speed * SLOWER < 1).mean(), np.exp(np.log(efficiency).mean())
            cells.append(f"{margin}: {mean:.4f} {slower:.2%}")
        print(f"  {each} ({len(some)})  " + "  ".join(cells))


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
    show_margins("real layers, the families that the margins were chosen on",
                 [c for c in found if tuned(c.problem)])  # fmt: skip
    show_margins("real layers, the other families", judged)
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
