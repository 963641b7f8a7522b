"""The distribution of efficiency in a validation report, by chooser and by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from diode_app.data.reports import Other, ShownReport

if TYPE_CHECKING:
    from diode_engine.validation.report import Case

CURVES = 6  # at most, over each other
WITHIN = np.arange(61) * 0.005  # of the best: 0 to 30 %


def members(report: ShownReport, kind: str) -> dict[str, list[Case]]:
    """Return the cases in each group of a kind, in the groups' natural order."""
    from diode_engine.validation.metrics import M_ABOVE, M_BANDS

    found: dict[str, list[Case]] = {}
    for case, groups in zip(report.cases, report.groups, strict=True):
        for name in groups.get(kind, ()):
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
