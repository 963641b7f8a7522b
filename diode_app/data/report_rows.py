"""A validation report as rows of tables, beside another chooser's results on the same problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.pages import Row
from diode_app.data.problems import dtype, short
from diode_app.data.report_curves import members
from diode_app.data.reports import Other, ShownReport, share_within

if TYPE_CHECKING:
    from diode_engine.core.candidate import Candidate
    from diode_engine.core.problem import Problem
    from diode_engine.validation.report import Case

TIE = 0.01  # efficiencies that differ by less are called the same


def figure_rows(report: ShownReport, against: Other | None) -> tuple[Row, ...]:
    """A row for each chooser, the best first. Another report's model is judged on the problems of
    both."""
    rows = [
        _figure(
            c.name, c.problems, (c.geomean, c.p10, c.worst, c.within), c.fifth, c.speed, c.timed,
            ours=c.name == report.model,
        )
        for c in report.choosers
    ]  # fmt: skip
    if against is not None and against.name not in {c.name for c in report.choosers}:
        both = [against.efficiency[c.identity] for c in report.cases
                if c.identity in against.efficiency]  # fmt: skip
        if both:
            rows.append(_figure(against.name, len(both), _summary(both)))
    return tuple(sorted(rows, key=lambda row: -row.record["geomean"]))


def _summary(efficiency: Sequence[float]) -> tuple[float, float, float, float]:
    """(geometric mean, 10th percentile, least, share within 5 %) of at least one value."""
    import numpy as np

    from diode_engine.validation.metrics import Summary

    s = Summary.of(np.array(efficiency))
    return s.geomean, s.p10, s.worst, share_within(efficiency)


def _figure(
    name: str,
    problems: int,
    summary: tuple[float, float, float, float],
    fifth: float | None = None,
    speed: float | None = None,
    timed: float | None = None,
    *,
    ours: bool = False,
) -> Row:
    geomean, p10, worst, within = summary
    record = {
        "chooser": name, "problems": problems, "geomean": geomean, "p10": p10, "worst": worst,
        "within": within, "fifth": fifth, "speed": speed, "timed": timed,
    }  # fmt: skip
    shown = {
        "chooser": f"{'●' if ours else ' '} {name}",
        "bar": text.bar(geomean, 30),
        "geomean": text.ratio(geomean),
        "p10": text.ratio(p10),
        "worst": text.ratio(worst),
        "within": f"{100 * within:.0f} %",
        "fifth": text.ratio(fifth),
        "speed": text.ratio(speed),
        "timed": "" if timed is None else f"{timed:.0f}",
        "problems": f"{problems:,}",
    }
    return Row(name, shown, record)


def group_rows(report: ShownReport, against: Other | None) -> tuple[Row, ...]:
    """A row for all cases and for each group: the model, the other chooser, and how often each is
    better."""
    rows = [_group("all", "all problems", report.cases, against)]
    for kind in ("part", "op", "dtype", "M", "layout", "dimension", "held out by", "transformer"):
        rows += [
            _group(kind, name, cases, against) for name, cases in members(report, kind).items()
        ]
    return tuple(row for row in rows if row is not None)


def _group(kind: str, name: str, cases: Sequence[Case], against: Other | None) -> Row | None:
    """On the problems that both judge, where there are any."""
    theirs = {} if against is None else against.efficiency
    there = [(c.first, theirs.get(c.identity)) for c in cases if c.first is not None]
    both = [(a, b) for a, b in there if b is not None]
    ours = [a for a, _ in both] or [a for a, _ in there]
    if not ours:
        return None
    geomean, p10, _, within = _summary(ours)
    record: dict[str, Any] = {
        "kind": kind, "group": name, "problems": len(ours), "ours": geomean, "p10": p10,
        "within": within,
    }  # fmt: skip
    if both:
        their_geomean, their_p10, _, their_within = _summary([b for _, b in both])
        record |= {
            "theirs": their_geomean, "their_p10": their_p10, "their_within": their_within,
            "difference": geomean - their_geomean,
            "better": sum(a > b * (1 + TIE) for a, b in both),
            "worse": sum(b > a * (1 + TIE) for a, b in both),
        }  # fmt: skip
    shown = {
        "group": name if kind in ("all", "M", "dimension") else f"{kind} {name}",
        "problems": f"{len(ours):,}",
        **{key: text.ratio(record.get(key)) for key in ("ours", "p10", "theirs", "their_p10")},
        **{key: "" if key not in record else f"{100 * record[key]:.0f} %"
           for key in ("within", "their_within")},
        "difference": difference(record.get("difference")),
        **{key: str(record.get(key, "")) for key in ("better", "worse")},
    }  # fmt: skip
    return Row(f"{kind}/{name}", shown, record)


def difference(value: float | None) -> str:
    """Signed, to three decimals."""
    return "" if value is None else f"{value:+.3f}".replace("-", "−")


def case_rows(report: ShownReport, against: Other | None) -> tuple[Row, ...]:
    theirs = {} if against is None else against.efficiency
    return tuple(
        _case(str(place), case, "".join(groups.get("part", ())), theirs.get(case.identity))
        for place, (case, groups) in enumerate(zip(report.cases, report.groups, strict=True))
    )


def sizes(problem: Problem) -> str:
    """A problem's op and sizes, without its types and layouts."""
    batch = f"{problem.B}×" if problem.op.batched else ""
    return f"{problem.op} {batch}{problem.M}×{problem.N}×{problem.K}"


def _case(key: str, case: Case, part: str, other: float | None) -> Row:
    p, ours = case.problem, case.first
    apart = None if ours is None or other is None else ours - other
    record: dict[str, Any] = {
        "problem": str(p), "key": p.key, **p.to_dict(),
        "efficiency": ours, "other": other, "difference": apart, "sure": case.confidence,
        **_record("chosen", case.chosen, case.chosen_us, case.chosen_predicted_us),
        **_record("best", case.best, case.best_us, case.best_predicted_us),
        "part": part, "gpu": case.environment.hardware.name,
        **{f"efficiency of {name}": value for name, value in case.others.items()},
    }  # fmt: skip
    shown = {
        "problem": sizes(p),
        "dtype": dtype(p),
        "layout": f"{p.a.layout}/{p.b.layout}",
        "efficiency": text.ratio(ours),
        "other": text.ratio(other),
        "difference": difference(apart),
        "sure": "" if case.confidence is None else f"{case.confidence:.2f}",
        "chosen": "" if case.chosen is None else short(case.chosen),
        "chosen_us": "" if case.chosen is None else _time(case.chosen_us),
        "chosen_predicted_us": text.microseconds(case.chosen_predicted_us),
        "best": short(case.best),
        "best_us": _time(case.best_us),
        "best_predicted_us": text.microseconds(case.best_predicted_us),
        "part": part,
    }
    return Row(key, shown, record)


def _record(
    role: str, candidate: Candidate | None, us: float | None, predicted_us: float | None
) -> dict[str, Any]:
    return {
        role: None if candidate is None else str(candidate), f"{role}_us": us,
        f"{role}_predicted_us": predicted_us,
    }  # fmt: skip


def _time(us: float | None) -> str:
    return "failed" if us is None else text.microseconds(us)
