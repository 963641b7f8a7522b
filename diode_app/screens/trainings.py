"""Trainings beside each other: a list, and the curves of some of them over each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app import text
from diode_app.actions import Action
from diode_app.data.curves import CurveReader, series_of, thinned
from diode_app.data.pages import Page, PageQuery
from diode_app.data.runs import suggestions
from diode_app.data.trainings import SORTABLE, Compared, compared, pin, trainings_page
from diode_app.screens.run_actions import RUN_ACTIONS
from diode_app.screens.run_list import RunList
from diode_app.session import Session
from diode_app.widgets.plot import Line, Lines, Plot
from diode_app.widgets.table import Column, PagedTable

if TYPE_CHECKING:
    from diode_engine.store import Store

_LABELS = {"shown": "", "what": "family", "started": f"started ({text.zone()})"}
_COLUMNS = [
    Column(key, _LABELS.get(key, key), sortable=key in SORTABLE, right=key == "run",
           state=key == "state")
    for key in ("shown", "run", "state", "progress", "what", "efficiency", "model", "data",
                "started", "note")
]  # fmt: skip


class TrainingsScreen(RunList):
    """The pinned run, the marked ones and the one that the cursor is on are drawn."""

    MODE = "train"
    HELP_TITLE = "Trainings"
    ACTIONS = (
        Action("trainings.back", "escape", "Back", "To what is trained next."),
        Action("trainings.open", "enter", "Open", "The page of this run.",
               "diode-engine runs show {run} --store={store}", footer=False),
        Action("trainings.mark", "space", "Show", "Draw this run's curves, or not."),
        Action("trainings.pin", "p", "Pin", "Make this run the one that others are compared with, "
               "or not: it has the tag diode/baseline.",
               "diode-engine runs tag {run} diode/baseline --store={store}"),
        Action("trainings.curves", "v", "Next curves", "Another kind of curve."),
        Action("trainings.member", "m", "Member", "The curves of one member of the models."),
        Action("trainings.log-scale", "l", "Log scale", "Values on a logarithmic axis, or not."),
        *RUN_ACTIONS,
    )  # fmt: skip
    DEFAULT_CSS = """
    TrainingsScreen {
        PagedTable { height: 2fr; }
        Plot { height: 3fr; border-top: solid $panel; }
        #trainings-drawn { height: 1; padding: 0 1; color: $text-muted; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._marked: frozenset[int] = frozenset()
        self._reader = CurveReader()
        self._compared = Compared(None, {})
        self._kind: str | None = None
        self._member: str | None = None
        self._log_scale = False

    def body(self) -> ComposeResult:
        yield PagedTable(
            self.session, _COLUMNS, self._page,
            what="trainings",
            sort="run",
            descending=True,
            filter_hint="state:done tag:x spec:ensemble started>2026-11-01",
            suggest=suggestions(),
        )  # fmt: skip
        yield Plot("No curves yet: start a training, or choose one that has drawn some.")
        yield Static(id="trainings-drawn", markup=False)

    def _page(self, store: Store, query: PageQuery) -> Page:
        return trainings_page(store, query, self._marked)

    # Curves

    def reader(self) -> Callable[[Store], Compared]:
        wanted = sorted(self._marked | ({self.run} if self.run is not None else set()))
        reader = self._reader
        return lambda store: compared(store, wanted, reader)

    def show(self, snapshot: Compared) -> None:
        self._compared = snapshot
        self._draw()

    def _draw(self) -> None:
        found, pointed = self._compared, self.run
        if self._kind not in found.kinds:
            self._kind = next(iter(found.kinds), None)
        members = self._members()
        if self._member not in members:
            self._member = None
        own = [
            series
            for series in map(series_of, found.curves.get(pointed or 0, ()))
            if series.kind == self._kind and self._member in (None, series.member)
        ]
        own = [series for series in own if not series.of_fit]
        lines = []
        for run, curves in found.curves.items():
            who = f"{run} (pinned)" if run == found.baseline else str(run)
            for name, points in curves.items():
                series = series_of(name)
                if series.kind == self._kind and self._member in (None, series.member):
                    # Several strong ones could not be told apart.
                    strong = run == pointed and len(found.curves) > 1 and own == [series]
                    lines.append(Line(f"{who} {series.member}", *thinned(points), strong=strong))
        self.query_one(Plot).show(
            Lines(lines, title=self._kind or "", x_label="epoch or round", log_y=self._log_scale)
        )
        of = self._member or "all members"
        self.put(
            "#trainings-drawn",
            f"{of} of {'run' if len(found.curves) == 1 else 'runs'} "
            f"{', '.join(map(str, found.curves))}" if found.curves else "",
        )  # fmt: skip

    def _members(self) -> list[str]:
        """Of the models, whose curves of this kind there are."""
        names = (name for curves in self._compared.curves.values() for name in curves)
        series = map(series_of, names)
        return list(dict.fromkeys(s.member for s in series if s.kind == self._kind))

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        super().reload()

    # Actions

    def action_back(self) -> None:
        self.dismiss()

    def action_mark(self) -> None:
        if self.run is not None:
            self._marked ^= {self.run}
            self.reload()

    def action_pin(self) -> None:
        run = self.run
        if run is None:
            return

        async def pinned() -> str:
            if await self.session.source.write(lambda store: pin(store, run)):
                return f"Run {run} is what others are compared with."
            return f"Run {run} is pinned no more."

        self.act(pinned, f"pins run {run}", asks=False)

    def action_curves(self) -> None:
        kinds = self._compared.kinds
        if kinds:
            at = kinds.index(self._kind) if self._kind in kinds else -1
            self._kind = kinds[(at + 1) % len(kinds)]
            self._draw()

    def action_member(self) -> None:
        members = [None, *self._members()]
        self._member = members[(members.index(self._member) + 1) % len(members)]
        self._draw()

    def action_log_scale(self) -> None:
        self._log_scale = not self._log_scale
        self._draw()
