"""The result of a cross-validation: a report on each part of the problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from diode_engine.plain_text import format_number, format_table
from diode_engine.validation.choosers import ATEN, DEFAULT
from diode_engine.validation.metrics import Summary
from diode_engine.validation.report import KS, VERSION, Case, Report

FORMAT = "diode-cross-validation"
_LEARNED_FROM = {
    "folds": "the other folds",
    "llm": "problems that are no layer of the transformer",
    "sizes": "the smaller problems",
}


@dataclass(frozen=True)
class CrossValidation:
    """For each part, by its name, the report on a model that was fitted without it."""

    kind: str
    family: str
    parts: Mapping[str, Report]

    def together(self, k: int = 1) -> Summary | None:
        """The model's first k choices over the problems of all parts; a problem in several parts
        counts in each. None where there was no answer to any."""
        return _summary([c.efficiency[k] for c in self._cases if c.efficiency is not None])

    def of_other(self, chooser: str) -> Summary | None:
        """Another chooser's first choices on the problems of all parts that it answered."""
        return _summary([c.others[chooser] for c in self._cases if chooser in c.others])

    @property
    def _cases(self) -> list[Case]:
        return [case for report in self.parts.values() for case in report.cases]

    def to_dict(self) -> dict[str, Any]:
        """As JSON: the parts are reports (Report.to_dict)."""
        together = {str(k): self.together(k) for k in KS}
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "family": self.family,
            "top": {k: None if s is None else asdict(s) for k, s in together.items()},
            "parts": {name: report.to_dict() for name, report in self.parts.items()},
        }

    def render(self) -> str:
        """As plain text: a line for each part."""
        rows = []
        for name, report in self.parts.items():
            row = report.choosers[0]
            there = [report.row(other) for other in (ATEN, DEFAULT)]
            others = [None if other is None else other.top[1] for other in there]
            rows.append([name, *_figures(row.top[1], row.top[5], others, row.speed)])
        first, fifth = self.together(), self.together(5)
        if first is not None and fifth is not None:
            others = [self.of_other(name) for name in (ATEN, DEFAULT)]
            rows.append(["together", *_figures(first, fifth, others, None)])
        header = ["part", "problems", "geomean", "p10", "worst", "top-5", "speed", ATEN, DEFAULT]
        return (
            f"{self.family}, each part judged by a model that learned from "
            f"{_LEARNED_FROM[self.kind]}:\n" + format_table(header, rows)
        )


def _figures(
    first: Summary, fifth: Summary, others: Sequence[Summary | None], speed: float | None
) -> list[str]:
    return [
        str(first.problems),
        *(f"{x:.3f}" for x in (first.geomean, first.p10, first.worst, fifth.geomean)),
        format_number(speed, ".3f"),
        *("" if other is None else f"{other.geomean:.3f}" for other in others),
    ]


def _summary(efficiency: list[float]) -> Summary | None:
    return Summary.make(np.array(efficiency)) if efficiency else None
