"""How well a model chooses on problems of a kind, or of models of a family, that it never learned.

    python benchmarks/left_out.py [FILE...] [--part 1] [--json FILE]

Trees are made of the datasets' timings: of all, and of all without one kind of problem. Both are
judged on the held-out problems of that kind. Where a kind is an operator or a type, the model
without it has no prediction, as at compile time, and the library's kernel is taken.
For families of models (`diode_engine.problems.harvested`) half of the problems of each family are
judged, in a random half of the sizes: by trees that learned the other half, and by trees that
learned nothing of sizes that occur in the family. The reference of each ratio is the model that
learned the kind. Without files it takes the shipped ones of the H200; `--part N` takes every Nth
problem.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from transfer import artifact, hardware_of

from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.models.coverage import Coverage
from diode_engine.models.families import FAMILIES
from diode_engine.models.fitting import Examples
from diode_engine.models.predictor import Predictor
from diode_engine.problems.harvested import families_of, harvest
from diode_engine.problems.splits import fold
from diode_engine.store.datasets.reading import read_dataset
from diode_engine.store.transfer import read_datasets
from diode_engine.training.fit import fitted_and_watched, thinned
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.training_split import TrainingSplit, count_problems
from diode_engine.validation import evaluate

Test = Callable[[Problem], bool]
MIN_JUDGED = 10  # problems of a kind; fewer say nothing

KINDS: dict[str, Test] = {
    "M ≤ 16": lambda p: p.M <= 16,
    "M > 8,192": lambda p: p.M > 8192,
    "K ≤ 64": lambda p: p.K <= 64,
    "K > 8,192": lambda p: p.K > 8192,
    "strides divisible by 2 at most": lambda p: min(p.a.align, p.b.align) <= 2,
    "strides divisible by 4 at most": lambda p: min(p.a.align, p.b.align) <= 4,
    "batches": lambda p: p.B > 1,
    "with a bias": lambda p: p.bias != "none",
    "float16": lambda p: p.dtype == DType.FLOAT16,
    "float32 without TF32": lambda p: p.dtype == DType.FLOAT32 and not p.allow_tf32,
    "TF32": lambda p: p.allow_tf32,
}


def shipped() -> list[Path]:
    """The H200's datasets, from which models learn; not those that models are judged by."""
    folder = Path(__file__).parents[1] / "datasets" / "nvidia-h200"
    files = sorted(folder.glob("*.packed.zst"))
    return [path for path in files if not path.name.startswith(("judged", "real-layers"))]


def of_family(name: str) -> Test:
    return lambda problem: name in families_of(problem)


def of_programs(kind: str) -> Test:
    """Whether a product is of a family of this kind of program: decoder, image, ..."""
    families = harvest().families
    return lambda problem: any(families[name].kind == kind for name in families_of(problem))


def rows_of(table: TimingTable, test: Test) -> npt.NDArray[np.bool_]:
    """[n] the rows of problems for which the test holds."""
    return _flags(table, test)[table.problem]


def _flags(table: TimingTable, test: Test) -> npt.NDArray[np.bool_]:
    """For each problem of the table whether the test holds."""
    return np.array([test(problem) for problem in table.problems], np.bool_)


def with_library(table: TimingTable) -> TimingTable:
    """The rows of problems on which a library's kernel was timed: where a model has no prediction,
    that kernel is taken."""
    extern = np.array([candidate.is_extern for candidate in table.candidates], np.bool_)
    there = np.zeros(len(table.problems), np.bool_)
    there[table.problem[extern[table.candidate] & (table.failure == 0)]] = True
    return table.take(there[table.problem])


class LeftOut:
    """Trees that learn a table of timings without some of them. Features are computed once."""

    def __init__(self, learned: TimingTable, settings: TrainingSettings, rows: int) -> None:
        self._learned, self._settings = learned, settings
        self._parts = [thinned(p, rows) for p in fitted_and_watched(learned, seed=0)]
        hardware, sees = hardware_of(learned), settings.feature_set
        self._examples = [Examples.of(part, hardware, sees) for part in self._parts]

    def examples(self, without: Test) -> tuple[Examples, Examples]:
        """What a model without these problems is fitted to, and what early stopping uses."""
        fitted, watched = (
            examples.take(~_flags(part, without)[examples.problem])
            for part, examples in zip(self._parts, self._examples, strict=True)
        )
        return fitted, watched

    def model(self, without: Test) -> Predictor:
        """A model that has learned the rows of problems for which the test does not hold."""
        fitted, watched = self.examples(without)
        method = FAMILIES["trees"].fitting_method()
        settings = self._settings.of("trees")
        member = method.fit(fitted, watched, settings, lambda progress: None, None)
        coverage = Coverage.of(self._learned.take(~rows_of(self._learned, without)))
        hardware = hardware_of(self._learned)
        return Predictor(artifact([member], coverage, hardware, self._settings.features))


def figures(model: Predictor, judged: TimingTable) -> dict[str, float]:
    """How well the model chooses. Where it has no prediction for a problem, the library's kernel
    counts."""
    predicted = model.predict_table(judged)
    if np.isnan(predicted).all():
        library = np.array([candidate.is_extern for candidate in judged.candidates], np.bool_)
        predicted = np.where(library[judged.candidate], 1.0, 2.0)
    first = evaluate(judged, predicted).rows[0].top[1]
    return {"geomean": first.geomean, "p10": first.p10, "worst": first.worst}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Choices on kinds that were never learned.")
    parser.add_argument("files", type=Path, nargs="*", default=shipped())
    parser.add_argument("--rounds", type=int, default=400, help="of trees")
    parser.add_argument(
        "--rows", type=int, default=60, help="timings of a problem that are learned"
    )
    parser.add_argument("--part", type=int, default=4, help="every Nth problem")
    parser.add_argument("--families", type=int, default=6, help="so many of the largest ones")
    parser.add_argument("--json", type=Path, help="write a line for each kind here")
    asked = parser.parse_args(arguments)
    files = asked.files
    table = read_dataset(files[0]) if len(files) == 1 else read_datasets(files)
    table = table.take(rows_of(table, lambda p: fold(p, asked.part, seed=9) == 0))
    split = TrainingSplit.of(table)
    judgeable = with_library(split.judged)
    settings = TrainingSettings().but("trees", rounds=asked.rounds, max_depth=8)
    print("| left out | learned | judged | with it: geomean, p10, worst | without | ratio |")
    print("|---|---|---|---|---|---|", flush=True)

    def tell(name: str, lost: int, judged: TimingTable, models: Sequence[Predictor]) -> None:
        known, unknown = (figures(model, judged) for model in models)
        cells = [" ".join(f"{each:.3f}" for each in part.values()) for part in (known, unknown)]
        ratio = unknown["geomean"] / known["geomean"]
        problems = count_problems(judged)
        print(f"| {name} | {lost} | {problems} | {' | '.join(cells)} | {ratio:.3f} |", flush=True)
        if asked.json is not None:
            row = {
                "left_out": name, "learned": lost, "judged": problems, "with": known,
                "without": unknown,
            }  # fmt: skip
            with asked.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    trees = LeftOut(split.learned, settings, asked.rows)
    everything = trees.model(lambda problem: False)
    for name, test in KINDS.items():
        judged = judgeable.take(rows_of(judgeable, test))
        lost = count_problems(split.learned.take(rows_of(split.learned, test)))
        if lost and count_problems(judged) >= MIN_JUDGED:
            tell(name, lost, judged, (everything, trees.model(test)))

    programs = sorted({family.kind for family in harvest().families.values()})
    groups = {f"programs: {kind}": of_programs(kind) for kind in programs} | {
        f"family: {name}": of_family(name) for name in _largest(split.learned, asked.families)
    }

    def half(problem: Problem) -> bool:
        return bool(families_of(problem)) and fold(problem, 2, seed=3) == 1

    rest = LeftOut(split.learned.take(~rows_of(split.learned, half)), settings, asked.rows)
    everything = rest.model(lambda problem: False)
    for name, test in groups.items():
        of_it = split.learned.take(rows_of(split.learned, test))
        judged = with_library(of_it.take(rows_of(of_it, half)))
        if count_problems(judged) >= MIN_JUDGED:
            lost = count_problems(of_it.take(~rows_of(of_it, half)))
            tell(name, lost, judged, (everything, rest.model(test)))


def _largest(table: TimingTable, count: int) -> list[str]:
    """The families with the most problems in the table."""
    found: dict[str, int] = {}
    for place in set(table.problem.tolist()):
        for name in families_of(table.problems[place]):
            found[name] = found.get(name, 0) + 1
    return sorted(found, key=lambda name: (-found[name], name))[:count]


if __name__ == "__main__":
    main()
