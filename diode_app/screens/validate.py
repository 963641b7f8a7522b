"""Validate: how well a model chooses, compared with what it is to replace, on the same problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static, TabbedContent, TabPane

from diode_app import text
from diode_app.actions import Action
from diode_app.data.reports import (
    CASES,
    FIGURES,
    GROUPS,
    PERCENT,
    ReportView,
    ShownReport,
    curves,
    environment_of,
    kinds,
    members,
    name_judged,
    report_view,
    reports,
)
from diode_app.screens.base import Reader
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.tabs import TabbedScreen
from diode_app.screens.validate_new import open_validation
from diode_app.session import Session
from diode_app.widgets.empty import EmptyState, Step
from diode_app.widgets.facts import badge
from diode_app.widgets.modals import PickOne
from diode_app.widgets.plot import Line, Lines, Plot
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import acts
from diode_engine.validation.report import Case

_REPORT_ACTIONS = ("against", "curves", "reports", "run", "tab")


class ValidateScreen(TabbedScreen):
    """The last report, or the chosen one. A is its model; B is what that is compared with: another
    model or another chooser."""

    MODE = "validate"
    ACTIONS = (
        Action("validate.new", "n", "New", "Judge a model, or a way of making models, as a run.",
               "diode-engine validate --model={model} --store={store}", writes=True),
        Action("validate.against", "a", "Against", "Compare the model with another chooser, or "
               "against another report's model."),
        Action("validate.all", "escape", "All problems", "The problems of all groups."),
        Action("validate.curves", "v", "Next curves", "The share of problems near the best, by "
               "op, type, M, ..."),
        Action("validate.reports", "r", "Reports", "Show another report.",
               "diode-engine runs list kind:validate --store={store}"),
        Action("validate.run", "u", "Run", "The page of the run that the report is of.",
               "diode-engine runs show {run} --store={store}", footer=False),
    )  # fmt: skip
    DEFAULT_CSS = """
    ValidateScreen {
        #report-figures { height: 11; }
        #report-remarks { height: 1fr; padding: 0 1; }
        #report-confidence { width: 38; padding: 0 1; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._wanted: int | None = None  # the run whose report is shown; None: the last one
        self._against: str | int | None = None
        self._kind = "chooser"  # what the curves are by
        self._group: str | None = None  # kind/name of the group whose cases are shown alone
        self._view: ReportView | None = None

    def body(self) -> ComposeResult:
        yield Static(id="report-title", classes="line")
        yield Static(id="report-says", classes="lines muted")
        with TabbedContent(initial="tab-figures"):
            with TabPane("Figures", id="tab-figures"):
                yield PagedTable(
                    self.session, FIGURES, what="choosers", sort="geomean", descending=True,
                    id="report-figures",
                )  # fmt: skip
                with VerticalScroll(id="report-remarks", can_focus=False):
                    yield Static(id="report-remarks-text", markup=False)
            with TabPane("Curves", id="tab-curves"):
                yield Plot(id="report-curves")
            with TabPane("Groups", id="tab-groups"):
                yield Static(id="groups-legend", classes="line muted", markup=False)
                yield PagedTable(self.session, GROUPS, what="groups", id="report-groups")
            with TabPane("Worst", id="tab-worst"):
                yield Static(id="cases-legend", classes="line muted", markup=False)
                yield PagedTable(
                    self.session, CASES, what="cases", sort="efficiency", id="report-cases"
                )
            with TabPane("How sure", id="tab-sure"), Horizontal():
                yield Plot(NO_CONFIDENCE, id="report-reliability")
                with VerticalScroll(id="report-confidence"):
                    yield Static(id="report-confidence-text", markup=False)
        yield EmptyState("", "", id="report-none")

    def take(self, given: int) -> None:
        """Show the report of this run."""
        self._wanted = given
        self.reload()

    def reader(self) -> Reader[ReportView]:
        wanted, against, before = self._wanted, self._against, self._view
        return lambda store: report_view(store, wanted, against, before)

    @property
    def report(self) -> ShownReport | None:
        return None if self._view is None else self._view.report

    def values(self) -> Mapping[str, object]:
        report = self.report
        if report is None:
            return {}
        return {"run": report.run, "model": None if report.whole is None else report.model}

    # Showing

    def show(self, snapshot: ReportView) -> None:
        before, self._view = self._view, snapshot
        report = snapshot.report
        if before is None or (before.report is None) is not (report is None):
            self.query_one("#report-none").display = report is None
            self.tabs.display = report is not None
            if report is not None:
                self.show_tab(self.tabs.active)
            self.refresh_bindings()  # most actions are for a report
        self.put("#report-title", headline(snapshot))
        self.put("#report-says", describe_report(snapshot))
        if report is None:
            title, sentence, steps = NO_REPORT if snapshot.timings else NO_TIMINGS
            self.call_next(self._advise, title, snapshot.why or sentence, steps)
            return
        if before is not None and before.cases is snapshot.cases:
            return
        self.query_one("#report-figures", PagedTable).show_rows(snapshot.figures)
        self.query_one("#report-groups", PagedTable).show_rows(snapshot.groups)
        self._show_cases()
        self.put("#groups-legend", f"{self._legend} · better: by more than 1 %")
        self.put("#report-remarks-text", remarks(report))
        self.query_one("#report-confidence").display = bool(confidence_table(report))
        self.put("#report-confidence-text", confidence_table(report))
        self.query_one("#report-reliability", Plot).show(reliability(report))
        self._draw()

    async def _advise(self, title: str, sentence: str, steps: Sequence[Step]) -> None:
        panel = self.query_one("#report-none", EmptyState)
        await panel.show_advice(title, sentence, steps)
        buttons = panel.query(Button)  # none where the dashboard is read-only
        if buttons and not panel.has_focus_within:
            buttons.first().focus()

    @property
    def _legend(self) -> str:
        assert self._view is not None
        assert self._view.report is not None
        other = "nobody" if self._view.against is None else self._view.against.name
        return f"A {self._view.report.model} · B {other}"

    def _show_cases(self) -> None:
        view = self._view
        if view is None or view.report is None:
            return
        kind, _, name = (self._group or "").partition("/")
        only = members(view.report, kind).get(name)
        self.query_one("#report-cases", PagedTable).show_rows(
            [row for row, groups in zip(view.cases, view.report.groups, strict=True)
             if only is None or name in groups[kind]]
        )  # fmt: skip
        narrowed = "" if only is None else f" · only {kind} {name} (Escape: all)"
        self.put("#cases-legend", f"{self._legend}{narrowed}")

    def _draw(self) -> None:
        view = self._view
        if view is None or view.report is None:
            return
        if self._kind not in kinds(view.report):
            self._kind = "chooser"
        kind = self._kind
        by = "" if kind == "chooser" else f", {view.report.model} by {kind}"
        self.query_one("#report-curves", Plot).show(
            Lines(
                [Line(name, PERCENT, share, strong=name == view.report.model)
                 for name, share in curves(view.report, view.against, kind).items()],
                title=f"% of problems within x % of the best{by}",
                x_range=(0, 30),
                y_range=(0, 100),
            )
        )  # fmt: skip

    # Going about

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in _REPORT_ACTIONS:
            return self.report is not None
        if action == "all":
            return self._group is not None
        return super().check_action(action, parameters)

    def action_all(self) -> None:
        self._narrow(None)

    def _narrow(self, group: str | None) -> None:
        self._group = group
        self._show_cases()
        self.show_tab("tab-worst")

    def action_curves(self) -> None:
        if self.tabs.active == "tab-curves" and self.report is not None:
            self._kind = text.next_of(kinds(self.report), self._kind)
            self._draw()
        self.show_tab("tab-curves")

    def action_run(self) -> None:
        if self.report is not None:
            self.dashboard.open_run(self.report.run)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        report = self.report
        if report is None:
            return
        if event.table.id == "report-cases":
            self._open(report.cases[int(event.key)])
        elif event.table.id == "report-groups":
            self._narrow(event.key)
        elif event.key in report.choosers and event.key != report.model:
            self._hold_against(event.key)

    def _hold_against(self, other: str | int) -> None:
        self._against = other
        self.reload()

    @acts()
    async def _open(self, case: Case) -> None:
        environment = await self.session.store.read(lambda store: environment_of(store, case))
        self.app.push_screen(ProblemScreen(self.session, case.problem.key, environment))

    # Actions

    def action_new(self) -> None:
        open_validation(self)

    @acts()
    async def action_reports(self) -> None:
        there = await self.session.store.read(reports)
        choices = [(str(run), f"run {run}  {judged}") for run, judged in there]
        now = None if self.report is None else str(self.report.run)
        chosen = await self.app.push_screen_wait(PickOne("Which report?", choices, now))
        if chosen is not None:  # the last one, whichever it is, or this one from now on
            self._wanted = None if chosen == choices[0][0] else int(chosen)

    @acts()
    async def action_against(self) -> None:
        report = self.report
        assert report is not None
        there = await self.session.store.read(reports)
        choices = [(name, name) for name in report.choosers if name != report.model]
        choices += [(f"#{run}", f"{judged}, as run {run} judged it")
                    for run, judged in there if run != report.run]  # fmt: skip
        now = f"#{self._against}" if isinstance(self._against, int) else self._against
        chosen = await self.app.push_screen_wait(PickOne("Compare it with", choices, now))
        if chosen is not None:
            self._hold_against(int(chosen[1:]) if chosen.startswith("#") else chosen)


# In words


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
        parts = report.parts.values()
        candidates = sum(part.candidates for part in parts)
        hardware = dict.fromkeys(name for part in parts for name in part.hardware)
        lines.append(
            Content.assemble(
                f"run {report.run} · {len(report.cases):,} problems, {candidates:,} "
                f"candidates · {', '.join(hardware)} · ",
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
    parts = report.parts.values()
    if left_out := sum(part.left_out for part in parts):
        lines.append(f"{left_out} problems with fewer than two timed kernels are left out.")
    notes = dict.fromkeys(text.drop_usual_note(note) for part in parts for note in part.notes)
    return "\n".join(f"· {line}" for line in (*lines, *filter(None, notes)))


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
