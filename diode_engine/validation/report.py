"""The report on a model, and its form as JSON: versioned, with a table of the cases from which
everything can be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Candidate, Problem
from diode_engine.validation.calibration import Calibration
from diode_engine.validation.choosers import ATEN
from diode_engine.validation.compile_time import CompileTime
from diode_engine.validation.metrics import Errors, Summary
from diode_engine.validation.noise import Noise

FORMAT = "diode-validation"
VERSION = 1
KS = (1, 3, 5, 10)


@dataclass(frozen=True)
class ChooserRow:
    """One chooser. `top` has a summary for each k of KS, or only for 1 where the chooser does
    not rank; `answered` is the number of problems on which it could say something: on the
    others ATen is taken, and what has no ATen either is not among `top[1].problems`.
    `timed` is the mean number of kernels timed at compile for the choice of one; `speed` the
    geometric mean of max-autotune DEFAULT's time over that of the choice, None where DEFAULT was
    not measured; `groups` has a summary of the first choice for each op, dtype, M, layout,
    dimension and named transformer."""

    chooser: str
    timed: float
    answered: int
    speed: float | None
    top: Mapping[int, Summary]
    groups: Mapping[str, Mapping[str, Summary]]


@dataclass(frozen=True)
class Case:
    """One problem in one environment, and what the model chose: times in microseconds, None
    where it failed, was not measured or nothing was predicted.

    `efficiency` has the model's for each k of KS, ATen's where the model cannot say; None where
    there is neither. `chosen` is None where the model cannot say. `compiled` is its choice among
    all that Inductor offers; `confidence` is in the choice among what was measured.
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
    compiled: CompileTime | None

    @property
    def first(self) -> float | None:
        """The efficiency of the model's first choice."""
        return None if self.efficiency is None else self.efficiency[1]

    def other(self, chooser: str) -> float | None:
        """Another chooser's efficiency: ATen's where that chooser could not say."""
        return self.others.get(chooser, self.others.get(ATEN))

    @property
    def identity(self) -> tuple[str, str]:
        """The same in two reports where they judge the same."""
        return self.problem.key, self.environment.key

    def to_dict(self, environment: int) -> dict[str, Any]:
        """As JSON has it; `environment` is its place among the report's."""
        compiled = self.compiled
        return {
            "key": self.problem.key,
            "problem": self.problem.to_dict(),
            "environment": environment,
            "efficiency": None
            if self.efficiency is None
            else {str(k): value for k, value in self.efficiency.items()},
            "confidence": self.confidence,
            "chosen": _candidate(self.chosen, self.chosen_us, self.chosen_predicted_us),
            "best": _candidate(self.best, self.best_us, self.best_predicted_us),
            "others": dict(self.others),
            "compiled": None
            if compiled is None or compiled.choice is None
            else {
                **compiled.choice.to_dict(),
                "measured": compiled.measured,
                "confidence": compiled.confidence,
            },
        }


@dataclass(frozen=True)
class Report:
    """What `evaluate` found; the model's row is the first. A problem here is one in one
    environment; `left_out` are those with fewer than two timed candidates.

    `unseen` tells whether the model had seen none of the problems in training; None: nobody
    knows. `errors` is None where nothing was predicted, `calibration` where the model does not
    say how sure it is.
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
        """The model's: geometric mean of its first choices."""
        return self.rows[0].top[1].geomean

    @property
    def unmeasured(self) -> int | None:
        """On how many problems the model would take a kernel at compile time that was not
        measured; None of predictions alone."""
        compiled = [case.compiled for case in self.cases if case.compiled is not None]
        if not compiled:
            return None
        return sum(c.choice is not None and not c.measured for c in compiled)

    def worst(self, n: int) -> list[Case]:
        """The cases that the model chose worst on, the worst first; only those where another
        candidate was faster."""
        chosen = [case for case in self.cases if case.chosen is not None and case.efficiency]
        chosen.sort(key=lambda case: (case.efficiency or {})[1])
        return [case for case in chosen[:n] if (case.efficiency or {})[1] < 1]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (docs/validation.md): NaN is None, a k is a text, a case's environment
        is its place in `environments`. `reading.read_report` is the inverse."""
        environments = list(dict.fromkeys(case.environment for case in self.cases))
        places = {environment: i for i, environment in enumerate(environments)}
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "hardware": list(self.hardware),
            "unseen": self.unseen,
            "problems": self.problems,
            "candidates": self.candidates,
            "left_out": self.left_out,
            "unmeasured": self.unmeasured,
            "choosers": [
                {**asdict(row), "top": {str(k): asdict(summary) for k, summary in row.top.items()}}
                for row in self.rows
            ],
            "errors": None
            if self.errors is None
            else {
                name: None if math.isnan(value) else value
                for name, value in asdict(self.errors).items()
            },
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "noise": asdict(self.noise),
            "environments": [environment.to_dict() for environment in environments],
            "cases": [case.to_dict(places[case.environment]) for case in self.cases],
            "notes": list(self.notes),
        }


def _candidate(
    candidate: Candidate | None, us: float | None, predicted_us: float | None
) -> dict[str, Any] | None:
    if candidate is None:
        return None
    return {**candidate.to_dict(), "us": us, "predicted_us": predicted_us}
