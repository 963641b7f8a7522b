"""Validation reports, as their runs keep them (docs/validation.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Candidate, Problem
from diode_engine.documents import shortened
from diode_engine.errors import NothingError

if TYPE_CHECKING:
    from diode_engine.store import Store

ATEN, DEFAULT = "ATen", "max-autotune DEFAULT"  # as reports call them
REPORT, CROSS = "diode-validation", "diode-cross-validation"
VERSION = 1
_KINDS = {"model": "transformer"}  # groups by another name than the document's, where it is clearer


class NoReportError(NothingError):
    """The run has left no report that could be shown."""


@dataclass(frozen=True)
class Taken:
    """A candidate with its times in microseconds; None where it failed or was not predicted."""

    candidate: Candidate
    us: float | None
    predicted_us: float | None


@dataclass(frozen=True)
class Case:
    """A problem in one environment. `efficiency` is of the model's first choice, `fifth` of the
    best of its first five, None where nothing was chosen; `others` are of other choosers' first
    choices; `groups` are those that it is counted in, by kind."""

    problem: Problem
    environment: Environment
    efficiency: float | None
    fifth: float | None
    confidence: float | None
    chosen: Taken | None
    best: Taken
    others: Mapping[str, float]
    groups: Mapping[str, tuple[str, ...]]

    def other(self, chooser: str) -> float | None:
        """Another chooser's efficiency: ATen's where that chooser could not say."""
        return self.others.get(chooser, self.others.get(ATEN))

    @property
    def identity(self) -> tuple[str, str]:
        """The same in two reports where they judge the same."""
        return self.problem.key, self.environment.key


@dataclass(frozen=True)
class Chooser:
    """Figures of the first choices: geometric mean, 10th percentile, the least, the share of
    problems within 5 % of the best, and the geometric mean of the best of the first five. `speed`
    is over max-autotune DEFAULT, `timed` the mean number of kernels timed for a choice."""

    name: str
    problems: int
    geomean: float
    p10: float
    worst: float
    within: float
    fifth: float | None
    speed: float | None
    timed: float | None


@dataclass(frozen=True)
class Report:
    """What a run of kind validate found. `choosers` has the model first; `calibration`, `errors`
    and `noise` are as in the document, None where they are not known, or of a
    cross-validation, which is of several models."""

    run: int
    model: str
    hardware: tuple[str, ...]
    unseen: bool | None
    candidates: int
    left_out: int
    unmeasured: int | None
    choosers: tuple[Chooser, ...]
    errors: Mapping[str, Any] | None
    calibration: Mapping[str, Any] | None
    noise: Mapping[str, Any] | None
    cases: tuple[Case, ...]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Told apart from another report on the same model."""
        return f"{self.model} (run {self.run})"

    @property
    def crossed(self) -> bool:
        """Whether it is a cross-validation, which judges no model that there is."""
        return "part" in self.cases[0].groups

    def of(self, chooser: str) -> dict[tuple[str, str], float]:
        """The efficiency of a chooser's first choice, by case; the model's own by its name."""
        ours = chooser == self.model
        found = ((c, c.efficiency if ours else c.other(chooser)) for c in self.cases)
        return {case.identity: value for case, value in found if value is not None}


@dataclass(frozen=True)
class Other:
    """Whom the report's model is held against: `efficiency` is of each case that both judge."""

    name: str
    efficiency: Mapping[tuple[str, str], float]


def report_of(store: Store, run: int) -> Report:
    """Raises NoReportError where the run left none, or one that this Diode cannot read."""
    document = store.result(run)
    if document is None:
        raise NoReportError(f"Run {run} has left no report; validate again.")
    try:
        kind, version = document["format"], document["version"]
        if kind not in (REPORT, CROSS) or type(version) is not int:
            raise NoReportError(f"What run {run} has left is not a report of a validation.")
        if version > VERSION:
            raise NoReportError(
                f"The report of run {run} is of version {version}, this Diode reads up to "
                f"{VERSION}; update Diode."
            )
        return _crossed(run, document) if kind == CROSS else _report(run, document)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise NoReportError(
            f"The report of run {run} is not as Diode writes it ({shortened(repr(error))}); "
            "validate again."
        ) from None


def _report(run: int, document: Mapping[str, Any]) -> Report:
    cases = _cases(document, "")
    ours, *others = document["choosers"]
    fifth = {row["chooser"]: row["top"].get("5", {}).get("geomean") for row in (ours, *others)}
    choosers = (
        _chooser(cases, row["chooser"], row is ours, fifth[row["chooser"]], row)
        for row in (ours, *others)
    )
    return Report(
        run=run,
        model=document["model"],
        hardware=tuple(document["hardware"]),
        unseen=document["unseen"],
        candidates=document["candidates"],
        left_out=document["left_out"],
        unmeasured=document["unmeasured"],
        choosers=tuple(chooser for chooser in choosers if chooser is not None),
        errors=_figures(document["errors"]),
        calibration=_figures(document["calibration"]),
        noise=_figures(document["noise"]),
        cases=cases,
        notes=tuple(document["notes"]),
    )


def _crossed(run: int, document: Mapping[str, Any]) -> Report:
    """A cross-validation as one report: all parts' cases, each of which knows its part."""
    parts = document["parts"]
    cases = tuple(case for name, part in parts.items() for case in _cases(part, name))
    model = f"{document['family']}, {document['kind']}"
    others = dict.fromkeys(name for case in cases for name in case.others)
    fifth = (document["top"].get("5") or {}).get("geomean")
    choosers = [_chooser(cases, model, True, fifth)]
    choosers += [_chooser(cases, name, False) for name in others]
    return Report(
        run=run,
        model=model,
        hardware=tuple(dict.fromkeys(name for part in parts.values() for name in part["hardware"])),
        unseen=True,
        candidates=sum(part["candidates"] for part in parts.values()),
        left_out=sum(part["left_out"] for part in parts.values()),
        unmeasured=None,
        choosers=tuple(chooser for chooser in choosers if chooser is not None),
        errors=None,
        calibration=None,
        noise=None,
        cases=cases,
        notes=tuple(dict.fromkeys(note for part in parts.values() for note in part["notes"])),
    )


def _cases(document: Mapping[str, Any], part: str) -> tuple[Case, ...]:
    environments = [Environment.from_dict(given) for given in document["environments"]]
    out = []
    for given in document["cases"]:
        efficiency = given["efficiency"] or {}
        problem, best = Problem.from_dict(given["problem"]), _taken(given["best"])
        assert best is not None
        out.append(
            Case(
                problem=problem,
                environment=environments[given["environment"]],
                efficiency=_number(efficiency.get("1")),
                fifth=_number(efficiency.get("5")),
                confidence=_number(given["confidence"]),
                chosen=_taken(given["chosen"]),
                best=best,
                others={name: _number(value) or 0.0 for name, value in given["others"].items()},
                groups=_groups(problem, part),
            )
        )
    return tuple(out)


def _groups(problem: Problem, part: str) -> dict[str, tuple[str, ...]]:
    """`part` is that of a cross-validation, else empty."""
    from diode_engine.validation.metrics import groups

    found = {_KINDS.get(kind, kind): names for kind, names in groups(problem).items()}
    return {**found, "part": (part,)} if part else found


def _taken(given: Mapping[str, Any] | None) -> Taken | None:
    if given is None:
        return None
    candidate = Candidate.from_dict({name: given[name] for name in ("template", "kwargs")})
    return Taken(candidate, _number(given["us"]), _number(given["predicted_us"]))


def _number(value: Any) -> float | None:
    """The number, from 0 up, or None. Raises TypeError for anything else."""
    if value is not None and (type(value) not in (int, float) or value < 0):
        raise TypeError(f"{shortened(repr(value))} is no number from 0 up")
    return value  # type: ignore[no-any-return]


def _figures(given: Any) -> Mapping[str, Any] | None:
    """The object, in which whatever is neither a list nor an object is a number or None. Raises
    TypeError."""
    inner = [given]
    while inner:
        value = inner.pop()
        if isinstance(value, dict | list):
            inner += value.values() if isinstance(value, dict) else value
        elif value is not None and type(value) not in (int, float):
            raise TypeError(f"{shortened(repr(value))} is no number")
    if not isinstance(given, dict | None):
        raise TypeError("figures must be an object")
    return given


def _chooser(
    cases: Sequence[Case],
    name: str,
    ours: bool,
    fifth: float | None = None,
    row: Mapping[str, Any] | None = None,
) -> Chooser | None:
    """`row` is its line in the document. None where it chose nothing."""
    import numpy as np

    from diode_engine.validation.metrics import Summary

    row = {} if row is None else row
    first = [c.efficiency if ours else c.other(name) for c in cases]
    known = [value for value in first if value is not None]
    if not known:
        return None
    s = Summary.of(np.array(known))
    return Chooser(
        name, s.problems, s.geomean, s.p10, s.worst, share_within(known), _number(fifth),
        _number(row.get("speed")), _number(row.get("timed")),
    )  # fmt: skip


def share_within(efficiency: Sequence[float], slower: float = 0.05) -> float:
    """The share of problems on which the choice took at most so much longer than the best."""
    return sum(value * (1 + slower) >= 1 for value in efficiency) / len(efficiency)
