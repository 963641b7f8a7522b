"""Models that are fitted anew for each part of the problems and judged on it: how well a way of
making models does, rather than one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import Artifact, Coverage, Data, Manifest
from diode_engine.models.fitting import Progress
from diode_engine.models.predictor import Predictor
from diode_engine.training.fit import Report as Told
from diode_engine.training.fit import Settings, fit, learnable, one_environment
from diode_engine.validation import ATEN, DEFAULT, Report, evaluate, splits
from diode_engine.validation.metrics import Summary
from diode_engine.validation.report import KS, Case
from diode_engine.validation.text import aligned

FOLDS = 5
KINDS: Mapping[str, Callable[[TimingTable], list[splits.Part]]] = {
    "folds": lambda table: splits.folds(table, FOLDS),
    "llm": splits.named,
    "sizes": splits.largest,
}
_OF = {
    "folds": "the other folds",
    "llm": "what is no layer of the transformer",
    "sizes": "the smaller problems",
}
_MODEL = "the model"


@dataclass(frozen=True)
class CrossValidation:
    """A report on each part, by its name, of a model that was fitted without it."""

    kind: str
    family: str
    parts: Mapping[str, Report]

    def together(self, k: int = 1) -> Summary | None:
        """The model's first k choices over all parts' problems, one that is in several parts
        counting in each; None where nothing could be said."""
        return _summary([c.efficiency[k] for c in self._cases if c.efficiency is not None])

    def of_other(self, chooser: str) -> Summary | None:
        """Another chooser's first choices on the problems of all parts that it answered."""
        return _summary([c.others[chooser] for c in self._cases if chooser in c.others])

    @property
    def _cases(self) -> list[Case]:
        return [case for report in self.parts.values() for case in report.cases]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: the parts are reports (Report.to_dict)."""
        together = {str(k): self.together(k) for k in KS}
        return {
            "format": "diode-cross-validation",
            "version": 1,
            "kind": self.kind,
            "family": self.family,
            "top": {k: None if s is None else asdict(s) for k, s in together.items()},
            "parts": {name: report.to_dict() for name, report in self.parts.items()},
        }

    def render(self) -> str:
        """As plain text: a line a part."""
        rows = []
        for name, report in self.parts.items():
            row = report.rows[0]
            there = [report.row(other) for other in (ATEN, DEFAULT)]
            others = [None if other is None else other.top[1] for other in there]
            rows.append([name, *_figures(row.top[1], row.top[5], others, row.speed)])
        first, fifth = self.together(), self.together(5)
        if first is not None and fifth is not None:
            others = [self.of_other(name) for name in (ATEN, DEFAULT)]
            rows.append(["together", *_figures(first, fifth, others, None)])
        header = ["part", "problems", "geomean", "p10", "worst", "top-5", "speed", ATEN, DEFAULT]
        return (
            f"{self.family}, each part judged by a model that learned from {_OF[self.kind]}:\n"
            + aligned(header, rows)
        )


def _figures(
    first: Summary, fifth: Summary, others: Sequence[Summary | None], speed: float | None
) -> list[str]:
    return [
        str(first.problems),
        *(f"{x:.3f}" for x in (first.geomean, first.p10, first.worst, fifth.geomean)),
        "" if speed is None else f"{speed:.3f}",
        *("" if other is None else f"{other.geomean:.3f}" for other in others),
    ]


def _summary(efficiency: list[float]) -> Summary | None:
    return Summary.of(np.array(efficiency)) if efficiency else None


def cross_validate(
    table: TimingTable,
    kind: str,
    *,
    family: str = "ensemble",
    hardware: str | None = None,
    seed: int = 0,
    settings: Settings | None = None,
    report: Told = lambda member, progress: None,
    begins: Callable[[Sequence[str]], None] = lambda parts: None,
) -> CrossValidation:
    """Fits a model of the family for each part of this kind (KINDS: k folds of the problems; a
    named transformer left out at a time; the tenth of the problems with the most work), to the
    GPU's timings in the table without the part's, and judges it on the part's. What differs only
    in type or layout is on one side (validation.splits). `begins` is told the parts' names.

    Raises TrainingError where there is no such part, or too little to fit to or to judge by.
    """
    one = one_environment(table, hardware)
    parts = KINDS[kind](one)
    if not parts:
        raise TrainingError(
            "None of the problems with timings is a layer of a named transformer; collect some "
            "(--source transformers), or part them by --cross-validate folds."
        )
    begins([part.name for part in parts])
    judged: dict[str, Report] = {}
    for part in parts:

        def told(member: str, progress: Progress, name: str = part.name) -> None:
            report(f"{member}, {name}", progress)

        learned = learnable(part.learned)
        members = fit(learned, family, seed=seed, settings=settings, report=told)
        environment = one.environments[int(one.environment[0])]
        manifest = Manifest("part", family, environment.hardware, Coverage.of(learned), Data())
        predictor = Predictor(Artifact(manifest, members))
        judged[part.name] = evaluate(part.judged, predictor, name=_MODEL, unseen=True, seen=learned)
    return CrossValidation(kind, family, judged)
