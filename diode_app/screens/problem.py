"""The page of a problem: its candidates as measured and as models predict them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static, TabbedContent, TabPane

from diode_app import text
from diode_app.actions import Action
from diode_app.data.candidate import CandidateView, candidate_in, candidate_view
from diode_app.data.hardware import describe_environment
from diode_app.data.problem import Choice, ProblemView, problem_view
from diode_app.data.problem_columns import FAILED_COLUMNS, measured_columns
from diode_app.screens.base import Reader
from diode_app.screens.candidate import CandidateScreen
from diode_app.screens.tabs import TabbedScreen
from diode_app.session import Session
from diode_app.widgets.facts import Facts
from diode_app.widgets.modals import Choose
from diode_app.widgets.plot import Line, Lines, Plot
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import Latest, acts
from diode_engine.core.candidate import Candidate


class ProblemScreen(TabbedScreen):
    """`key` is the problem's content key; `environment` is the number of the environment to begin
    with (None: the first in which the problem was measured)."""

    MODE = "data"
    HELP_TITLE = "A problem"
    LINK = "problem"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (40, "-high")]  # noqa: RUF012  # as Textual types it
    ACTIONS = (
        Action("problem.back", "escape", "Back", "To where this page was opened."),
        Action("problem.open", "enter", "Open", "The page of this candidate: each timing and "
               "prediction, and its config.", footer=False),
        Action("problem.plot", "p", "Plot", "Measured and predicted times over the rank, or the "
               "table again."),
        Action("problem.choose", "w", "Ask", "What would a model choose of the whole space?"),
        Action("problem.models", "m", "Models", "Choose the models beside the measured times."),
        Action("problem.environment", "v", "Next GPU", "The next GPU or software that it was "
               "timed with.", footer=False),
    )  # fmt: skip
    HEADLESS = (("Timings", "diode-engine data show {key} --store={store}"),)
    DEFAULT_CSS = """
    ProblemScreen {
        #problem-parts { height: 15; }
        #problem-candidate { display: none; width: 1fr; height: 1fr; border-left: solid $panel; }
        Plot { width: 1fr; }
        &.-low #problem-parts { display: none; }
        &.-wide #problem-candidate { display: block; }
        &.-plot #problem-parts { display: block; height: 1fr; }
        &.-plot TabbedContent { display: none; }
    }
    """

    def __init__(self, session: Session, key: str, environment: int | None = None) -> None:
        super().__init__(session)
        self._key = key
        self._environment = environment
        self._references: tuple[str, ...] | None = None
        self._view: ProblemView | None = None
        self._pointing: Latest[CandidateView] = Latest(self, self._show_candidate, self.fail)

    def body(self) -> ComposeResult:
        yield Static(id="problem-title", classes="line")
        yield Static(id="problem-facts", classes="words muted", markup=False)
        yield Static("Reading ...", id="problem-choices", classes="words")
        with TabbedContent(initial="tab-candidates"):
            with TabPane("Candidates", id="tab-candidates"):
                yield PagedTable(
                    self.session, measured_columns(()), what="candidates", id="problem-candidates"
                )
            with TabPane("Failed", id="tab-failed"):
                yield PagedTable(
                    self.session, FAILED_COLUMNS, what="failed candidates", id="problem-failures"
                )
        with Horizontal(id="problem-parts"):
            yield Plot("Reading ...")
            yield Facts(id="problem-candidate")

    def reader(self) -> Reader[ProblemView]:
        key, environment, before = self._key, self._environment, self._view
        # First what was measured: models take seconds to load.
        references = () if before is None else self._references
        return lambda store: problem_view(store, key, environment, references, before)

    def values(self) -> Mapping[str, object]:
        number = None if self._view is None else self._view.row.number
        return {"key": self._key, "problem": number}

    def show(self, snapshot: ProblemView) -> None:
        if snapshot is self._view:
            return
        is_first = self._view is None
        view, self._view = snapshot, snapshot
        bias = f" bias {view.problem.bias}" if view.problem.op.biased else ""
        failed = f", {len(view.failures):,} failed" if view.failures else ""
        self.put(
            "#problem-title",
            Content.assemble(
                (f"{view.problem}{bias}", "bold"),
                (f" · {view.row.candidates:,} candidates{failed}", "dim"),
            ),
        )
        self.put("#problem-facts", _facts(view))
        choices = _choices(view.choices)
        if is_first and view.known:
            choices += "\nAsking the models ..."
            self.call_next(self.reload)
        self.put("#problem-choices", choices)
        table = self.query_one("#problem-candidates", PagedTable)
        table.set_columns(measured_columns(tuple(view.predicted_us)))
        table.show_rows(view.rows)
        self.query_one("#problem-failures", PagedTable).show_rows(view.failures)
        self._draw(view)

    # The candidate under the cursor

    @property
    def _candidate(self) -> Candidate | None:
        """The candidate under the cursor of the tab that is shown."""
        table = self.query_one(f"#{self.tabs.active}").query_one(PagedTable)
        row = table.pointed_row
        return None if row is None else candidate_in(row)

    def on_paged_table_pointed(self) -> None:
        view, candidate = self._view, self._candidate
        if view is None or candidate is None or not self.query_one("#problem-candidate").region:
            return
        asked = view.problem, candidate, view.row.environment.hardware
        read = self.session.store.read
        self._pointing.do(partial(read, lambda store: candidate_view(store, *asked)))

    def _show_candidate(self, found: CandidateView) -> None:
        self.query_one("#problem-candidate", Facts).show(found.facts)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        self.action_open()

    def action_open(self) -> None:
        view, candidate = self._view, self._candidate
        if view is not None and candidate is not None:
            hardware = view.row.environment.hardware
            self.app.push_screen(CandidateScreen(self.session, view.problem, candidate, hardware))

    def _draw(self, view: ProblemView) -> None:
        if not view.rows:
            self.query_one(Plot).say_nothing("No candidate of this problem has a time.")
        ranks = tuple(range(1, len(view.rows) + 1))
        curves = {"measured": view.measured_us, **view.predicted_us, "roofline": view.roofline_us}
        self.query_one(Plot).show(
            Lines(
                [Line(name, ranks, times) for name, times in curves.items()],
                x_label="rank by measured time",
                y_label="µs",
                log_y=True,
            )
        )

    # Actions

    def show_tab(self, tab: str) -> None:
        self.remove_class("-plot")
        super().show_tab(tab)

    def action_plot(self) -> None:
        if self.has_class("-plot"):
            self.show_tab(self.tabs.active)
        else:
            self.add_class("-plot")

    def action_choose(self) -> None:
        if self._view is not None:
            self.dashboard.go_to_place(
                "ask", (self._view.problem, self._view.row.environment.hardware)
            )

    def action_environment(self) -> None:
        if self._view is None or len(self._view.environments) < 2:
            self.notify("It was timed on one GPU with one software only.")
            return
        now = self._view.row.environment_number
        self._environment = text.next_of(self._view.environments, now)
        self.reading.drop()
        self.reload()

    @acts()
    async def action_models(self) -> str | None:
        view = self._view
        if view is None or not view.known:
            return "There is no model to choose."
        names = [model.reference for model in view.known]
        now = [model.reference for model in view.models]
        chosen = await self.app.push_screen_wait(Choose("Models to show", names, now))
        if chosen is not None:
            self._references = chosen
        return None


def _facts(view: ProblemView) -> str:
    row, roof = view.row, view.roofline
    where = describe_environment(row.environment)
    if len(view.environments) > 1:
        now = view.environments.index(row.environment_number) + 1
        where += f" ({now} of {len(view.environments)}: v)"
    lines = [where]
    work = f"{text.number(row.problem.flops / 1e9, 3)} GFLOP"
    if roof is None:
        lines.append(f"{work} · no roofline: the features do not know this type.")
    else:
        bound = "compute" if roof.compute_bound else "memory"
        reached = "" if view.reached is None else f", the best at {100 * view.reached:.0f} %"
        lines.append(
            f"{work} · {roof.intensity:,.0f} FLOP/byte · {bound}-bound: "
            f"≥ {text.microseconds(roof.time_us)} µs{reached}"
        )
    return "\n".join([*lines, *view.notes])


def _choices(choices: tuple[Choice, ...]) -> Content:
    """Return what each chooser would take, in columns."""
    width = max(len(choice.chooser) for choice in choices)
    lines = []
    for choice in choices:
        row = choice.taken
        if row is None:
            words, style = "cannot say", "dim"
        elif row.record["time_us"] is None:
            words = f"{row.cells['candidate']}, which failed: {row.cells['why']}"
            style = "$text-error"
        else:
            words = "{time_us:>10} µs {efficiency}  {candidate}".format_map(row.cells)
            style = ""
        sure = "" if choice.sure is None else f"  sure {choice.sure:.2f}"
        lines.append(
            Content.assemble(
                (choice.sign, "bold $primary"), f" {choice.chooser:<{width}} ", (words, style), sure
            )
        )
    return Content("\n").join(lines)
