"""Data: every problem that was timed, with its best candidate beside ATen's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from diode_app import text
from diode_app.actions import Action
from diode_app.data.problems import (
    Preview,
    known_values,
    parse_key,
    preview,
    problems_page,
    suggestions,
)
from diode_app.data.store_access import Look
from diode_app.screens.base import SettingsChanged
from diode_app.screens.data_files import FILE_ACTIONS, FileActions
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.saved_filters import SavedFilters, save_filter
from diode_app.screens.space_map import SpaceMapScreen
from diode_app.session import Session
from diode_app.settings import PROBLEM_COLUMNS
from diode_app.widgets.empty import EmptyState, Step
from diode_app.widgets.modals import Choose
from diode_app.widgets.reading import Reading
from diode_app.widgets.table import PagedTable
from diode_app.widgets.table_columns import TableColumn
from diode_engine.core.problem import Problem

if TYPE_CHECKING:
    from diode_engine.store import Store

_LABELS = {
    "problem": "id", "b": "B", "m": "M", "n": "N", "k": "K", "best": "best µs", "aten": "ATen µs",
    "efficiency": "ATen eff.", "candidates": "tried", "gpu": "GPU",
}  # fmt: skip
_LEFT = frozenset({"op", "dtype", "layout", "align", "bias", "gpu", "fastest"})
_UNSORTED = frozenset({"layout", "align", "bias", "fastest"})
_BAR = 24
# Where there is no room for all columns, the last of these are left out first.
_RANKS = {key: rank for rank, key in enumerate(
    ("aten", "b", "fastest", "layout", "candidates", "failed", "timings", "gpu", "bias", "align"),
    start=1,
)}  # fmt: skip
_FIELDS = tuple(Problem.make("mm", 1, 1, 1, "float16").to_dict())
# The actions that need timings in the store.
_WITH_TIMINGS = ("open", "map", "choose", "export_file", "list")
_NEXT = (
    Step("Import the shipped timings", "app.import_shipped", "Taken on an NVIDIA H200.", "i"),
    Step("Import a file", "screen.import_file", "A dataset of your own, or a colleague's.", "f"),
    Step("Collect", "app.go('collect')", "Time kernels on the GPUs of this machine.", "C"),
)


def _columns(keys: tuple[str, ...]) -> list[TableColumn]:
    return [
        TableColumn(
            key,
            _LABELS.get(key, key),
            sortable=key not in _UNSORTED,
            right=key not in _LEFT,
            rank=_RANKS.get(key, 0),
        )
        for key in keys
    ]


class DataScreen(SavedFilters, FileActions):
    """The list; Enter opens a problem's page."""

    MODE = "data"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (36, "-high")]  # noqa: RUF012  # as Textual types it
    ACTIONS = (
        Action("data.open", "enter", "Open", "The page of this problem.",
               "diode-engine data show {problem} --store={store}", footer=False),
        Action("data.map", "m", "Map", "How many problems have which sizes.",
               "diode-engine data map {filter} --store={store}"),
        Action("data.choose", "w", "Ask", "What would a model choose for this problem?"),
        *FILE_ACTIONS,
        save_filter("data"),
        Action("data.columns", "h", "Columns", "Choose the columns of the list.", footer=False),
        Action("data.list", "l", "Everything", "Remove the filter.",
               "diode-engine data problems {filter} --store={store}", footer=False),
    )  # fmt: skip
    DEFAULT_CSS = """
    DataScreen {
        #data-preview { height: auto; border-top: solid $panel; padding: 0 1; }
        &.-low #data-preview { display: none; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._known: dict[str, list[str]] = {}
        self._has_timings = True  # until the store was read and has none
        self._previewing: Reading[Preview | None] = Reading(
            self, session.store, self._show_preview, self.fail
        )

    def body(self) -> ComposeResult:
        yield PagedTable(
            self.session,
            _columns(self.session.settings.problem_columns),
            problems_page,
            what="problems",
            sort="problem",
            filter_hint="op:mm dtype:bf16 m<=64 k%8!=0 -layout:row/col efficiency<0.8",
            suggest=suggestions(self._known),
        )
        yield Static(id="data-preview")
        yield EmptyState(
            "There are no timings yet",
            "Problems come with the timings of their kernels: from a file, or from this machine's "
            "GPUs.",
            _NEXT, id="data-empty",
        )  # fmt: skip

    @property
    def table(self) -> PagedTable:
        return self.query_one(PagedTable)

    def body_mounted(self) -> None:
        self.query_one("#data-empty").display = False
        self.table.focus_rows()

    def looked(self) -> None:
        if (query := self.session.narrowed.pop("data", None)) is not None:
            self._narrow(query)

    def look_changed(self, look: Look) -> None:
        self.reload()

    def reload(self) -> None:
        super().reload()
        self.table.reload()

    def reader(self) -> Callable[[Store], tuple[bool, dict[str, list[str]]]]:
        def read(store: Store) -> tuple[bool, dict[str, list[str]]]:
            from diode_engine.store.query import problems

            return bool(problems(store, limit=1)), known_values(store)

        return read

    def show(self, snapshot: tuple[bool, dict[str, list[str]]]) -> None:
        there, known = snapshot
        self._known.update(known)
        if there is not self._has_timings:
            self._has_timings = there
            self.refresh_bindings()
        empty = self.query_one("#data-empty")
        if empty.display is there:
            empty.display = not there
            self.table.display = there
            self.query_one("#data-preview").display = there
            if there:
                self.table.focus_rows()
            else:
                self.query("#data-empty Button").first().focus()

    # The one that the cursor is on

    @property
    def record(self) -> Mapping[str, Any]:
        rows = {row.key: row.record for row in self.table.page.rows}
        return rows.get(self.table.pointed or "", {})

    def values(self) -> Mapping[str, object]:
        return {
            **super().values(),
            "problem": self.record.get("id"),
            "filter": tuple(self.table.query_now.filter.split()),
        }

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        key = event.key
        self._previewing.ask(lambda store: preview(store, key))

    def _show_preview(self, found: Preview | None) -> None:
        panel = self.query_one("#data-preview", Static)
        if found is None:
            panel.update("")
            return
        row = found.row
        lines = [
            Content.assemble((str(row.problem), "bold"), f"  on {row.environment.hardware.name}")
        ]
        for name, us in found.fastest:
            best = found.fastest[0][1] / us
            lines.append(
                Content.assemble(
                    (text.bar(best, _BAR), "$primary"),
                    f" {best:.3f} {text.microseconds(us):>10} µs  {name}",
                )
            )
        rest = [f"{found.more:,} more were slower" if found.more else "",
                f"{row.failed:,} failed" if row.failed else ""]  # fmt: skip
        lines.append(Content.styled(", ".join(filter(None, rest)), "dim"))
        panel.update(Content("\n").join(lines))

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in _WITH_TIMINGS:
            return self._has_timings and self.is_readable
        return super().check_action(action, parameters)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        self.app.push_screen(ProblemScreen(self.session, *parse_key(event.key)))

    def action_open(self) -> None:
        if self.table.pointed is not None:
            self.app.push_screen(ProblemScreen(self.session, *parse_key(self.table.pointed)))

    def action_choose(self) -> None:
        if self.record:
            fields = {name: self.record[name] for name in _FIELDS}
            self.ask_about(Problem.from_dict(fields))

    def action_map(self) -> None:
        now = self.table.query_now
        self.app.push_screen(SpaceMapScreen(self.session, now.filter, self._narrow))

    def _narrow(self, query: str) -> None:
        self.table.ask(replace(self.table.query_now, filter=query, page=0))

    def action_list(self) -> None:
        self.table.ask(replace(self.table.query_now, filter="", page=0))

    def action_columns(self) -> None:
        async def choose() -> None:
            now = self.session.settings.problem_columns
            chosen = await self.app.push_screen_wait(
                Choose("Columns of the problems", PROBLEM_COLUMNS, now)
            )
            if chosen:
                wanted = replace(self.session.settings, problem_columns=chosen)
                self.post_message(SettingsChanged(wanted))
                self.table.set_columns(_columns(chosen))

        self.run_worker(choose(), group="acting", exit_on_error=False)
