"""How a cascade without a sieve gets one: `gemm@10` was made so of `gemm@9`.

    python benchmarks/add_sieve.py MODEL_FOLDER NEW_FOLDER

The sieve learns what the cascade answers, on the problems of the datasets that the cascade was made
of and on DRAWN others; those that are held out take no part, and no timing is used. What the model
has besides stays as it is, its confidence too. The metrics in its manifest are measured anew.
On two cores it takes three quarters of an hour.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.models.artifact import Artifact, load_artifact, save_artifact
from diode_engine.models.cascade import Cascade
from diode_engine.models.fit_cascade import with_sieve
from diode_engine.problems.splits import held_out_by
from diode_engine.store import read_dataset
from diode_engine.training.lessons import drawn_problems, lessons, part
from diode_engine.training.training_split import TrainingSplit
from diode_engine.training.training_stages import TrainingMethod, judged

DATASETS = Path(__file__).parents[1] / "datasets"
DRAWN = 6_000
SEED = 77
NOTES = (
    "{measured} It is {base} with a sieve, which benchmarks/add_sieve.py fitted to that model's "
    "answers on {problems} problems, none of them held out. The networks that rank and the "
    "confidence are {base}'s."
)


def taught(model: Artifact, table: TimingTable) -> list[Problem]:
    """The problems that the sieve learns."""
    timed = [table.problems[i] for i in sorted(set(table.problem.tolist()))]
    drawn = drawn_problems(model.manifest.coverage, DRAWN, seed=SEED)
    return [problem for problem in dict.fromkeys([*timed, *drawn]) if not held_out_by(problem)]


def main() -> None:
    folder, made = map(Path, sys.argv[1:])
    model = load_artifact(folder)
    manifest = model.manifest
    (cascade,) = model.members
    assert isinstance(cascade, Cascade)
    assert cascade.sieve is None
    table = TimingTable.joined(
        [read_dataset(DATASETS / manifest.hardware.slug / name) for name in manifest.data.files]
    )
    problems = taught(model, table)
    learned, watched = part(
        lessons(
            model.members, manifest.coverage, manifest.hardware, problems,
            torch=manifest.torch[0], seed=SEED, feature_set=manifest.feature_set,
        )
    )  # fmt: skip
    sieved = replace(model, members=(with_sieve(cascade, learned, watched),))
    method = TrainingMethod(manifest.name, manifest.family)
    sieved = judged(sieved, TrainingSplit.of(table, by=manifest.held_out_by), method)
    notes = NOTES.format(
        measured=sieved.manifest.notes,
        base=f"{manifest.name}@{folder.name}",
        problems=len(problems),
    )
    save_artifact(made, replace(sieved.manifest, notes=notes), sieved.members, model.confidence)


if __name__ == "__main__":
    main()
