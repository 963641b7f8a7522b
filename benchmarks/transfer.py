"""How useful the timings of one GPU are for another: transfer, with none to all of its timings.

    python benchmarks/transfer.py [--source FILE... --target FILE...] [--part 1]

Models of trees are made of the source's timings, and judged on the target's held-out problems,
which are the same sizes on every GPU: untouched, with the facts of either device; and with a share
of the target's timings, drawn at random or actively. The share is used in three ways: the source's
model is corrected (`training.correction`); one model is made of both; one is made of the share
alone. Without files the shipped datasets of direct collections on an H200 and an H100 are taken.
`--part N` takes every Nth problem.

Problems are drawn with ROWS timings each, so that small shares have several problems. Actively
means: problems on which two models of the source disagree most, and for each the candidates that
they expect to be fastest, those that may be, and random ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from diode_engine import features
from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import Artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.fitting import Examples
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.model_types import MODEL_TYPES
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import TimingModel
from diode_engine.problems.splits import fold, split
from diode_engine.store.datasets.reading import read_dataset
from diode_engine.store.transfer import read_datasets
from diode_engine.training.correction import correct_to
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import (
    fitted_and_watched,
    learnable,
    one_environment,
    thin_rows,
)
from diode_engine.validation import evaluate

_DATASETS = Path(__file__).parents[1] / "datasets"
SOURCE = _DATASETS / "nvidia-h200" / "gemm-direct-2026-11-21.packed.zst"
TARGET = _DATASETS / "nvidia-h100" / "gemm-direct-2026-11-22.packed.zst"
SHARES = (0.001, 0.01, 0.03, 0.1, 1.0)
ROWS = 24  # timings of a problem that are drawn
MAX_ROWS = 120  # of a problem that a model learns
# A share's rows are repeated until they are this part of the source's rows, at most _TIMES times.
_REPEATED, _TIMES = 0.1, 50
BOUND_DEVIATIONS = 2.0  # the same as in collect.adviser


def hardware_of(table: TimingTable) -> Hardware:
    return table.environments[int(table.environment[0])].hardware


def artifact(
    members: Sequence[TimingModel], coverage: Coverage, hardware: Hardware, sees: int
) -> Artifact:
    of = features.SETS[sees]
    manifest = Manifest(
        name="benchmark", family="trees", hardware=hardware, coverage=coverage, data=Data(),
        feature_version=of.version, feature_names=of.names_hash,
    )  # fmt: skip
    return Artifact(manifest, tuple(members))


class Transfer:
    """The two devices' timings, and how models are made of them."""

    def __init__(
        self, source: TimingTable, target: TimingTable, settings: TrainingSettings, members: int
    ) -> None:
        self.settings, self.members = settings, members
        self.here, self.there = hardware_of(source), hardware_of(target)
        self.learned, _ = split(learnable(source))
        self.target, _ = split(learnable(target))
        self.judged = split(target)[1]
        both = (Coverage.make(self.learned), Coverage.make(self.target))
        self.coverage = Coverage(
            tuple(sorted({k for each in both for k in each.kernels})),
            tuple(sorted({t for each in both for t in each.types})),
        )
        self.base = artifact(
            self._fit((self.learned,)), Coverage.make(self.learned), self.here, settings.features
        )

    def _fit(self, tables: Sequence[TimingTable]) -> list[TimingModel]:
        """Members that are fitted to all rows. The last table's rows are repeated, so that they
        have more weight. Each row has the features for its own device."""
        sides: tuple[list[Examples], list[Examples]] = ([], [])
        for table in tables:
            for side, part in zip(sides, fitted_and_watched(table, seed=0), strict=True):
                rows = thin_rows(part, MAX_ROWS)
                side.append(Examples.make(rows, hardware_of(table), self.settings.feature_set))
        if len(tables) > 1:
            first, last = (len(examples.log_us) for examples in sides[0])
            sides[0].extend([sides[0][1]] * (int(np.clip(_REPEATED * first / last, 1, _TIMES)) - 1))
            sides[1][:] = sides[1][1:]  # what it does on the target decides when it stops
        learned, watched = (_together(side) for side in sides)
        method = MODEL_TYPES["trees"].fitting_method()
        return [
            method.fit(
                learned, watched, replace(self.settings.find("trees"), seed=seed),
                lambda progress: None, None,
            )
            for seed in range(self.members)
        ]  # fmt: skip

    # Models

    def untouched(self, hardware: Hardware) -> dict[str, float]:
        """The source's model, with features that are made with the facts of this device."""
        return self._judged(self.base.members, hardware, self.base.manifest.coverage)

    def corrected(self, rows: TimingTable) -> dict[str, float]:
        return self._judged(correct_to(rows, self.base), self.there, self.coverage)

    def of_both(self, rows: TimingTable) -> dict[str, float]:
        return self._judged(self._fit((self.learned, rows)), self.there, self.coverage)

    def alone(self, rows: TimingTable) -> dict[str, float]:
        return self._judged(self._fit((rows,)), self.there, Coverage.make(rows))

    def _judged(
        self, members: Sequence[TimingModel], hardware: Hardware, coverage: Coverage
    ) -> dict[str, float]:
        model = Predictor(artifact(members, coverage, hardware, self.settings.features))
        first = evaluate(self.judged, model.predict_table(self.judged)).rows[0].top[1]
        return {"geomean": first.geomean, "p10": first.p10, "worst": first.worst}

    # Shares

    def drawn(self, share: float, *, active: bool) -> TimingTable:
        """About this share of the target's timings, to learn from."""
        if share >= 1:
            return self.target
        wanted = round(share * len(self.target))
        rng = np.random.default_rng(1)
        groups = [rows for _, rows in self.target.groups()]
        if active:
            advice = [self._advice(rows) for rows in groups]
            order = np.argsort([-regret for regret, _, _ in advice], kind="stable")
            # Every second problem is drawn, as a tuning draws them.
            mixed = np.stack([order, rng.permutation(len(groups))], axis=1).ravel()
            order = np.array(list(dict.fromkeys(mixed.tolist())))
        else:
            order = rng.permutation(len(groups))
        kept: list[np.ndarray] = []
        count = 0
        for place in order:
            rows = rng.permutation(groups[place])
            if active:
                _, expected, lower_bound = advice[place]
                by = groups[place]
                first = by[np.argsort(expected)[: ROWS // 4]]
                second = by[np.argsort(lower_bound)[: ROWS // 4]]
                rows = np.array(list(dict.fromkeys([*first, *second, *rows])))
            kept.append(rows[:ROWS])
            count += len(kept[-1])
            if count >= wanted:
                break
        return self.target.take(np.sort(np.concatenate(kept)))

    def _advice(self, rows: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """How much the base's members lose by choosing together, and what they expect and hope of
        each row; in log time."""
        part = self.target.take(rows)
        x = self.settings.feature_set.matrix(
            part.problems, part.candidates, part.problem, part.candidate, self.there
        )
        answers = np.stack([member.predict(x) for member in self.base.members])
        expected = answers.mean(axis=0)
        chosen = int(np.argmin(expected))
        regret = float(np.mean(answers[:, chosen] - answers.min(axis=1)))
        return regret, expected, expected - BOUND_DEVIATIONS * answers.std(axis=0)


def _together(parts: Sequence[Examples]) -> Examples:
    first, shifted = 0, []
    for part in parts:
        _, place = np.unique(part.problem, return_inverse=True)
        shifted.append(first + place)
        first += int(place.max()) + 1
    return Examples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.log_us for part in parts]),
        np.concatenate(shifted),
        feature_set=parts[0].feature_set,
    )


def read(paths: Sequence[Path], part: int) -> TimingTable:
    table = one_environment(read_dataset(paths[0]) if len(paths) == 1 else read_datasets(paths))
    kept = np.array([fold(problem, part, seed=9) == 0 for problem in table.problems])
    return table.take(kept[table.problem])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What one GPU's timings tell of another.")
    parser.add_argument("--source", type=Path, nargs="+", default=[SOURCE])
    parser.add_argument("--target", type=Path, nargs="+", default=[TARGET])
    parser.add_argument("--part", type=int, default=4, help="every Nth problem")
    parser.add_argument("--features", type=int, default=features.VERSION, choices=features.SETS)
    parser.add_argument("--rounds", type=int, default=600, help="of trees")
    parser.add_argument("--members", type=int, default=2, help="models of other seeds")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--output", type=Path, help="write the figures here as JSON")
    asked = parser.parse_args(arguments)
    source = read(asked.source, asked.part)
    target = read(asked.target, asked.part)
    settings = TrainingSettings(features=asked.features).but(
        "trees", rounds=asked.rounds, max_depth=8
    )
    transfer = Transfer(source, target, settings, asked.members)
    here, there = transfer.here.name, transfer.there.name

    def problems(table: TimingTable) -> int:
        return len(set(table.problem.tolist()))

    print(
        f"{here} ({len(transfer.learned):,} timings of {problems(transfer.learned):,} problems) to "
        f"{there} ({len(transfer.target):,} of {problems(transfer.target):,}), judged on "
        f"{problems(transfer.judged):,} held-out problems of {there}; features {asked.features}"
    )
    print(
        "| timings of the target | drawn | use | geomean | p10 | worst |\n|---|---|---|---|---|---|"
    )
    found = []

    def tell(count: int, drawn: str, use: str, figures: dict[str, float]) -> None:
        found.append({"timings": count, "drawn": drawn, "use": use, **figures})
        cells = " | ".join(f"{figures[name]:.3f}" for name in ("geomean", "p10", "worst"))
        print(f"| {count:,} | {drawn} | {use} | {cells} |", flush=True)

    tell(0, "", f"untouched, as {here}", transfer.untouched(transfer.here))
    tell(0, "", f"untouched, as {there}", transfer.untouched(transfer.there))
    for share in asked.shares:
        for active in (False,) if share >= 1 else (False, True):
            rows = transfer.drawn(share, active=active)
            drawn = "all" if share >= 1 else "actively" if active else "at random"
            for use, make in (
                ("corrected", transfer.corrected), ("one of both", transfer.of_both),
                ("alone", transfer.alone),
            ):  # fmt: skip
                try:
                    tell(len(rows), drawn, use, make(rows))
                except TrainingError as error:
                    print(f"| {len(rows):,} | {drawn} | {use} | {error} | | |", flush=True)
    if asked.output is not None:
        document = {"source": here, "target": there, "features": asked.features, "rows": found}
        asked.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
