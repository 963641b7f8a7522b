"""The report on a model, and its form as JSON: versioned, with a table of the cases from which
everything can be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import encode, encode_fields
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.validation.calibration import Calibration
from diode_engine.validation.choosers import ATEN
from diode_engine.validation.metrics import Errors, Noise, Summary

FORMAT = "diode-validation"
VERSION = 1
KS = (1, 3, 5, 10)


@dataclass(frozen=True)
class ChooserRow:
    """One chooser.

    `top` has a summary for each k of KS, or only for 1 where the chooser does not rank. `answered`
    is the number of problems for which it had an answer; on the others ATen's kernel counts, and a
    problem without ATen too is not among `top[1].problems`. `timed` is the mean number of kernels
    timed at compile to choose one. `speed` is the geometric mean of max-autotune DEFAULT's time
    over the choice's, None where DEFAULT was not measured. `groups` has a summary of the first
    choice for each op, dtype, M, layout, dimension and named transformer.
    """

    chooser: str
    timed: float
    answered: int
    speed: float | None
    top: Mapping[int, Summary]
    groups: Mapping[str, Mapping[str, Summary]]


@dataclass(frozen=True)
class CompileTime:
    """The choice that a compile makes among all that Inductor offers, and how sure the model is of
    it; None where the model has no prediction. `measured` says whether its time is known."""

    choice: Candidate | None
    measured: bool
    confidence: float | None


@dataclass(frozen=True)
class Case:
    """One problem in one environment, and what the model chose. Times are in microseconds; None
    where the candidate failed, was not measured or was not predicted.

    `efficiency` is that of the best of the model's first k choices, for each k of KS. Where the
    model has no prediction it is ATen's, and None where ATen was not measured either. `chosen` is
    the model's choice among the measured candidates, None where it has no prediction, and
    `confidence` how sure the model is of it. `compiled` is its choice among all that Inductor
    offers.
    """

    problem: Problem
    environment: Environment
    efficiency: Mapping[int, float] | None
    confidence: float | None
    chosen: Candidate | None
    chosen_us: float | None
    chosen_predicted_us: float | None
    best: Candidate
    best_us: float
    best_predicted_us: float | None
    others: Mapping[str, float]  # by chooser: the efficiency of its first choice
    compiled: CompileTime

    @property
    def first(self) -> float | None:
        """The efficiency of the model's first choice."""
        return None if self.efficiency is None else self.efficiency[1]

    def other(self, chooser: str) -> float | None:
        """Another chooser's efficiency: ATen's where that chooser had no answer."""
        return self.others.get(chooser, self.others.get(ATEN))

    @property
    def identity(self) -> tuple[str, str]:
        """Equal for two cases of the same problem in the same environment."""
        return self.problem.key, self.environment.key

    def to_dict(self, environment: int) -> dict[str, Any]:
        """As JSON; `environment` is its index in the report's."""
        compiled = self.compiled
        return {
            "key": self.problem.key,
            "problem": self.problem.to_dict(),
            "environment": environment,
            "efficiency": encode(self.efficiency),
            "confidence": self.confidence,
            "chosen": _candidate(self.chosen, self.chosen_us, self.chosen_predicted_us),
            "best": _candidate(self.best, self.best_us, self.best_predicted_us),
            "others": dict(self.others),
            "compiled": None
            if compiled.choice is None
            else {
                **compiled.choice.to_dict(),
                "measured": compiled.measured,
                "confidence": compiled.confidence,
            },
        }


@dataclass(frozen=True)
class Report:
    """The result of `evaluate`; the model's row is the first. A problem counts once for each
    environment that it was timed in.

    `left_out` counts the problems with fewer than two timed candidates. `unseen` says whether the
    model had seen none of the problems in training; None: not known. `errors` is None where nothing
    was predicted, `calibration` where the model has no confidence.
    """

    model: str
    hardware: tuple[str, ...]
    unseen: bool | None
    problems: int
    candidates: int
    left_out: int
    rows: tuple[ChooserRow, ...]
    errors: Errors | None
    calibration: Calibration | None
    noise: Noise
    cases: tuple[Case, ...]
    notes: tuple[str, ...]

    def row(self, chooser: str) -> ChooserRow | None:
        """The row of this name (choosers.ATEN, …); None where it could not be asked."""
        return next((row for row in self.rows if row.chooser == chooser), None)

    @property
    def efficiency(self) -> float:
        """The geometric mean of the model's first choices."""
        return self.rows[0].top[1].geomean

    @property
    def unmeasured(self) -> int:
        """On how many problems the model would take a kernel at compile time that was not
        measured."""
        compiled = [case.compiled for case in self.cases]
        return sum(c.choice is not None and not c.measured for c in compiled)

    def worst(self, n: int) -> list[Case]:
        """The cases with the worst choices, the worst first; only those where another candidate was
        faster."""
        chosen = [case for case in self.cases if case.chosen is not None and case.efficiency]
        chosen.sort(key=lambda case: (case.efficiency or {})[1])
        return [case for case in chosen[:n] if (case.efficiency or {})[1] < 1]

    def to_dict(self) -> dict[str, Any]:
        """As JSON (docs/validation.md): NaN becomes None, a k becomes a text, and a case's
        environment its index in `environments`. `reading.read_report` is the inverse."""
        environments = list(dict.fromkeys(case.environment for case in self.cases))
        places = {environment: i for i, environment in enumerate(environments)}
        made = encode_fields(replace(self, cases=()))
        made["choosers"] = made.pop("rows")
        if made["errors"] is not None:
            made["errors"] = {
                name: None if math.isnan(value) else value for name, value in made["errors"].items()
            }
        return {
            "format": FORMAT,
            "version": VERSION,
            **made,
            "unmeasured": self.unmeasured,
            "environments": encode(environments),
            "cases": [case.to_dict(places[case.environment]) for case in self.cases],
        }


def _candidate(
    candidate: Candidate | None, us: float | None, predicted_us: float | None
) -> dict[str, Any] | None:
    if candidate is None:
        return None
    return {**candidate.to_dict(), "us": us, "predicted_us": predicted_us}
