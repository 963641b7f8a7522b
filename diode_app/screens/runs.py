"""Runs: all collections, trainings, validations and imports, live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from textual.app import ComposeResult

from diode_app import text
from diode_app.actions import Action
from diode_app.data.runs import SORTABLE, runs_page, suggestions
from diode_app.screens.base import SettingsChanged
from diode_app.screens.run_actions import RUN_ACTIONS
from diode_app.screens.run_list import RunList
from diode_app.settings import RUN_COLUMNS
from diode_app.widgets.modals import Choose
from diode_app.widgets.table import Column, PagedTable

_LABELS = {"gpu": "GPU", "left": "time left", "started": f"started ({text.zone()})"}
_RIGHT = frozenset({"run", "rate"})


def _columns(keys: tuple[str, ...]) -> list[Column]:
    return [
        Column(
            key,
            _LABELS.get(key, key),
            sortable=key in SORTABLE,
            right=key in _RIGHT,
            state=key == "state",
        )
        for key in keys
    ]


class RunsScreen(RunList):
    """The list; Enter opens a run's page."""

    MODE = "runs"
    ACTIONS = (
        Action("runs.open", "enter", "Open", "The page of this run.",
               "diode-engine runs show {run} --store={store}", footer=False),
        *RUN_ACTIONS,
        Action("runs.columns", "k", "Columns", "Choose the columns of the list.", footer=False),
        Action("runs.list", "l", "Everything", "Take the filter away.",
               "diode-engine runs list {filter} --store={store}", footer=False),
    )  # fmt: skip

    def body(self) -> ComposeResult:
        yield PagedTable(
            self.session,
            _columns(self.session.settings.run_columns),
            runs_page,
            what="runs",
            sort="run",
            descending=True,
            filter_hint="state:failed kind:train tag:x problems>100 started>2026-11-01",
            suggest=suggestions(),
        )

    def values(self) -> Mapping[str, object]:
        return {**super().values(), "filter": self.table.query_now.filter or None}

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
