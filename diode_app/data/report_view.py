"""The validation report that a screen shows, and what its model is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diode_app.data.pages import Row
from diode_app.data.problem import NoSuchProblemError
from diode_app.data.problems import rows_of
from diode_app.data.report_rows import case_rows, figure_rows, group_rows
from diode_app.data.reports import NoReportError, Other, ShownReport, report_of

if TYPE_CHECKING:
    from diode_engine.runs import Status
    from diode_engine.store import Store
    from diode_engine.validation.report import Case


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
    from diode_engine.runs import find
    from diode_engine.store.query import problems

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
    from diode_engine.runs import find

    if wanted is None:
        last = find(store, "kind:validate state:done", limit=1)
        if not last:
            return None
        wanted = last[0].run.id
    return before if before is not None and before.run == wanted else report_of(store, wanted)


def _other(
    store: Store, report: ShownReport, against: str | int | None, before: ReportView | None
) -> Other | None:
    from diode_engine.validation import ATEN, DEFAULT

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
    from diode_engine.runs import find

    return tuple(
        (status.run.id, name_judged(status)) for status in find(store, "kind:validate state:done")
    )
