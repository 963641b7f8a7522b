"""A validation report in words, and how sure its model is as a chart."""

from __future__ import annotations

from textual.content import Content

from diode_app import text
from diode_app.data.reports import ReportView, ShownReport, name_judged
from diode_app.widgets.empty import Step
from diode_app.widgets.facts import badge
from diode_app.widgets.plot import Line, Lines

_SEEN = {
    True: "not seen in training",
    False: "⚠ seen in training: expect less on new problems",
    None: "⚠ it is not known whether they were seen in training",
}
NO_CONFIDENCE = (
    "What was judged does not say how sure it is. Models that are trained now say how probable it "
    "is that their choice is within 5 % of the best."
)
NO_TIMINGS = (
    "There is nothing to judge a model on yet",
    "A model is judged on timings that it has not learned from: import some, or collect them.",
    (Step("Import timings", "app.import_timings", "Those that come with Diode, or a file's."),),
)
NO_REPORT = (
    "No model has been judged yet",
    "In a validation a model chooses on problems that it has not learned from, beside ATen, "
    "max-autotune, nvMatmulHeuristics and others. It shows how near to the best measured kernel "
    "each comes, where it is worst, and whether the model knows how sure it is.",
    (Step("Judge a model", "screen.new", "It is a run of some seconds.", "n"),),
)
_EXACT = "exact"  # the line on which a confidence is what happens


def headline(view: ReportView) -> Content:
    """Return the model's figure, and that of what it is compared with."""
    report, against = view.report, view.against
    if report is None:
        return Content()
    words: list[str | tuple[str, str]] = [(report.model, "bold")]
    # On the problems that both judge, as in the table of groups.
    both = view.groups[0].record if view.groups else {}
    if "ours" in both:
        words += [" takes kernels that reach ", (f"{both['ours']:.3f}", "bold $primary"),
                  " of the best"]  # fmt: skip
    if against is not None and "theirs" in both:
        figures = next((row.record for row in view.figures if row.key == against.name), {})
        timed = f" (times {figures['timed']:.0f} kernels)" if figures.get("timed") else ""
        words.append((f"; {against.name} {both['theirs']:.3f}{timed}", "$text-muted"))
        if both["problems"] < len(report.cases):
            words.append((f", on the {both['problems']:,} problems of both", "$text-muted"))
    return Content.assemble(*words)


def describe_report(view: ReportView) -> Content:
    """Return what the report is on, what is in progress, and what is wrong."""
    lines = []
    if (report := view.report) is not None:
        unseen = True if report.whole is None else report.whole.unseen
        lines.append(
            Content.assemble(
                f"run {report.run} · {len(report.cases):,} problems, {report.candidates:,} "
                f"candidates · {', '.join(report.hardware)} · ",
                (_SEEN[unseen], "" if unseen else "$text-warning"),
            )
        )
    if (last := view.last) is not None:
        message = last.why or last.run.message
        lines.append(
            Content.assemble(
                badge(str(last.state)), f" · run {last.run.id} on {name_judged(last)}",
                f": {message}" if message else f", {text.seconds(last.seconds)}",
            )
        )  # fmt: skip
    if view.why is not None:
        lines.append(Content.styled(f"✗ {view.why}", "$text-error"))
    return Content("\n").join(lines)


def remarks(report: ShownReport) -> str:
    """Return what must be known to read the figures."""
    lines = [
        "of best: time of the best measured kernel / time of the chosen one, geometric mean; p10: "
        "10th percentile; top-5: the best of the first five; speed: over max-autotune DEFAULT; "
        "timed: kernels timed for a choice."
    ]
    if report.whole is not None:
        from diode_engine.validation.render import remarks as remarks_on

        lines += remarks_on(report.whole)
    if report.left_out:
        lines.append(f"{report.left_out} problems with fewer than two timed kernels are left out.")
    notes = filter(None, map(text.drop_usual_note, report.notes))
    return "\n".join(f"· {line}" for line in (*lines, *notes))


def confidence_table(report: ShownReport) -> str:
    """Return how sure the model is, how often it was right, and what its confidence can be used
    for."""
    c = None if report.whole is None else report.whole.calibration
    if c is None:
        return ""
    lines = [
        "Within 5 % of the best:", "",
        f"{'problems':>8} {'sure':>6} {'right':>7}",
        *(f"{b.problems:>8} {b.confidence:>6.2f} {b.reached:>7.2f}" for b in c.bins),
        "",
        f"expected calibration error {c.error:.3f}",
        f"(chance alone: {c.chance:.3f})",
        "", "The surest problems, of the best:",
        *(f"{100 * share:>7.0f} % {s.geomean:>6.3f} p10 {s.p10:.3f}"
          for share, s in c.surest.items()),
        "", "Timing as many as it takes:", f"{'asked':>8} {'timed':>6} {'right':>7}",
        *(f"{asked:>8.2f} {a.timed:>6.1f} {a.reached:>7.2f}" for asked, a in c.adaptive.items()),
    ]  # fmt: skip
    return "\n".join(lines)


def reliability(report: ShownReport) -> Lines:
    """Return what the model says against what happened, for problems of similar confidence (DeGroot
    and Fienberg, The Comparison and Evaluation of Forecasters, 1983)."""
    if report.whole is None or report.whole.calibration is None:
        return Lines(())
    bins = report.whole.calibration.bins
    return Lines(
        [
            Line(_EXACT, (0.0, 1.0), (0.0, 1.0)),
            Line(
                report.model,
                [b.confidence for b in bins],
                [b.reached for b in bins],
                strong=True,
            ),
        ],
        title="how often it was right, over how sure it was",
        x_range=(0, 1),
        y_range=(0, 1),
    )
