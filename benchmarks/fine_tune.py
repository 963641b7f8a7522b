"""What fine-tuning brings on a user's problems, and what it costs on others.

    python benchmarks/fine_tune.py [decode|batched|float32|llama] [DATASET]

A base model is made without a group of the shipped problems, tuned to half of the group, and
judged on the other half and on problems outside of the group that no model has seen. The
reference in the same run is a model made from all of it at once, the half and the base's own
timings. Problems that are held out for validation take no part. Takes about ten minutes.

    decode   M ≤ 16        batched  bmm and baddbmm
    float32  with or without TF32   llama  the linear layers of the Llama models
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from diode_engine import paths
from diode_engine.core.named_layers import models_of
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.models.artifact import Artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import fold, split
from diode_engine.store.datasets.reading import read_dataset
from diode_engine.training.fine_tune import fine_tune
from diode_engine.training.fit import fit, learnable, one_environment
from diode_engine.validation import evaluate

GROUPS: dict[str, Callable[[Problem], bool]] = {
    "decode": lambda p: p.M <= 16,
    "batched": lambda p: p.op.batched,
    "float32": lambda p: p.dtype == "float32",
    "llama": lambda p: any(model.startswith("llama") for model in models_of(p)),
}
FOLDS = 4


def of(table: TimingTable, wanted: Callable[[Problem], bool]) -> TimingTable:
    there = np.array([wanted(problem) for problem in table.problems])
    return table.take(there[table.problem])


def artifact(members: tuple, table: TimingTable, coverage: Coverage) -> Artifact:
    hardware = table.environments[int(table.environment[0])].hardware
    return Artifact(Manifest("benchmark", "ensemble", hardware, coverage, Data()), members, None)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "decode"
    group = GROUPS[name]
    shipped = sorted((paths.shipped_dir() / "datasets" / "nvidia-h200").glob("*.msgpack.zst"))
    dataset = Path(sys.argv[2]) if len(sys.argv) > 2 else shipped[-1]
    table, _ = split(learnable(one_environment(read_dataset(dataset))))
    theirs, others = of(table, group), of(table, lambda p: not group(p))
    user = of(theirs, lambda p: fold(p, 2) == 0)
    theirs_unseen = of(theirs, lambda p: fold(p, 2) == 1)
    base_data = of(others, lambda p: fold(p, FOLDS) != 0)
    others_unseen = of(others, lambda p: fold(p, FOLDS) == 0)

    base = artifact(fit(base_data, "ensemble"), base_data, Coverage.of(base_data))
    tuned = artifact(fine_tune(user, base), user, base.manifest.coverage.joined(Coverage.of(user)))
    both = of(table, lambda p: fold(p, 2) == 0 if group(p) else fold(p, FOLDS) != 0)
    whole = artifact(fit(both, "distilled"), both, Coverage.of(both))

    def problems(t: TimingTable) -> int:
        return len(set(t.problem.tolist()))

    print(
        f"{name}: base made from {problems(base_data)} other problems, tuned to {problems(user)}, "
        f"judged on {problems(theirs_unseen)} of the group and {problems(others_unseen)} others"
    )
    print(f"{'geomean efficiency of':28s}{'the group':>12s}{'the others':>12s}")
    rows = {
        "the base": base,
        "the tuned model": tuned,
        "all of it at once (reference)": whole,
    }
    for label, model in rows.items():
        reached = [
            evaluate(t, Predictor(model), name="it").rows[0].top[1].geomean
            for t in (theirs_unseen, others_unseen)
        ]
        print(f"{label:30s}{reached[0]:10.3f}{reached[1]:12.3f}")


if __name__ == "__main__":
    main()
