"""How often Diode's choice is slower than the kernel that plain torch.compile calls, and what it
costs to avoid that.

    python benchmarks/never_slower.py [MODEL [DATASET …]]

It uses measured times of the products of real layers (datasets/nvidia-h200/real-layers-…). For each
product there are the library's kernels, the four that `gemm@6` predicted to be fastest, and the one
that it predicted to be fastest in max-autotune's DEFAULT space. The margin of
diode_engine/choosing/policy.py was chosen on one half of the families of layers, by name, and is
judged on the other half. The references are the model's own order, without a margin, and the margin
of a model without evidence. Then it prints, by type and for both halves, what other least margins
would do, and other weights of the error near a problem, because a model of another precision may
need others. Then come held-out problems of the other datasets of each GPU, and what the evidence
says of kinds of kernels. With DATASETs only these files are read, and all of their problems count.
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

from diode_engine.choosing.policy import (
    ERROR_WEIGHT,
    LEAST_MARGIN,
    Policy,
    plain_library_call,
)
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import split
from diode_engine.registry import load_predictor
from diode_engine.store import read_dataset

DATASETS = Path(__file__).parents[1] / "datasets"
LAYERS = DATASETS / "nvidia-h200" / "real-layers-2026-11-22.packed.zst"
FAMILIES = Path(__file__).parent / "results" / "real-layers-2026-11-22.json"
SLOWER = 1.05
MARGINS = (1.0, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1, 1.15, 1.2)
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
NO_FAMILY = "odd"  # sizes that were drawn: each is a family of its own
Rule = tuple[str, float]  # a rule, and its margin or weight
COMPILE, BEFORE, OWN = "as a compile", "without evidence", "own order"
BY_MARGIN = "another least margin"
BY_WEIGHT = "another weight of the error near the problem"


class Result(NamedTuple):
    """The speed of a choice divided by that of the library's kernel, and its efficiency (the best
    measured time divided by the choice's)."""

    speed: float
    efficiency: float


class Case(NamedTuple):
    """The results on a problem, by rule: what a compile takes (COMPILE), what it would take if the
    model had no evidence (BEFORE), the model's own order (OWN), and others."""

    problem: Problem
    results: dict[str | Rule, Result]


def cases(table: TimingTable, model: Predictor) -> Iterator[Case]:
    table = table.take(table.failure == 0)
    if not len(table):  # as of a file without a held-out problem
        return
    order = np.argsort(table.problem, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(table.problem[order])) + 1):
        problem = table.problems[table.problem[rows[0]]]
        candidates = [table.candidates[i] for i in table.candidate[rows]]
        prediction, us = model.predict(problem, candidates), table.time_us[rows]
        library = plain_library_call(candidates)
        if not np.isfinite(prediction.predicted_us[library]).any():
            continue
        comparison, error = Policy().compare(prediction), prediction.error or 0.0
        without = replace(prediction, error=None, proven=None)
        comparisons = {COMPILE: comparison, BEFORE: Policy().compare(without)}
        for margin in MARGINS:
            comparisons[BY_MARGIN, margin] = replace(
                comparison, margin=margin * np.exp(ERROR_WEIGHT * error)
            )
        for weight in WEIGHTS:
            wider = LEAST_MARGIN * np.exp(weight * error)
            comparisons[BY_WEIGHT, weight] = replace(comparison, margin=wider)
        taken = {rule: us[each.choose()[0][0]] for rule, each in comparisons.items()}
        taken[OWN] = us[prediction.order[0]]
        best, plain = us.min(), us[library].min()
        yield Case(
            problem, {rule: Result(plain / each, best / each) for rule, each in taken.items()}
        )


def show(name: str, found: list[Case]) -> None:
    print(name)
    for rule in (COMPILE, BEFORE, OWN):
        speeds, efficiencies = np.array([case.results[rule] for case in found]).T
        slower = int((speeds * SLOWER < 1).sum())
        print(
            f"  {rule:15} {geomean(speeds):.4f} × the library's speed, slower by over 5 % on "
            f"{slower} of {len(speeds)} ({slower / len(speeds):.2%}), at worst "
            f"{1 / speeds.min():.2f} times as slow; efficiency {geomean(efficiencies):.4f}"
        )


def show_others(name: str, found: list[Case]) -> None:
    """Prints the results of other margins, by type."""
    for what, values in ((BY_MARGIN, MARGINS), (BY_WEIGHT, WEIGHTS)):
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


def show_evidence(model: Predictor) -> None:
    """Prints how many kinds of kernels are proven, and how many of the timings they have."""
    evidence = model.evidence
    if evidence is None:
        return
    good = evidence.good_kinds
    share = evidence.timings[good].sum() / evidence.timings.sum()
    missed = evidence.misses.sum() / evidence.timings.sum()
    left = evidence.misses[good].sum() / evidence.timings[good].sum()
    print(
        f"{good.sum()} of {len(good)} kinds of kernels are proven, with {share:.1%} of the "
        f"timings; {missed:.2%} of all timings were missed, {left:.2%} of these"
    )


def kind(problem: Problem) -> str:
    dtype = "tf32" if problem.allow_tf32 else str(problem.dtype)
    return f"{'float32' if dtype == 'float32' else 'TF32' if dtype == 'tf32' else 'half'}, " + (
        "in batches" if problem.op.batched else "not in batches"
    )


def show_file(path: Path, model: Path) -> None:
    """Prints the results on all problems of a file, by the model for the file's GPU."""
    table = read_dataset(path)
    predictor = Predictor.load(model, table.environments[0].hardware)
    show(path.name, list(cases(table, predictor)))


def main() -> None:
    if len(sys.argv) > 2:
        for file in map(Path, sys.argv[2:]):
            show_file(file, Path(sys.argv[1]))
        return
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
    for folder in sorted(DATASETS.iterdir()):
        if folder.is_dir():
            show_held_out(folder, Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    show_evidence(model)


def show_held_out(folder: Path, path: Path | None) -> None:
    """Prints the results on the held-out problems of this GPU's datasets."""
    tables = [read_dataset(file) for file in sorted(folder.glob("*.packed.zst"))
              if not file.name.startswith(("real-layers", "judged-again"))]  # fmt: skip
    hardware = tables[0].environments[0].hardware
    model = load_predictor(hardware) if path is None else Predictor.load(path, hardware)
    assert model is not None
    by = model.manifest.held_out_by
    held = [case for table in tables for case in cases(split(table, by)[1], model)]
    show(f"held-out problems of {hardware.name}", held)


if __name__ == "__main__":
    main()
