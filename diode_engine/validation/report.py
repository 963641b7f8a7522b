"""The report on a model, and its form as JSON: versioned, with a table of the cases from which
everything can be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import decode_fields, encode, encode_fields
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
class _Kernel:
    """A record with a candidate, whose fields are beside the record's others in JSON."""

    candidate: Candidate

    def to_dict(self) -> dict[str, Any]:
        made = encode_fields(self)
        return {**made.pop("candidate"), **made}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        candidate = {name: given[name] for name in ("template", "kwargs")}
        found: Self = decode_fields(cls, {**given, "candidate": candidate})
        return found

    def __str__(self) -> str:
        return str(self.candidate)


@dataclass(frozen=True)
class TimedKernel(_Kernel):
    """A kernel with its measured and its predicted time in microseconds; None where it failed, was
    not measured or was not predicted."""

    us: float | None
    predicted_us: float | None


@dataclass(frozen=True)
class CompiledChoice(_Kernel):
    """The choice that a compile makes among all that Inductor offers, and how sure the model is of
    it. `measured` says whether its time is known."""

    measured: bool
    confidence: float | None


@dataclass(frozen=True)
class Case:
    """One problem in one environment, and what the model chose.

    `efficiency` is that of the best of the model's first k choices, for each k of KS. Where the
    model has no prediction it is ATen's, and None where ATen was not measured either. `chosen` is
    the model's choice among the measured candidates and `compiled` that among all that Inductor
    offers, each None where the model has no prediction; `confidence` is how sure the model is of
    `chosen`. `best` is the fastest measured candidate.
    """

    problem: Problem
    environment: Environment
    efficiency: Mapping[int, float] | None
    confidence: float | None
    chosen: TimedKernel | None
    best: TimedKernel
    others: Mapping[str, float]  # by chooser: the efficiency of its first choice
    compiled: CompiledChoice | None

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


@dataclass(frozen=True)
class Report:
    """The result of `evaluate`; the model is the first of the `choosers`. A problem counts once for
    each environment that it was timed in.

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
    errors: Errors | None
    calibration: Calibration | None
    noise: Noise
    cases: tuple[Case, ...]
    notes: tuple[str, ...]
    choosers: tuple[ChooserRow, ...]

    def row(self, chooser: str) -> ChooserRow | None:
        """The row of this name (choosers.ATEN, …); None where it could not be asked."""
        return next((row for row in self.choosers if row.chooser == chooser), None)

    @property
    def efficiency(self) -> float:
        """The geometric mean of the model's first choices."""
        return self.choosers[0].top[1].geomean

    @property
    def unmeasured(self) -> int:
        """On how many problems the model would take a kernel at compile time that was not
        measured."""
        compiled = [case.compiled for case in self.cases]
        return sum(choice is not None and not choice.measured for choice in compiled)

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
        made = encode_fields(self)
        if made["errors"] is not None:
            made["errors"] = {
                name: None if math.isnan(value) else value for name, value in made["errors"].items()
            }
        made["cases"] = [
            {"key": case.problem.key, **given, "environment": places[case.environment]}
            for case, given in zip(self.cases, made["cases"], strict=True)
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            **made,
            "unmeasured": self.unmeasured,
            "environments": encode(environments),
        }
