"""Several things side by side: models, or runs with their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.comparison import FACT, ComparedRuns, Comparison, Winning, compare_runs, why_won
from diode_app.data.curves import CurveReader, series_of
from diode_app.data.run_results import RunReader
from diode_app.data.tables import Column, Row
from diode_app.screens.base import DiodeScreen, Reader
from diode_app.session import Session
from diode_app.text import next_of
from diode_app.widgets.curve_charts import RunCurves, training_charts
from diode_app.widgets.plot import Line, Lines, Plot
from diode_app.widgets.table import PagedTable
from diode_engine.store import Store


class ComparisonScreen(DiodeScreen):
    """A title, what cannot be compared, and a table with a column for each thing."""

    DEFAULT_CSS = "ComparisonScreen #comparison-warning { display: none; }"

    def body(self) -> ComposeResult:
        yield Static(id="comparison-title", classes="lines bold", markup=False)
        yield Static(id="comparison-warning", classes="words warning", markup=False)
        yield PagedTable(self.session, (FACT,), what="facts", wraps=True)

    def show_facts(
        self, title: str, names: Mapping[str, str], rows: Sequence[Row], warning: str
    ) -> None:
        """Show what is known of each thing; `names` are the headings, by the things' keys."""
        self.put("#comparison-title", title)
        self.put("#comparison-warning", f"⚠ {warning}")
        self.query_one("#comparison-warning").display = bool(warning)
        table = self.query_one(PagedTable)
        columns = (Column(key, name, rank=place) for place, (key, name) in enumerate(names.items()))
        table.set_columns((FACT, *columns))
        table.show_rows(rows)


class CompareScreen(ComparisonScreen):
    """What each of two models was made of, and its own metrics."""

    MODE = "models"
    NEEDS_STORE = False
    HELP_TITLE = "Two models"
    ACTIONS = (
        Action("comparison.back", "escape", "Back", "To the models.",
               "diode-engine models compare {a} {b}"),
    )  # fmt: skip

    def __init__(self, session: Session, comparison: Comparison) -> None:
        super().__init__(session)
        self._comparison = comparison

    def body_mounted(self) -> None:
        found = self._comparison
        names = {name: name for name in found.facts}
        self.show_facts(" and ".join(names), names, found.rows(all_facts=True), found.warning)

    def values(self) -> Mapping[str, object]:
        return dict(zip("ab", self._comparison.facts, strict=True))


class CompareRunsScreen(ComparisonScreen):
    """`colours` are those of the runs' curves, by run. The pinned run, if there is one, is shown
    too; the differences in brackets are to it, else to the first run."""

    MODE = "runs"
    HELP_TITLE = "Runs beside each other"
    ACTIONS = (
        Action("comparing.back", "escape", "Back", "To the runs."),
        Action("comparing.all", "d", "Differences", "Only what differs, or all that is known."),
        Action("comparing.why", "w", "Why", "Which settings mattered in the trainings of the "
               "store, with these runs' values and their lines over the settings; or back."),
        Action("comparing.curves", "v", "Next curves", "Another kind of curve."),
        Action("comparing.member", "m", "Member", "The curves of one member of the models, of the "
               "next one, or of all."),
        Action("comparing.log-scale", "l", "Log scale", "Values on a logarithmic axis, or not."),
    )  # fmt: skip
    DEFAULT_CSS = """
    CompareRunsScreen {
        PagedTable { height: 2fr; }
        Plot { height: 3fr; border-top: solid $panel; }
    }
    """

    def __init__(self, session: Session, colours: Mapping[int, int]) -> None:
        super().__init__(session)
        self._colours = dict(colours)
        self._reader = CurveReader()
        self._compared: ComparedRuns | None = None
        self._trainings = RunReader()
        self._winning: Winning | None = None
        self._asks_why = False
        self._all_facts = False
        self._kind: str | None = None
        self._member: str | None = None
        self._log_scale = False

    def body(self) -> ComposeResult:
        yield from super().body()
        yield Plot("None of these runs has drawn curves.")

    def reader(self) -> Reader[tuple[ComparedRuns, Winning | None]]:
        wanted, reader, asks_why = tuple(self._colours), self._reader, self._asks_why
        trainings = self._trainings

        def read(store: Store) -> tuple[ComparedRuns, Winning | None]:
            found = compare_runs(store, wanted, reader)
            return found, why_won(store, found.runs, trainings) if asks_why else None

        return read

    def show(self, snapshot: tuple[ComparedRuns, Winning | None]) -> None:
        self._compared, self._winning = snapshot
        self.refresh_bindings()
        self._list()
        self._draw()

    def _list(self) -> None:
        found = self._compared
        assert found is not None
        if (winning := self._winning) is not None:
            names = {"importance": "importance"} if winning.importances else {}
            names |= {run: f"run {run}" for run in winning.runs}
            self.show_facts(winning.title, names, winning.rows(), winning.why_not)
            return
        shown = "all that is known" if self._all_facts else "what differs"
        title = f"Runs {', '.join(map(str, found.runs))}: {shown} (d changes it)"
        names = {
            str(run): f"run {run}{' (pinned)' if run == found.pinned else ''}" for run in found.runs
        }
        rows = found.comparison.rows(all_facts=self._all_facts)
        self.show_facts(title, names, rows, found.comparison.warning)

    def _draw(self) -> None:
        found = self._compared
        if found is None:
            return
        if (winning := self._winning) is not None:
            self.query_one(Plot).show(*parallel_chart(winning, self._colours))
            return
        if self._kind not in found.kinds:
            self._kind = next(iter(found.kinds), None)
        if self._member not in self._members():
            self._member = None
        drawn = [
            RunCurves(
                curves,
                before=f"{run} ",
                behind=" (pinned)" if run == found.pinned else "",
                colour=self._colours.get(run, 0),
            )
            for run, curves in found.curves.items()
        ]
        self.query_one(Plot).show(
            *training_charts(drawn, self._kind, member=self._member, log_y=self._log_scale)
        )

    def _members(self) -> list[str]:
        """Return the members of the models that have curves of this kind."""
        if self._compared is None:
            return []
        names = (name for curves in self._compared.curves.values() for name in curves)
        series = map(series_of, names)
        return list(dict.fromkeys(s.member for s in series if s.kind == self._kind))

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("all", "curves", "member", "log_scale"):
            return self._winning is None
        return super().check_action(action, parameters)

    def action_why(self) -> None:
        self._asks_why = not self._asks_why
        self.reload()

    def action_all(self) -> None:
        self._all_facts = not self._all_facts
        if self._compared is not None:
            self._list()

    def action_curves(self) -> None:
        if self._compared is not None and self._compared.kinds:
            self._kind = next_of(self._compared.kinds, self._kind)
            self._draw()

    def action_member(self) -> None:
        self._member = next_of([None, *self._members()], self._member)
        self._draw()

    def action_log_scale(self) -> None:
        self._log_scale = not self._log_scale
        self._draw()


def parallel_chart(winning: Winning, colours: Mapping[int, int]) -> tuple[Lines, ...]:
    """Return the parallel view: a line for each run over the settings that mattered most and the
    efficiency, each from the least to the greatest value of these runs. The best run is strong."""
    if not winning.runs:
        return ()
    axes = winning.axes()
    places = [float(number) for number in range(1, len(axes) + 1)]
    lines = [
        Line(f"run {run}", places, winning.places(run), strong=not number,
             colour=colours.get(int(run), 0))
        for number, run in enumerate(winning.runs)
    ]  # fmt: skip
    title = " · ".join(f"{number} {name}" for number, name in enumerate(axes, 1))
    return (Lines(lines, title=title, x_label="setting", whole_x=True, y_range=(0.0, 1.0)),)
