"""How a cascade gets another sieve: `gemm@10` was made so of `gemm@9`.

    python benchmarks/add_sieve.py MODEL_FOLDER NEW_FOLDER

The sieve learns what the cascade answers for the candidates that it is asked about at compile time,
on the problems of the datasets that the cascade was made of, as many of the harvest, and as many
that are drawn. Those that are held out take no part, and no timing is used. What the model has
besides stays as it is, its confidence too. The metrics in its manifest are measured anew. On two
cores it takes a quarter of an hour.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.models.artifact import Artifact, load_artifact, save_artifact
from diode_engine.models.cascade import Cascade
from diode_engine.models.coverage import op_type
from diode_engine.models.fit_cascade import with_sieve
from diode_engine.models.fitting import Examples
from diode_engine.models.predictor import SHORTLIST
from diode_engine.models.protocol import mean_answer
from diode_engine.problems.harvested import harvest
from diode_engine.problems.splits import held_out_by
from diode_engine.store import read_dataset
from diode_engine.training.lessons import LessonProblem, drawn_problems, part
from diode_engine.training.training_split import TrainingSplit
from diode_engine.training.training_stages import TrainingMethod, judged

DATASETS = Path(__file__).parents[1] / "datasets"
EACH = 9_000  # problems of the harvest, and drawn ones, before the held-out ones are left out
BEST = 72  # candidates of a problem that are learned because they have the shortest times
OTHERS = 88  # of the others on the short list that are learned, by chance
FAR = 40  # that are not on it: where few candidates are timed, a sieve is asked about such too
SEED = 77
NOTES = (
    "{measured} It is {base} with a sieve, which benchmarks/add_sieve.py fitted to that model's "
    "answers on {problems} problems, none of them held out. The networks that rank and the "
    "confidence are {base}'s."
)


def taught(model: Artifact, table: TimingTable) -> list[Problem]:
    """The problems that the sieve learns."""
    coverage, rng = model.manifest.coverage, np.random.default_rng(SEED)
    timed = [table.problems[i] for i in sorted(set(table.problem.tolist()))]
    known = [p for p in harvest().found if op_type(p) in coverage.known_op_types]
    harvested = [known[i] for i in rng.permutation(len(known))[:EACH]]
    drawn = drawn_problems(coverage, EACH, seed=SEED)
    together = dict.fromkeys([*timed, *harvested, *drawn])
    return [problem for problem in together if not held_out_by(problem)]


def answered(model: Artifact, cascade: Cascade, problems: Iterable[Problem]) -> Examples:
    """The cascade's answers on these problems."""
    manifest, rng = model.manifest, np.random.default_rng(SEED)
    kernels = frozenset(manifest.coverage.kernels)
    x, log_us = [], []
    for problem in problems:
        asked = LessonProblem.of(problem, kernels, manifest.hardware, manifest.torch[0])
        if not asked.candidates:
            continue
        space = manifest.feature_set.space(problem, asked.candidates, manifest.hardware)
        by_base = np.argsort(space.base, kind="stable")
        far = rng.permutation(by_base[SHORTLIST:])[:FAR]
        short = np.union1d(by_base[:SHORTLIST], asked.libraries)
        space = space.take(np.isin(np.arange(len(space.base)), np.union1d(short, far)))
        times = mean_answer(cascade.space_answers(space))
        order = np.argsort(times, kind="stable")
        kept = np.concatenate([order[:BEST], rng.permutation(order[BEST:])[: OTHERS + FAR]])
        x.append(space.rows()[kept])
        log_us.append(times[kept])
    counts = [len(rows) for rows in x]
    return Examples(
        np.concatenate(x), np.concatenate(log_us), np.repeat(np.arange(len(x)), counts),
        feature_set=manifest.feature_set,
    )  # fmt: skip


def main() -> None:
    folder, made = map(Path, sys.argv[1:])
    model = load_artifact(folder)
    manifest = model.manifest
    if manifest.family != Cascade.family:
        sys.exit(f"{folder} is no cascade.")
    cascade = cast("Cascade", model.members[0])
    table = TimingTable.joined(
        [read_dataset(DATASETS / manifest.hardware.slug / name) for name in manifest.data.files]
    )
    problems = taught(model, table)
    learned, watched = part(answered(model, cascade, problems))
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
