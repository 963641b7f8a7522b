"""A report as plain text."""

from __future__ import annotations

from diode_engine.plain_text import format_number, format_table
from diode_engine.validation.calibration import Calibration
from diode_engine.validation.metrics import Summary
from diode_engine.validation.report import Case, Report, TimedKernel

_HEADLINE = {
    True: "which it has not seen in training",
    False: "which it has seen in training: the figures are not those of new problems",
    None: "of which it is not known whether it has seen them in training",
}


def render(report: Report, worst: int = 5) -> str:
    """The whole report, with this many of the worst choices."""
    parts = [
        f"{report.model}: {report.problems} problems, {_HEADLINE[report.unseen]}; "
        f"{report.candidates} candidates, {', '.join(report.hardware)}",
        "Efficiency: time of the best measured candidate / time of the chosen one; speed: time of "
        "max-autotune DEFAULT / time of the chosen one.\n" + _choosers(report),
        "Geometric mean of the first choices, by group:\n" + _groups(report),
    ]
    if report.calibration is not None:
        parts.append(_confidence(report.calibration))
    parts += remarks(report)
    if bad := report.worst(worst):
        parts.append("The worst choices (times in µs, measured and predicted):\n" + _bad(bad))
    notes = list(report.notes)
    if report.left_out:
        notes.append(
            f"{report.left_out} problems with fewer than two timed candidates are left out."
        )
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def remarks(report: Report) -> list[str]:
    """What must be known to read the figures, as sentences."""
    found = []
    if report.errors is not None:
        e = report.errors
        found.append(
            f"Predicted times of {e.timings} candidates: MSE of the logarithm {e.mse_log:.4f}, "
            f"RMSE {e.rmse_log:.3f} (a factor of {e.exp_rmse:.2f}), MAPE {100 * e.mape:.1f} %, "
            f"median Spearman correlation within a problem {e.spearman:.3f}."
        )
    found.append(_noise(report))
    found.append(
        f"Among all that Inductor offers, {report.unmeasured} of {report.problems} choices would "
        "be kernels that were not measured: these figures are of its choices among the measured "
        "ones, and the best measured one is not the best of all."
    )
    return found


def _choosers(report: Report) -> str:
    ks = list(report.choosers[0].top)[1:]
    rows = []
    for row in report.choosers:
        first = row.top[1]
        rows.append(
            [
                row.chooser,
                f"{row.timed:.0f}",
                *_figures(first),
                format_number(row.speed, ".3f"),
                *(_top(row.top.get(k)) for k in ks),
                str(first.problems),
                str(row.answered),
            ]
        )
    header = ["chooser", "timed", "geomean", "p10", "worst", "speed"]
    table = format_table([*header, *(f"top-{k}" for k in ks), "problems", "answered"], rows)
    more = [["1", *_figures(report.choosers[0].top[1])]]
    more += [[str(k), *_figures(report.choosers[0].top[k])] for k in ks]
    return f"{table}\n\nThe model's first k:\n" + format_table(
        ["k", "geomean", "p10", "worst"], more
    )


def _figures(summary: Summary) -> list[str]:
    return [f"{x:.3f}" for x in (summary.geomean, summary.p10, summary.worst)]


def _top(summary: Summary | None) -> str:
    return "" if summary is None else f"{summary.geomean:.3f}"


def _groups(report: Report) -> str:
    rows = []
    for kind, found in report.choosers[0].groups.items():
        for name, summary in found.items():
            others = [row.groups.get(kind, {}).get(name) for row in report.choosers[1:]]
            rows.append(
                [
                    name if kind != "layout" else f"{name} (a/b)",
                    str(summary.problems),
                    *_figures(summary),
                    *map(_top, others),
                ]
            )
    names = [row.chooser for row in report.choosers[1:]]
    return format_table(
        ["group", "problems", report.choosers[0].chooser, "p10", "worst", *names], rows
    )


def _confidence(c: Calibration) -> str:
    bins = [[str(b.problems), f"{b.confidence:.3f}", f"{b.reached:.3f}"] for b in c.bins]
    shares = [
        [f"the surest {100 * share:.0f} %", str(s.problems), *_figures(s)]
        for share, s in c.surest.items()
    ]
    adaptive = [
        [f"{asked:.2f}", f"{a.timed:.1f}", f"{a.reached:.3f}", *_figures(a.summary)]
        for asked, a in c.adaptive.items()
    ]
    return "\n\n".join(
        [
            f"How sure it is of being within 5 % of the best, on {c.problems} problems: expected "
            f"calibration error {c.error:.3f}, of which chance alone would make about "
            f"{c.chance:.3f}.\n" + format_table(["problems", "confidence", "within 5 %"], bins),
            format_table(["by confidence", "problems", "geomean", "p10", "worst"], shares),
            "With as many candidates timed as it takes to be within 5 % with the probability asked "
            "for:\n"
            + format_table(["asked", "timed", "within 5 %", "geomean", "p10", "worst"], adaptive),
        ]
    )


def _noise(report: Report) -> str:
    n = report.noise
    if n.median is None or n.p90 is None:
        floor = "No candidate was timed twice on a problem: the noise between runs is not known."
    else:
        floor = (
            f"Of {n.repeats} pairs of timings of the same candidate on the same problem, half "
            f"differ by up to {100 * n.median:.1f} %, nine in ten by up to {100 * n.p90:.1f} %."
        )
    if n.spread is not None:
        floor += f" Within a timing, the launches spread by {100 * n.spread:.1f} % (median)."
    return floor


def _bad(cases: list[Case]) -> str:
    rows = [
        [
            f"{case.problem}",
            f"{case.chosen}",
            f"{case.best}",
            format_number(case.first, ".3f"),
            format_number(case.confidence, ".2f"),
            *_times(case.chosen),
            *_times(case.best),
        ]
        for case in cases
    ]
    header = ["problem", "chosen", "best", "efficiency", "sure", "chosen", "pred.", "best", "pred."]
    return format_table(header, rows)


def _times(kernel: TimedKernel | None) -> list[str]:
    """Return the measured and the predicted time."""
    if kernel is None:
        return ["", ""]
    measured = "failed" if kernel.us is None else f"{kernel.us:.1f}"
    return [measured, format_number(kernel.predicted_us, ".1f")]
