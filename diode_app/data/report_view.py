"""The validation report that a screen shows as rows of tables, beside another chooser's results on
the same problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from diode_app import text
from diode_app.data.columns import Column, make_row
from diode_app.data.pages import Row
from diode_app.data.problem import NoSuchProblemError
from diode_app.data.problem_columns import dtype, layout, short, sizes
from diode_app.data.problems import rows_of
from diode_app.data.reports import (
    ChooserFigures,
    NoReportError,
    Other,
    ShownReport,
    members,
    report_of,
)
from diode_engine.core.candidate import Candidate
from diode_engine.runs import Status, find
from diode_engine.store import Store
from diode_engine.store.query import problems
from diode_engine.validation import ATEN, DEFAULT
from diode_engine.validation.report import Case

TIE = 0.01  # efficiencies that differ by less are called the same
_BEST = "1 is as fast as the best kernel that was measured"


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
    figures = list(report.choosers)
    if against is not None and against.name not in {c.chooser for c in figures}:
        both = [against.efficiency[c.identity] for c in report.cases
                if c.identity in against.efficiency]  # fmt: skip
        if both:
            figures.append(ChooserFigures.make(against.name, both))
    figures.sort(key=lambda f: -f.geomean)
    return tuple(_figure(f, ours=f.chooser == report.model) for f in figures)


def _figure(figures: ChooserFigures, *, ours: bool) -> Row:
    shown = {"chooser": f"{'●' if ours else ' '} {figures.chooser}"}
    return make_row(figures.chooser, asdict(figures), FIGURES, shown)


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
    a = ChooserFigures.make("A", [ours for ours, _ in both or known])
    record: dict[str, Any] = {
        "kind": kind, "group": name, "problems": a.problems, "ours": a.geomean, "p10": a.p10,
        "within": a.within,
    }  # fmt: skip
    if both:
        b = ChooserFigures.make("B", [theirs for _, theirs in both])
        record |= {
            "theirs": b.geomean, "their_p10": b.p10, "their_within": b.within,
            "difference": a.geomean - b.geomean,
            "better": sum(ours > theirs * (1 + TIE) for ours, theirs in both),
            "worse": sum(theirs > ours * (1 + TIE) for ours, theirs in both),
        }  # fmt: skip
    shown = {"group": name if kind in ("all", "M", "dimension") else f"{kind} {name}"}
    return make_row(f"{kind}/{name}", record, GROUPS, shown)


# The cases


def _short(candidate: Candidate | None) -> str:
    return "" if candidate is None else short(candidate)


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
        "chosen": None if case.chosen is None else str(case.chosen), "chosen_us": case.chosen_us,
        "chosen_predicted_us": case.chosen_predicted_us,
        "best": str(case.best), "best_us": case.best_us,
        "best_predicted_us": case.best_predicted_us,
        "part": part, "gpu": case.environment.hardware.name,
        **{f"efficiency of {name}": value for name, value in case.others.items()},
    }  # fmt: skip
    shown = {
        "problem": sizes(p), "dtype": dtype(p), "layout": layout(p), "chosen": _short(case.chosen),
        "best": _short(case.best),
    }  # fmt: skip
    if case.chosen is not None and case.chosen_us is None:
        shown["chosen_us"] = "failed"
    return make_row(key, record, CASES, shown)


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
    report, other, why = None, None, None
    try:
        report = _wanted(store, wanted, None if before is None else before.report)
        other = None if report is None else _other(store, report, against, before)
    except NoReportError as error:
        why = str(error)
    if report is None:
        return ReportView(None, None, last, why, timings)
    if before is not None and report is before.report and other is before.against:
        shown = before.figures, before.groups, before.cases
    else:
        shown = (figure_rows(report, other), group_rows(report, other), case_rows(report, other))
    return ReportView(report, other, last, why, timings, *shown)


def _wanted(store: Store, wanted: int | None, before: ShownReport | None) -> ShownReport | None:
    if wanted is None:
        last = find(store, "kind:validate state:done", limit=1)
        if not last:
            return None
        wanted = last[0].run.id
    return before if before is not None and before.run == wanted else report_of(store, wanted)


def _other(
    store: Store, report: ShownReport, against: str | int | None, before: ReportView | None
) -> Other | None:
    names = [c.chooser for c in report.choosers if c.chooser != report.model]
    if isinstance(against, int):
        theirs = report_of(store, against)
        other = Other(theirs.name, theirs.efficiency_of(theirs.model))
    else:
        preferred = [name for name in (against, DEFAULT, ATEN) if name in names]
        name = next(iter([*preferred, *names]), None)
        if name is None:
            return None
        other = Other(name, report.efficiency_of(name))
    if before is not None and before.report is report and before.against == other:
        return before.against
    return other


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
