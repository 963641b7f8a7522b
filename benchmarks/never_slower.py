"""How often Diode's choice is slower than the kernel that plain torch.compile calls, and what it
costs to avoid that.

    python benchmarks/never_slower.py [MODEL [DATASET …]]

It uses measured times: those of the products of real layers (datasets/nvidia-h200/real-layers-…),
and of the held-out problems of the other datasets of each GPU. For each product of a layer there
are the library's kernels, the four that `gemm@6` predicted to be fastest, and the one that it
predicted to be fastest in max-autotune's DEFAULT space. The references are the model's own order,
without a margin, the margin of a model without evidence, and other least margins than that of
diode_engine/choosing/policy.py. With DATASETs only these files are read, and all of their problems
count.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diode_engine.choosing.policy import ERROR_WEIGHT, Policy, plain_library_call
from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import split
from diode_engine.registry import load_predictor
from diode_engine.store import read_dataset

DATASETS = Path(__file__).parents[1] / "datasets"
LAYERS = DATASETS / "nvidia-h200" / "real-layers-2026-11-22.packed.zst"
SLOWER = 1.05
MARGINS = (1.0, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1, 1.15, 1.2)


class Result(NamedTuple):
    """The speed of a choice divided by that of the library's kernel, and its efficiency (the best
    measured time divided by the choice's)."""

    speed: float
    efficiency: float


def results(table: TimingTable, model: Predictor) -> Iterator[dict[str, Result]]:
    """For each problem the results by rule: what a compile takes, what it would take if the model
    had no evidence, the model's own order, and other least margins."""
    table = table.take(table.failure == 0)
    for place, rows in table.groups():
        problem = table.problems[place]
        candidates = [table.candidates[i] for i in table.candidate[rows]]
        prediction, us = model.predict(problem, candidates), table.time_us[rows]
        library = plain_library_call(candidates)
        if not np.isfinite(prediction.predicted_us[library]).any():
            continue
        comparison = Policy().compare(prediction)
        without = replace(prediction, error=None, proven=None)
        comparisons = {"as a compile": comparison, "without evidence": Policy().compare(without)}
        wider = np.exp(ERROR_WEIGHT * (prediction.error or 0.0))
        for margin in MARGINS:
            comparisons[f"least margin {margin}"] = replace(comparison, margin=margin * wider)
        taken = {rule: us[each.choose()[0][0]] for rule, each in comparisons.items()}
        taken["own order"] = us[prediction.order[0]]
        best, plain = us.min(), us[library].min()
        yield {rule: Result(plain / each, best / each) for rule, each in taken.items()}


def show(name: str, found: Iterable[dict[str, Result]]) -> None:
    """Prints the results by rule."""
    print(name)
    by_rule: dict[str, list[Result]] = {}
    for each in found:
        for rule, result in each.items():
            by_rule.setdefault(rule, []).append(result)
    for rule, some in by_rule.items():
        speeds, efficiencies = np.array(some).T
        slower = int((speeds * SLOWER < 1).sum())
        print(
            f"  {rule:18} {geomean(speeds):.4f} × the library's speed, slower by over 5 % on "
            f"{slower} of {len(speeds)} ({slower / len(speeds):.2%}), at worst "
            f"{1 / speeds.min():.2f} times as slow; efficiency {geomean(efficiencies):.4f}"
        )


def geomean(values: np.ndarray) -> float:
    return float(np.exp(np.log(values).mean()))


def model_for(hardware: Hardware, path: Path | None) -> Predictor:
    """The model of a path, or what ships for the GPU."""
    model = load_predictor(hardware) if path is None else Predictor.load(path, hardware)
    assert model is not None
    return model


def show_file(file: Path, model: Path | None) -> None:
    """Prints the results on all problems of a file, by the model for the file's GPU."""
    table = read_dataset(file)
    show(file.name, results(table, model_for(table.environments[0].hardware, model)))


def show_held_out(folder: Path, path: Path | None) -> None:
    """Prints the results on the held-out problems of this GPU's datasets."""
    tables = [read_dataset(file) for file in sorted(folder.glob("*.packed.zst"))
              if not file.name.startswith(("real-layers", "judged-again"))]  # fmt: skip
    hardware = tables[0].environments[0].hardware
    model = model_for(hardware, path)
    by = model.manifest.held_out_by
    held_out = (each for table in tables for each in results(split(table, by)[1], model))
    show(f"held-out problems of {hardware.name}", held_out)


def main() -> None:
    given = [Path(each) for each in sys.argv[1:]]
    model, files = given[0] if given else None, given[1:]
    for file in files or [LAYERS]:
        show_file(file, model)
    if not files:
        for folder in sorted(each for each in DATASETS.iterdir() if each.is_dir()):
            show_held_out(folder, model)


if __name__ == "__main__":
    main()
