"""Data: every problem that was timed, with its best candidate beside ATen's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from textual.app import ComposeResult
from textual.containers import Horizontal

from diode_app.actions import Action, import_timings
from diode_app.data.candidate import CandidateView, candidate_view
from diode_app.data.filters import suggestions
from diode_app.data.problem_columns import PROBLEM_COLUMNS
from diode_app.data.problems import (
    PREVIEW_COLUMNS,
    Preview,
    parse_key,
    preview,
    problems_page,
    row_of,
)
from diode_app.screens.base import Reader
from diode_app.screens.candidate import CandidateScreen
from diode_app.screens.filtered_list import FilteredList, list_actions
from diode_app.screens.problem import ProblemScreen
from diode_app.session import Session
from diode_app.widgets.empty import IMPORT, EmptyState, Step
from diode_app.widgets.facts import Facts
from diode_app.widgets.files import ask_target
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import Latest, acts
from diode_engine.store.datasets.format import SUFFIXES
from diode_engine.store.query import problems
from diode_engine.store.run_query import known_values

# The actions that need timings in the store.
_WITH_TIMINGS = ("open", "choose", "export_dataset")
_NEXT = (
    IMPORT,
    Step("Collect", "app.go('collect')", "Time kernels on the GPUs of this machine.", "C"),
)


class DataScreen(FilteredList):
    """The list; Enter opens a problem's page. Where there is room, the fastest kernels of the
    problem under the cursor are below the list, and beside them the kernel under the cursor."""

    MODE = "data"
    COLUMNS = "problem_columns"
    ALL_COLUMNS = PROBLEM_COLUMNS
    ACTIONS = (
        Action("data.open", "enter", "Open", "The page of this problem.",
               "diode-engine data show {problem} --store={store}", footer=False),
        Action("data.choose", "w", "Ask", "What would a model choose for this problem?"),
        import_timings("data", footer=True),
        Action("data.export-dataset", "x", "Export", "Write all timings to a dataset file.",
               "diode-engine data export {target} --store={store}", footer=False, writes=True),
        *list_actions("data"),
    )  # fmt: skip
    HEADLESS = (
        ("List", "diode-engine data problems {filter} --store={store}"),
        ("Map", "diode-engine data map {filter} --store={store}"),
    )
    DEFAULT_CSS = """
    DataScreen {
        #data-parts { height: 13; border-top: solid $panel; }
        #data-parts > * { width: 1fr; }
        #data-candidate { border-left: solid $panel; height: 1fr; }
        &.-low #data-parts { display: none; }
        &.-narrow #data-candidate { display: none; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._known: dict[str, list[str]] = {}
        self._has_timings = True  # until the store was read and has none
        self._previewing: Latest[Preview | None] = Latest(self, self._show_preview, self.fail)
        self._preview: Preview | None = None
        self._pointing: Latest[CandidateView] = Latest(self, self._show_candidate, self.fail)

    def body(self) -> ComposeResult:
        yield PagedTable(
            self.session,
            self.columns,
            problems_page,
            what="problems",
            sort="problem",
            filter_hint="op:mm dtype:bf16 m<=64 k%8!=0 -layout:row/col efficiency<0.8",
            suggest=suggestions("data", self._known),
        )
        with Horizontal(id="data-parts"):
            yield PagedTable(
                self.session, PREVIEW_COLUMNS, what="fastest candidates", id="data-preview"
            )
            yield Facts(id="data-candidate")
        yield EmptyState(
            "There are no timings yet",
            "Problems come with the timings of their kernels: from a file, or from this machine's "
            "GPUs.",
            _NEXT, id="data-empty",
        )  # fmt: skip

    def reader(self) -> Reader[tuple[bool, dict[str, list[str]]]]:
        return lambda store: (bool(problems(store, limit=1)), known_values(store))

    def show(self, snapshot: tuple[bool, dict[str, list[str]]]) -> None:
        there, known = snapshot
        self._known.update(known)
        if there is not self._has_timings:
            self._has_timings = there
            self.refresh_bindings()
        self.show_empty(not there, "PagedTable", "#data-parts")

    # The one that the cursor is on

    def values(self) -> Mapping[str, object]:
        return {
            "target": "timings.msgpack.zst",
            "problem": self.record.get("id"),
            "filter": tuple(self.table.query_now.filter.split()),
        }

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        if not self.query_one("#data-parts").region:
            return
        key, shown, read = event.key, self._preview, self.session.store.read
        if event.table is self.table:
            self._previewing.do(partial(read, lambda store: preview(store, key)))
        elif shown is not None and key in shown.candidates:
            asked = shown.row.problem, shown.candidates[key], shown.row.environment.hardware
            self._pointing.do(
                partial(read, lambda store: candidate_view(store, *asked, asks=False))
            )

    def _show_preview(self, found: Preview | None) -> None:
        self._preview = found
        rows = () if found is None else found.rows
        self.query_one("#data-preview", PagedTable).show_rows(rows)
        if not rows:
            self._pointing.drop()
            self.query_one("#data-candidate", Facts).show(())

    def _show_candidate(self, found: CandidateView) -> None:
        self.query_one("#data-candidate", Facts).show(found.facts)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        shown = self._preview
        if shown is not None and event.key in shown.candidates:  # the list's is FilteredList's
            row, candidate = shown.row, shown.candidates[event.key]
            hardware = row.environment.hardware
            self.app.push_screen(CandidateScreen(self.session, row.problem, candidate, hardware))

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        may = super().check_action(action, parameters)
        if action in _WITH_TIMINGS:
            return may and self._has_timings and self.is_readable
        return may

    def open(self, key: str) -> None:
        self.app.push_screen(ProblemScreen(self.session, *parse_key(key)))

    @acts(asks=False)
    async def action_choose(self) -> None:
        if (key := self.table.pointed) is None:
            return
        row = await self.session.store.read(lambda store: row_of(store, *parse_key(key)))
        if row is not None:
            self.dashboard.go_to_place("ask", (row.problem, row.environment.hardware))

    @acts(writes=True)
    async def action_export_dataset(self) -> str | None:
        question = "Write all timings of the store to which file?"
        target = await ask_target(self.app, question, "timings.msgpack.zst", SUFFIXES)
        if target is None:
            return None
        self.notify(f"Writing {target.name} ...", markup=False)
        summary = await self.session.store.command(
            ["data", "export", str(target.absolute()), f"--store={self.session.location}"]
        )
        return f"{json.loads(summary)['timings']:,} timings are in {target}."
