"""Validation reports, as their runs keep them (docs/validation.md), with their groups and the
distribution of efficiency. diode_engine.validation defines and reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from diode_engine.errors import NothingError, ReportError
from diode_engine.store import Store
from diode_engine.validation import Report, read_report
from diode_engine.validation.cross_validation import CrossValidation
from diode_engine.validation.metrics import M_ABOVE, M_BANDS, Summary, groups
from diode_engine.validation.report import Case

_WITHIN = 1.05  # of the best time
_WHOLE = ""  # the part that is the whole report
_KINDS = {"model": "transformer"}  # groups by another name than the report's, where it is clearer


class NoReportError(NothingError):
    """The run has left no report that can be shown."""


@dataclass(frozen=True)
class ChooserFigures:
    """Figures of a chooser's first choices: geometric mean, 10th percentile, the least, the share
    of problems within 5 % of the best, and the geometric mean of the best of the first five.
    `speed` is relative to max-autotune DEFAULT; `timed` is the mean number of kernels timed for a
    choice."""

    chooser: str
    problems: int
    geomean: float
    p10: float
    worst: float
    within: float
    fifth: float | None = None
    speed: float | None = None
    timed: float | None = None

    @classmethod
    def make(cls, chooser: str, efficiency: Sequence[float]) -> ChooserFigures:
        """Return the figures of at least one efficiency."""
        s = Summary.make(np.array(efficiency))
        within = sum(value * _WITHIN >= 1 for value in efficiency) / len(efficiency)
        return cls(chooser, s.problems, s.geomean, s.p10, s.worst, within)


@dataclass(frozen=True)
class ShownReport:
    """The result of a run of kind validate: a report, or one on each part of a cross-validation, by
    the part's name. `model` is what was judged; it is the first of `choosers`."""

    run: int
    model: str
    parts: Mapping[str, Report]
    choosers: tuple[ChooserFigures, ...]

    @property
    def name(self) -> str:
        """A name that differs from that of another report on the same model."""
        return f"{self.model} (run {self.run})"

    @property
    def whole(self) -> Report | None:
        """The report where it is one; None for a cross-validation, which judges no existing
        model."""
        return self.parts.get(_WHOLE)

    @property
    def hardware(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.hardware))

    @property
    def candidates(self) -> int:
        return sum(part.candidates for part in self.parts.values())

    @property
    def left_out(self) -> int:
        return sum(part.left_out for part in self.parts.values())

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for part in self.parts.values() for note in part.notes))

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The cases of all parts."""
        return tuple(case for part in self.parts.values() for case in part.cases)

    @cached_property
    def groups(self) -> tuple[Mapping[str, tuple[str, ...]], ...]:
        """The groups to which each of `cases` belongs, by kind; "part" is a kind in a
        cross-validation."""
        return tuple(
            {_KINDS.get(kind, kind): names for kind, names in groups(case.problem).items()}
            | ({"part": (name,)} if self.whole is None else {})
            for name, part in self.parts.items()
            for case in part.cases
        )

    def efficiency_of(self, chooser: str) -> dict[tuple[str, str], float]:
        """Return the efficiency of a chooser's first choice, by case. The model that the report
        judges is one of the choosers, by its name."""
        ours = chooser == self.model
        found = ((c, c.first if ours else c.other(chooser)) for c in self.cases)
        return {case.identity: value for case, value in found if value is not None}


@dataclass(frozen=True)
class Other:
    """What the report's model is compared with; `efficiency` is that on each case that both
    judge."""

    name: str
    efficiency: Mapping[tuple[str, str], float]


def report_of(store: Store, run: int) -> ShownReport:
    """Raises NoReportError where the run left none, or one that this Diode cannot read."""
    document = store.result(run)
    if document is None:
        raise NoReportError(f"Run {run} has left no report; validate again.")
    try:
        found = read_report(document, f"The report of run {run}")
    except ReportError as error:
        raise NoReportError(str(error)) from None
    return _whole(run, found) if isinstance(found, Report) else _crossed(run, found)


def _whole(run: int, report: Report) -> ShownReport:
    choosers = []
    for row in report.rows:
        if (found := _chooser(report.cases, row.chooser, row is report.rows[0])) is not None:
            fifth = row.top[5].geomean if 5 in row.top else None
            choosers.append(replace(found, fifth=fifth, speed=row.speed, timed=row.timed))
    return ShownReport(run, report.model, {_WHOLE: report}, tuple(choosers))


def _crossed(run: int, found: CrossValidation) -> ShownReport:
    """Return a cross-validation as one report."""
    cases = tuple(case for part in found.parts.values() for case in part.cases)
    model = f"{found.family}, {found.kind}"
    others = dict.fromkeys(name for case in cases for name in case.others)
    fifth = found.together(5)
    ours = _chooser(cases, model, True)
    if ours is not None and fifth is not None:
        ours = replace(ours, fifth=fifth.geomean)
    choosers = (ours, *(_chooser(cases, name, False) for name in others))
    known = tuple(chooser for chooser in choosers if chooser is not None)
    return ShownReport(run, model, found.parts, known)


def _chooser(cases: Sequence[Case], name: str, ours: bool) -> ChooserFigures | None:
    """Return the figures of a chooser; None where it chose nothing."""
    first = [c.first if ours else c.other(name) for c in cases]
    known = [value for value in first if value is not None]
    return ChooserFigures.make(name, known) if known else None


# Groups and curves


CURVES = 6  # at most, over each other
WITHIN = np.arange(61) * 0.005  # of the best: 0 to 30 %


def members(report: ShownReport, kind: str) -> dict[str, list[Case]]:
    """Return the cases in each group of a kind, in the groups' natural order."""
    found: dict[str, list[Case]] = {}
    for case, names in zip(report.cases, report.groups, strict=True):
        for name in names.get(kind, ()):
            found.setdefault(name, []).append(case)
    bands = [*(name for _, name in M_BANDS), M_ABOVE]
    order = [b for b in bands if b in found] if kind == "M" else sorted(found)
    return {name: found[name] for name in order}


@dataclass(frozen=True)
class ReportCurve:
    """The share of problems (in percent) within each of WITHIN (in percent) of the best."""

    name: str
    within: tuple[float, ...]
    share: tuple[float, ...]


def kinds(report: ShownReport) -> tuple[str, ...]:
    """Return the kinds of groups for which there can be curves."""
    found = [kind for kind in ("op", "dtype", "M", "layout", "part") if members(report, kind)]
    return ("chooser", *found)


def curves(report: ShownReport, against: Other | None, kind: str) -> tuple[ReportCurve, ...]:
    """Return the curves by chooser, with the model and the chooser that it is compared with first;
    or the model's by group, for the largest groups."""
    if kind == "chooser":
        named = {report.model: report.efficiency_of(report.model)}
        if against is not None:
            judged = {case.identity for case in report.cases}
            named[against.name] = {k: v for k, v in against.efficiency.items() if k in judged}
        named |= {
            c.chooser: report.efficiency_of(c.chooser)
            for c in report.choosers
            if c.chooser not in named
        }
        values = {name: list(found.values()) for name, found in named.items()}
    else:
        values = {
            f"{name} ({len(cases)})": [c.first for c in cases if c.first is not None]
            for name, cases in members(report, kind).items()
        }
        largest = sorted(values, key=lambda name: -len(values[name]))[:CURVES]
        values = {name: found for name, found in values.items() if name in largest}
    shown = [(name, found) for name, found in values.items() if found][:CURVES]
    percent = tuple((100 * WITHIN).tolist())
    return tuple(
        ReportCurve(
            name,
            percent,
            tuple((100 * np.mean(np.outer(found, 1 + WITHIN) >= 1, axis=0)).tolist()),
        )
        for name, found in shown
    )
