"""Runs: all collections, trainings, validations and imports, live, as a table of experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from diode_app import text
from diode_app.actions import Action
from diode_app.data.curves import CurveReader
from diode_app.data.pages import Page, PageQuery
from diode_app.data.run_columns import SORTS
from diode_app.data.run_preview import RunPreview, run_preview
from diode_app.data.runs import RunLister, suggestions
from diode_app.data.trainings import pin
from diode_app.screens.base import WIDTHS, SettingsChanged
from diode_app.screens.compare_runs import CompareRunsScreen
from diode_app.screens.run_actions import RUN_ACTIONS
from diode_app.screens.run_list import RunList
from diode_app.screens.saved_filters import SavedFilters, save_filter
from diode_app.session import Session
from diode_app.settings import RUN_COLUMNS
from diode_app.themes import SERIES
from diode_app.widgets.badge import badge
from diode_app.widgets.curve_charts import RunCurves, collection_charts, training_charts
from diode_app.widgets.facts import Facts
from diode_app.widgets.modals import Choose
from diode_app.widgets.plot import Plot
from diode_app.widgets.table import PagedTable
from diode_app.widgets.table_columns import TableColumn

if TYPE_CHECKING:
    from diode_engine.store import Store

_LABELS = {
    "mark": "", "gpu": "GPU", "left": "time left", "started": f"started ({text.zone()})",
    "against": "± pinned", "changed": "changed settings",
}  # fmt: skip
_RIGHT = frozenset({"run", "rate", "efficiency", "against"})
# Where there is no room for all columns, the last of these are left out first.
_RANKS = {key: rank for rank, key in enumerate(
    ("kind", "efficiency", "progress", "left", "family", "against", "duration", "note", "tags",
     "model", "data", "changed", "rate", "started", "gpu", "host", "user"),
    start=1,
)}  # fmt: skip
_PINNED, _MARKED = "★", "●"
_POINTED = len(SERIES) - 1  # the colour of the run that the cursor is on, where it has no other


def _sign(value: str) -> Text:
    """A mark in the colour of the run's curves; behind its sign is the colour's number."""
    if not value:
        return Text("")
    red, green, blue = SERIES[int(value[1:])]
    return Text(value[0], style=f"bold rgb({red},{green},{blue})")


def _columns(keys: tuple[str, ...]) -> list[TableColumn]:
    return [
        TableColumn(
            key,
            _LABELS.get(key, key),
            sortable=key in SORTS,
            right=key in _RIGHT,
            state=key == "state",
            sign=_sign if key == "mark" else None,
            rank=_RANKS.get(key, 0),
        )
        for key in keys
    ]


class RunsScreen(SavedFilters, RunList):
    """The list; Enter opens a run's page. Where it is wide, the run that the cursor is on is beside
    the list, with its curves over those of the pinned one and of the marked ones."""

    MODE = "runs"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    ACTIONS = (
        Action("runs.open", "enter", "Open", "The page of this run.",
               "diode-engine runs show {run} --store={store}", footer=False),
        Action("runs.mark", "space", "Mark", "Compare this run with others, or not: it is drawn "
               "in the colour of its mark."),
        Action("runs.compare", "v", "Compare", "The marked runs, this one and the pinned one "
               "beside each other: what differs, and their curves."),
        Action("runs.pin", "p", "Pin", "Make this training the one that others are compared with, "
               "or not: it has the tag diode/baseline.",
               "diode-engine runs tag {run} diode/baseline --store={store}"),
        *RUN_ACTIONS,
        save_filter("runs"),
        Action("runs.columns", "h", "Columns", "Choose the columns of the list.", footer=False),
        Action("runs.list", "l", "Everything", "Remove the filter.",
               "diode-engine runs list {filter} --store={store}", footer=False),
    )  # fmt: skip
    DEFAULT_CSS = """
    RunsScreen {
        #runs-parts { height: 1fr; }
        #runs-preview { display: none; width: 2fr; border-left: solid $panel; }
        #preview-title { height: 1; padding: 0 1; }
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
        self._lister = RunLister()

    def body(self) -> ComposeResult:
        with Horizontal(id="runs-parts"):
            yield PagedTable(
                self.session,
                _columns(self.session.settings.run_columns),
                self._page,
                what="runs",
                sort="run",
                descending=True,
                filter_hint="state:failed kind:train tag:x problems>100 started>2026-11-01",
                suggest=suggestions(),
            )
            with Vertical(id="runs-preview"):
                yield Static(id="preview-title")
                yield Facts(id="preview-facts")
                yield Plot("No curves.")

    def _page(self, store: Store, query: PageQuery) -> Page:
        marks = {run: f"{_MARKED}{colour}" for run, colour in dict(self._marks).items()}
        if self._pinned is not None:
            marks[self._pinned] = f"{_PINNED}0"
        return self._lister.page(store, query, marks)

    # The preview

    def looked(self) -> None:
        if (query := self.session.narrowed.pop("runs", None)) is not None:
            self.table.ask(replace(self.table.query_now, filter=query, page=0))

    def reader(self) -> Callable[[Store], RunPreview]:
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
                             badge(str(view.status.state))),
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
        plot.show(*training_charts(drawn, snapshot.kind))

    def _colour(self, run: int) -> int:
        if run == self._pinned:
            return 0
        return self._marks.get(run, _POINTED)

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        super(RunList, self).reload()  # the preview alone

    def values(self) -> Mapping[str, object]:
        return {**super().values(), "filter": self.table.query_now.filter or None}

    # Actions

    def action_mark(self) -> None:
        run = self._chosen()
        if run is None:
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

    def action_pin(self) -> None:
        run = self._chosen()
        if run is None:
            return

        async def pinned() -> str:
            if await self.session.store.write(lambda store: pin(store, run)):
                return f"Run {run} is what others are compared with."
            return f"Run {run} is no longer pinned."

        self.act(pinned, f"pins run {run}")

    def action_list(self) -> None:
        self.table.ask(replace(self.table.query_now, filter="", page=0))

    def action_columns(self) -> None:
        async def choose() -> None:
            now = self.session.settings.run_columns
            chosen = await self.app.push_screen_wait(
                Choose("Columns of the list", RUN_COLUMNS, now)
            )
            if chosen:
                wanted = replace(self.session.settings, run_columns=chosen)
                self.post_message(SettingsChanged(wanted))
                self.table.set_columns(_columns(chosen))

        self.run_worker(choose(), group="acting", exit_on_error=False)
