"""A validation report (docs/validation.md) as a screen shows it: the figures of each chooser, of
groups and of cases, beside another chooser's results on the same problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from diode_app import text
from diode_app.data.problem import NoSuchProblemError
from diode_app.data.problem_columns import dtype, layout, short, sizes
from diode_app.data.problems import rows_of
from diode_app.data.tables import Column, Row, make_row
from diode_engine.errors import NothingError, ReportError
from diode_engine.runs import Status, find
from diode_engine.store import Store
from diode_engine.store.query import problems
from diode_engine.validation import ATEN, DEFAULT, Report, read_report
from diode_engine.validation.cross_validation import CrossValidation
from diode_engine.validation.metrics import M_ABOVE, M_BANDS, Summary, groups
from diode_engine.validation.report import Case, TimedKernel

_WITHIN = 1.05  # of the best time
_WHOLE = ""  # the part that is the whole report
_KINDS = {"model": "transformer"}  # groups by another name than the report's, where it is clearer
TIE = 0.01  # efficiencies that differ by less are called the same
_BEST = "1 is as fast as the best kernel that was measured"

Figures = Mapping[str, Any]  # see `figures_of`


class NoReportError(NothingError):
    """The run has left no report that can be shown."""


def figures_of(efficiency: Sequence[float], **more: float | None) -> Figures:
    """Return the figures of a chooser's first choices on at least one problem: how many `problems`
    there are, geometric mean, 10th percentile and `worst` of the efficiencies, and the share of
    problems `within` 5 % of the best; and `more`: the geometric mean of the best of the first five
    (`fifth`), the `speed` relative to max-autotune DEFAULT, and the mean number of kernels that are
    `timed` for a choice."""
    within = sum(value * _WITHIN >= 1 for value in efficiency) / len(efficiency)
    return {**asdict(Summary.make(np.array(efficiency))), "within": within, **more}


@dataclass(frozen=True)
class ShownReport:
    """The result of a run of kind validate: a report, or one on each part of a cross-validation, by
    the part's name. `model` is what was judged; it is the first of the `choosers`, of which there
    are the figures by name."""

    run: int
    model: str
    parts: Mapping[str, Report]
    choosers: Mapping[str, Figures]

    @property
    def whole(self) -> Report | None:
        """The report where it is one; None for a cross-validation, which judges no existing
        model."""
        return self.parts.get(_WHOLE)

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
    choosers = {}
    for row in report.choosers:
        if first := _first_choices(report.cases, row.chooser, row is report.choosers[0]):
            fifth = row.top[5].geomean if 5 in row.top else None
            choosers[row.chooser] = figures_of(first, fifth=fifth, speed=row.speed, timed=row.timed)
    return ShownReport(run, report.model, {_WHOLE: report}, choosers)


def _crossed(run: int, found: CrossValidation) -> ShownReport:
    """Return a cross-validation as one report."""
    cases = [case for part in found.parts.values() for case in part.cases]
    model = f"{found.family}, {found.kind}"
    choosers = {}
    for name in (model, *dict.fromkeys(name for case in cases for name in case.others)):
        if first := _first_choices(cases, name, name == model):
            fifth = found.together(5) if name == model else None
            choosers[name] = figures_of(first, fifth=None if fifth is None else fifth.geomean)
    return ShownReport(run, model, found.parts, choosers)


def _first_choices(cases: Sequence[Case], name: str, ours: bool) -> list[float]:
    """Return the efficiencies of a chooser's first choices."""
    first = [case.first if ours else case.other(name) for case in cases]
    return [value for value in first if value is not None]


# Groups and curves


CURVES = 6  # at most, over each other
_SHARES = np.arange(61) * 0.005  # of the best: 0 to 30 %
PERCENT = tuple((100 * _SHARES).tolist())


def members(report: ShownReport, kind: str) -> dict[str, list[Case]]:
    """Return the cases in each group of a kind, in the groups' natural order."""
    found: dict[str, list[Case]] = {}
    for case, names in zip(report.cases, report.groups, strict=True):
        for name in names.get(kind, ()):
            found.setdefault(name, []).append(case)
    bands = [*(name for _, name in M_BANDS), M_ABOVE]
    order = [b for b in bands if b in found] if kind == "M" else sorted(found)
    return {name: found[name] for name in order}


def kinds(report: ShownReport) -> tuple[str, ...]:
    """Return the kinds of groups for which there can be curves."""
    found = [kind for kind in ("op", "dtype", "M", "layout", "part") if members(report, kind)]
    return ("chooser", *found)


def curves(report: ShownReport, against: Other | None, kind: str) -> dict[str, list[float]]:
    """Return the share of problems (in percent) within each of PERCENT of the best: by chooser, the
    model and the chooser that it is compared with first; or the model's by group, for the largest
    groups."""
    if kind == "chooser":
        named = {report.model: report.efficiency_of(report.model)}
        if against is not None:
            judged = {case.identity for case in report.cases}
            named[against.name] = {k: v for k, v in against.efficiency.items() if k in judged}
        named |= {name: report.efficiency_of(name) for name in report.choosers if name not in named}
        values = {name: list(found.values()) for name, found in named.items()}
    else:
        values = {
            f"{name} ({len(cases)})": [c.first for c in cases if c.first is not None]
            for name, cases in members(report, kind).items()
        }
        largest = sorted(values, key=lambda name: -len(values[name]))[:CURVES]
        values = {name: found for name, found in values.items() if name in largest}
    shown = [(name, found) for name, found in values.items() if found][:CURVES]
    return {
        name: (100 * np.mean(np.outer(found, 1 + _SHARES) >= 1, axis=0)).tolist()
        for name, found in shown
    }


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _decimals(digits: int) -> Callable[[float | None], str]:
    return lambda value: "" if value is None else f"{value:.{digits}f}"


def _number(
    key: str, label: str, show: Callable[[Any], str], meaning: str, rank: int = 0
) -> Column:
    return Column(key, label, meaning, show, right=True, rank=rank)


# The choosers


FIGURES = (
    Column("chooser", "who chooses", "a model, the library, max-autotune, or another that chooses"),
    _number("geomean", "of best", text.ratio, f"the geometric mean of its efficiencies; {_BEST}"),
    _number("p10", "p10", text.ratio, "a tenth of the problems has an efficiency below this"),
    _number("worst", "worst", text.ratio, "its efficiency on the problem where it is worst", 3),
    _number("within", "≤5 %", _percent, "the share of problems within 5 % of the best, in %", 2),
    _number("fifth", "top-5", text.ratio,
            "the geometric mean where the best of its first five is taken", 4),
    _number("speed", "speed", text.ratio, "max-autotune DEFAULT's time over its own, a geometric "
            "mean; above 1 it is faster", 1),
    _number("timed", "timed", _decimals(0),
            "kernels that it times at compile for one choice, on average", 5),
    _number("problems", "problems", text.count, "how many problems it was judged on", 6),
)  # fmt: skip


def figure_rows(report: ShownReport, against: Other | None) -> tuple[Row, ...]:
    """Return a row for each chooser, the best first. Another report's model is judged on the
    problems of both."""
    figures = dict(report.choosers)
    if against is not None and against.name not in figures:
        both = [against.efficiency[c.identity] for c in report.cases
                if c.identity in against.efficiency]  # fmt: skip
        if both:
            figures[against.name] = figures_of(both)
    ordered = sorted(figures, key=lambda name: -figures[name]["geomean"])
    return tuple(
        make_row(
            name,
            {"chooser": name, **figures[name]},
            FIGURES,
            {"chooser": f"{'●' if name == report.model else ' '} {name}"},
        )
        for name in ordered
    )


# The groups


GROUPS = (
    Column("group", "group", "problems with something in common; Enter lists their cases"),
    _number("problems", "problems", text.count, "in this group", 3),
    _number("ours", "A", text.ratio, "A's geometric mean of efficiencies"),
    _number("theirs", "B", text.ratio, "B's", 1),
    _number("difference", "A − B", text.difference, "A's minus B's", 2),
    _number("better", "A better", _decimals(0), "problems where A is faster by more than 1 %", 4),
    _number("worse", "B better", _decimals(0), "problems where B is faster by more than 1 %", 5),
    _number("p10", "A p10", text.ratio, "a tenth of A's efficiencies is below this", 6),
    _number("their_p10", "B p10", text.ratio, "a tenth of B's efficiencies is below this", 7),
    _number("within", "A ≤5 %", _percent, "A's share of problems within 5 % of the best, in %", 8),
    _number("their_within", "B ≤5 %", _percent, "B's", 9),
)  # fmt: skip


def group_rows(report: ShownReport, against: Other | None) -> tuple[Row, ...]:
    """Return a row for all cases and for each group: the model, the other chooser, and how often
    each is better."""
    rows = [_group("all", "all problems", report.cases, against)]
    for kind in ("part", "op", "dtype", "M", "layout", "dimension", "held out by", "transformer"):
        rows += [
            _group(kind, name, cases, against) for name, cases in members(report, kind).items()
        ]
    return tuple(row for row in rows if row is not None)


def _group(kind: str, name: str, cases: Sequence[Case], against: Other | None) -> Row | None:
    """On the problems that both judge, where there are any."""
    other = {} if against is None else against.efficiency
    known = [(c.first, other.get(c.identity)) for c in cases if c.first is not None]
    both = [(ours, theirs) for ours, theirs in known if theirs is not None]
    if not known:
        return None
    a = figures_of([ours for ours, _ in both or known])
    record: dict[str, Any] = {
        "kind": kind, "group": name, "problems": a["problems"], "ours": a["geomean"],
        "p10": a["p10"], "within": a["within"],
    }  # fmt: skip
    if both:
        b = figures_of([theirs for _, theirs in both])
        record |= {
            "theirs": b["geomean"], "their_p10": b["p10"], "their_within": b["within"],
            "difference": a["geomean"] - b["geomean"],
            "better": sum(ours > theirs * (1 + TIE) for ours, theirs in both),
            "worse": sum(theirs > ours * (1 + TIE) for ours, theirs in both),
        }  # fmt: skip
    shown = {"group": name if kind in ("all", "M", "dimension") else f"{kind} {name}"}
    return make_row(f"{kind}/{name}", record, GROUPS, shown)


# The cases


CASES = (
    Column("problem", "problem", "operator and sizes M×N×K"),
    Column("dtype", "dtype", "the operands' type", rank=4),
    _number("efficiency", "A", text.ratio, "A's: the best measured time divided by that of its "
            f"choice; {_BEST}"),
    _number("other", "B", text.ratio, "B's", 2),
    _number("difference", "A − B", text.difference, "A's minus B's", 3),
    _number("sure", "sure", _decimals(2),
            "how probable A says it is that its choice is within 5 % of the best", 5),
    Column("chosen", "chosen", "A's choice", rank=1),
    _number("chosen_us", "µs", text.microseconds, "its measured time, in µs", 6),
    _number("chosen_predicted_us", "pred.", text.microseconds,
            "the time that A predicts for it, in µs", 7),
    Column("best", "best", "the fastest that was measured", rank=8),
    _number("best_us", "µs", text.microseconds, "its measured time, in µs", 9),
    _number("best_predicted_us", "pred.", text.microseconds,
            "the time that A predicts for it, in µs", 10),
    Column("layout", "layout", "how the two operands lie in memory", rank=11),
    Column("part", "part", "of a cross-validation: which part it is of", rank=12),
)  # fmt: skip


def case_rows(report: ShownReport, against: Other | None) -> tuple[Row, ...]:
    theirs = {} if against is None else against.efficiency
    return tuple(
        _case(str(place), case, "".join(groups.get("part", ())), theirs.get(case.identity))
        for place, (case, groups) in enumerate(zip(report.cases, report.groups, strict=True))
    )


def _case(key: str, case: Case, part: str, other: float | None) -> Row:
    p, ours = case.problem, case.first
    record: dict[str, Any] = {
        "problem": str(p), "key": p.key, **p.to_dict(), "efficiency": ours, "other": other,
        "difference": None if ours is None or other is None else ours - other,
        "sure": case.confidence,
        **_kernel("chosen", case.chosen), **_kernel("best", case.best),
        "part": part, "gpu": case.environment.hardware.name,
        **{f"efficiency of {name}": value for name, value in case.others.items()},
    }  # fmt: skip
    shown = {
        "problem": sizes(p), "dtype": dtype(p), "layout": layout(p),
        "chosen": short(case.chosen.candidate if case.chosen else None),
        "best": short(case.best.candidate),
    }  # fmt: skip
    if case.chosen is not None and case.chosen.us is None:
        shown["chosen_us"] = "failed"
    return make_row(key, record, CASES, shown)


def _kernel(name: str, kernel: TimedKernel | None) -> dict[str, Any]:
    """Return the kernel and its times, for the columns of this name."""
    values = (None, None, None) if kernel is None else (str(kernel), kernel.us, kernel.predicted_us)
    return dict(zip((name, f"{name}_us", f"{name}_predicted_us"), values, strict=True))


# What is shown


@dataclass(frozen=True)
class ReportView:
    """The report that is shown, None where there is none, and what it is compared with. `last` is
    the last validation, where it is not done. `why` says what is wrong with the report that should
    be shown; `timings` says whether the store has any."""

    report: ShownReport | None
    against: Other | None
    last: Status | None
    why: str | None
    timings: bool
    figures: tuple[Row, ...] = ()
    groups: tuple[Row, ...] = ()
    cases: tuple[Row, ...] = ()


def report_view(
    store: Store, wanted: int | None, against: str | int | None, before: ReportView | None
) -> ReportView:
    """Return the report of this run (None: the last one), compared with this chooser or with the
    report of this run (None: max-autotune DEFAULT). What `before` has read already is not read
    again."""
    newest = next(iter(find(store, "kind:validate", limit=1)), None)
    last = None if newest is None or newest.state == "done" else newest
    timings = bool(problems(store, limit=1))
    if wanted is None:
        done = find(store, "kind:validate state:done", limit=1)
        wanted = done[0].run.id if done else None
    if wanted is None:
        return ReportView(None, None, last, None, timings)
    report, other, why = None if before is None else before.report, None, None
    if report is not None and report.run != wanted:
        report = None
    try:
        report = report or report_of(store, wanted)
        other = _other(store, report, against)
    except NoReportError as error:
        why = str(error)
    if report is None:
        return ReportView(None, None, last, why, timings)
    if before is not None and report is before.report and other == before.against:
        shown = before.figures, before.groups, before.cases
    else:
        shown = (figure_rows(report, other), group_rows(report, other), case_rows(report, other))
    return ReportView(report, other, last, why, timings, *shown)


def _other(store: Store, report: ShownReport, against: str | int | None) -> Other | None:
    if isinstance(against, int):
        theirs = report_of(store, against)
        # With the run: there may be several reports on a model.
        judged = f"{theirs.model} (run {theirs.run})"
        return Other(judged, theirs.efficiency_of(theirs.model))
    names = [name for name in report.choosers if name != report.model]
    preferred = [name for name in (against, DEFAULT, ATEN) if name in names]
    name = next(iter([*preferred, *names]), None)
    return None if name is None else Other(name, report.efficiency_of(name))


def environment_of(store: Store, case: Case) -> int:
    """Return the number of the case's environment in the store. Raises NoSuchProblemError where the
    store does not have the problem in it."""
    for row in rows_of(store, case.problem.key):
        if row.environment == case.environment:
            return row.environment_number
    raise NoSuchProblemError(
        f"The store has no timings of {case.problem} any more, or none on the GPU and software of "
        "the report."
    )


def name_judged(status: Status) -> str:
    """Return what a validation judges: a model, or a way of making models."""
    run = status.run
    told = (run.progress or {}).get("judged") or run.spec.get("model")
    if told is not None:
        return str(told)
    kind = run.spec.get("cross_validate")
    return "the model in use" if kind is None else f"{run.spec.get('family')}, {kind}"


def reports(store: Store) -> tuple[tuple[int, str], ...]:
    """(run, what it judged) for the finished validations, the last one first."""
    return tuple(
        (status.run.id, name_judged(status)) for status in find(store, "kind:validate state:done")
    )
