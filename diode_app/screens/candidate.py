"""The page of a candidate on a problem: each timing, each prediction, and the kernel itself."""

from __future__ import annotations

import json
from collections.abc import Mapping

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static, TabbedContent, TabPane

from diode_app.actions import Action
from diode_app.data.candidate import (
    PREDICTION_COLUMNS,
    TIMING_COLUMNS,
    CandidateView,
    candidate_view,
)
from diode_app.data.problem_columns import short
from diode_app.screens.base import ReaderIfReady
from diode_app.screens.tabs import TabbedScreen
from diode_app.session import Session
from diode_app.widgets.facts import Facts
from diode_app.widgets.table import PagedTable
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem


class CandidateScreen(TabbedScreen):
    """`hardware` is what the predictions are for."""

    MODE = "data"
    NEEDS_STORE = False
    HELP_TITLE = "A candidate"
    ACTIONS = (
        Action("candidate.back", "escape", "Back", "To where this page was opened."),
        Action("candidate.run", "enter", "Run", "The run that took this timing.", footer=False),
        Action("candidate.copy", "c", "Copy config", "Copy the candidate as JSON, as collect "
               "--candidates reads it."),
    )  # fmt: skip
    HEADLESS = (("Timings", "diode-engine data show {key} --store={store}"),)
    DEFAULT_CSS = "CandidateScreen Facts { max-height: 10; }"

    def __init__(
        self, session: Session, problem: Problem, candidate: Candidate, hardware: Hardware
    ) -> None:
        super().__init__(session)
        self._asked = problem, candidate, hardware

    def body(self) -> ComposeResult:
        problem, candidate, _ = self._asked
        title = Content.assemble((short(candidate), "bold"), f" · {problem}")
        yield Static(title, classes="line")
        yield Facts()
        with TabbedContent(initial="tab-timings"):
            with TabPane("Timings", id="tab-timings"):
                yield PagedTable(self.session, TIMING_COLUMNS, what="timings", id="timings")
            with TabPane("Predictions", id="tab-predictions"):
                yield PagedTable(
                    self.session, PREDICTION_COLUMNS, what="predictions", id="predictions"
                )

    def reader(self) -> ReaderIfReady[CandidateView]:
        asked = self._asked
        return lambda store: candidate_view(store, *asked)

    def values(self) -> Mapping[str, object]:
        return {"key": self._asked[0].key}

    def show(self, snapshot: CandidateView) -> None:
        self.query_one(Facts).show(snapshot.facts)
        self.query_one("#timings", PagedTable).show_rows(snapshot.timings)
        self.query_one("#predictions", PagedTable).show_rows(snapshot.predictions)

    def action_copy(self) -> None:
        self.dashboard.copy(json.dumps(self._asked[1].to_dict()))

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        if event.table.what == "timings":
            self.action_run()

    def action_run(self) -> None:
        if (row := self.query_one("#timings", PagedTable).pointed_row) is not None:
            self.dashboard.open_run(int(row.record["run"]))
