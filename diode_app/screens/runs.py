"""Runs: all collections, trainings, validations and imports, live, as a table of experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.curves import CurveReader, kinds
from diode_app.data.filters import suggestions
from diode_app.data.run_columns import RUN_COLUMNS
from diode_app.data.run_results import RunReader, outcome
from diode_app.data.runs import RunPreview, run_preview, runs_page
from diode_app.data.tables import Page, PageQuery
from diode_app.screens.base import Reader
from diode_app.screens.compare import CompareRunsScreen
from diode_app.screens.filtered_list import FilteredList, list_actions
from diode_app.screens.run_actions import RUN_ACTIONS, RunActions
from diode_app.session import Session
from diode_app.themes import SERIES
from diode_app.widgets.curve_charts import RunCurves, collection_charts, training_charts
from diode_app.widgets.facts import Facts, badge
from diode_app.widgets.plot import Plot
from diode_app.widgets.table import PagedTable
from diode_engine.store import Store

_PINNED, _MARKED = "★", "●"
_POINTED = len(SERIES) - 1  # the colour of the run that the cursor is on, where it has no other


def _sign(value: str) -> tuple[str, str]:
    """Return a mark and its style, the colour of the run's curves; behind the sign in `value` is
    the colour's number."""
    if not value:
        return "", ""
    red, green, blue = SERIES[int(value[1:])]
    return value[0], f"bold rgb({red},{green},{blue})"


class RunsScreen(FilteredList, RunActions):
    """The list; Enter opens a run's page. Where it is wide, the run that the cursor is on is beside
    the list, with its curves over those of the pinned one and of the marked ones."""

    MODE = "runs"
    COLUMNS = "run_columns"
    ALL_COLUMNS = tuple(replace(c, sign=_sign) if c.key == "mark" else c for c in RUN_COLUMNS)
    ACTIONS = (
        Action("runs.open", "enter", "Open", "The page of this run.",
               "diode-engine runs show {run} --store={store}", footer=False),
        Action("runs.mark", "space", "Mark", "Compare this run with others, or not: it is drawn "
               "in the colour of its mark."),
        Action("runs.compare", "v", "Compare", "The marked runs, this one and the pinned one "
               "beside each other: what differs, and their curves."),
        *RUN_ACTIONS,
        *list_actions("runs"),
    )  # fmt: skip
    HEADLESS = (("List", "diode-engine runs list {filter} --store={store}"),)
    DEFAULT_CSS = """
    RunsScreen {
        #runs-parts { height: 1fr; }
        #runs-preview { display: none; width: 2fr; border-left: solid $panel; }
        #preview-facts { max-height: 40%; }
        PagedTable { width: 3fr; }
        &.-wide #runs-preview { display: block; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._marks: dict[int, int] = {}  # the colours of the marked runs
        self._pinned: int | None = None
        self._reader = CurveReader()
        self._known = RunReader()

    def body(self) -> ComposeResult:
        with Horizontal(id="runs-parts"):
            yield PagedTable(
                self.session,
                self.columns,
                self._page,
                what="runs",
                sort="run",
                descending=True,
                filter_hint="state:failed kind:train tag:x problems>100 started>2026-11-01",
                suggest=suggestions("runs"),
            )
            with Vertical(id="runs-preview"):
                yield Static(id="preview-title", classes="line")
                yield Facts(id="preview-facts")
                yield Plot("No curves.")

    @property
    def run(self) -> int | None:
        pointed = self.table.pointed
        return None if pointed is None else int(pointed)

    @property
    def run_record(self) -> Mapping[str, Any] | None:
        return self.record or None

    def _page(self, store: Store, query: PageQuery) -> Page:
        marks = {run: f"{_MARKED}{colour}" for run, colour in dict(self._marks).items()}
        if self._pinned is not None:
            marks[self._pinned] = f"{_PINNED}0"
        return runs_page(store, query, marks, self._known)

    # The preview

    def reader(self) -> Reader[RunPreview]:
        # Where it is narrow only the pinned one is of interest.
        wide, reader = self.has_class("-wide"), self._reader
        run, marked = (self.run, sorted(self._marks)) if wide else (None, [])
        return lambda store: run_preview(store, run, marked, reader)

    def show(self, snapshot: RunPreview) -> None:
        view = snapshot.view
        if snapshot.pinned != self._pinned:
            self._pinned = snapshot.pinned
            self.table.reload()
        if view is None:
            self.put("#preview-title", "")
            self.query_one(Facts).show(())
            self.query_one(Plot).show()
            return
        run = view.status.run
        self.put(
            "#preview-title",
            Content.assemble((f"Run {run.id}, {run.kind}  ", "bold"),
                             badge(outcome(view.status))),
        )  # fmt: skip
        self.query_one(Facts).show(snapshot.facts)
        plot = self.query_one(Plot)
        if run.kind == "collect":
            plot.show(*collection_charts(view.curves))
            return
        drawn = [
            RunCurves(
                curves,
                before=f"{each} ",
                behind=" (pinned)" if each == snapshot.pinned else "",
                colour=self._colour(each) if len(snapshot.curves) > 1 else None,
                strong=each == run.id and len(snapshot.curves) > 1,
            )
            for each, curves in snapshot.curves.items()
        ]
        found = kinds(name for curves in snapshot.curves.values() for name in curves)
        plot.show(*training_charts(drawn, next(iter(found), None)))

    def _colour(self, run: int) -> int:
        if run == self._pinned:
            return 0
        return self._marks.get(run, _POINTED)

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        super(FilteredList, self).reload()  # the preview, not the list

    def values(self) -> Mapping[str, object]:
        return {**super().values(), "filter": self.table.query_now.filter or None}

    # Actions

    def open(self, key: str) -> None:
        self.dashboard.open_run(int(key))

    def action_mark(self) -> None:
        if (run := self.run) is None:
            return
        if run in self._marks:
            del self._marks[run]
        else:
            taken = set(self._marks.values())
            free = (colour for colour in range(1, _POINTED) if colour not in taken)
            self._marks[run] = next(free, 1 + len(self._marks) % (_POINTED - 1))
        self.reload()

    def action_compare(self) -> None:
        runs = dict.fromkeys([*self._marks, *([] if self.run is None else [self.run])])
        if len(runs) + (self._pinned is not None and self._pinned not in runs) < 2:
            self.notify("Mark the runs to compare first, with the space key.")
            return
        colours = {run: self._colour(run) for run in runs}
        self.app.push_screen(CompareRunsScreen(self.session, colours))
