"""What the places with one list share, and those that take a query: saved queries, which `:` finds,
and the columns of the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from diode_app.actions import Action
from diode_app.data.tables import Column, pick
from diode_app.screens.base import DiodeScreen
from diode_app.settings import COLUMNS
from diode_app.widgets.modals import Choose, Prompt
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import acts
from diode_engine.documents import shortened


def list_actions(place: str) -> tuple[Action, ...]:
    """Return the actions of FilteredList, for the place of this mode."""
    return (
        Action(f"{place}.save-filter", "b", "Save filter", "Give the list's filter a name, by "
               "which : finds it; without a filter, forget a name.", footer=False),
        Action(f"{place}.columns", "h", "Columns", "Choose the columns of the list.",
               footer=False),
    )  # fmt: skip


class QueryScreen(DiodeScreen):
    """A mixin for the screen of a place that `take`s a query. Saved queries are in the settings."""

    @acts()
    async def action_save_filter(self) -> str | None:
        query = self.query_text
        known = dict(self.session.settings.filters)
        if query:
            question = f"A name for {shortened(' '.join(query.split()), 200)}"
        elif known:
            question = f"The name of the filter to forget: {', '.join(known)}"
        else:
            return "The list has no filter; / makes one."
        given = await self.app.push_screen_wait(Prompt(question))
        name = (given or "").strip()
        if not name:
            return None
        if query:
            known[name] = f"{self.MODE} {query}"
        elif known.pop(name, None) is None:
            return f"There is no filter {name}."
        self.dashboard.change_settings(filters=known)
        return f"The filter {name} is {'kept: : finds it' if query else 'forgotten'}."


class ListScreen(DiodeScreen):
    """A mixin for a screen with one list; Enter, or a click, opens the page of a row."""

    @property
    def table(self) -> PagedTable:
        return self.query_one(PagedTable)

    @property
    def record(self) -> Mapping[str, Any]:
        """The record of the row under the cursor; empty where there is none."""
        row = self.table.pointed_row if self.has_body else None
        return {} if row is None else row.record

    def open(self, key: str) -> None:
        """Open the page of the row with this key."""
        raise NotImplementedError

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        if event.table is self.table:
            self.open(event.key)

    def action_open(self) -> None:
        if self.table.pointed is not None:
            self.open(self.table.pointed)


class FilteredList(ListScreen, QueryScreen):
    """A mixin for the screen of a place with one list. `COLUMNS` is the setting with the names of
    the columns that it shows, of `ALL_COLUMNS`."""

    COLUMNS: ClassVar[str]
    ALL_COLUMNS: ClassVar[Sequence[Column]]

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that the settings name."""
        return pick(self.ALL_COLUMNS, getattr(self.session.settings, self.COLUMNS))

    @property
    def query_text(self) -> str:
        return self.table.query_now.filter

    def reload(self) -> None:
        super().reload()
        self.table.reload()

    def take(self, given: str) -> None:
        """List what this query matches."""
        self.table.ask(replace(self.table.query_now, filter=given, page=0))

    @acts()
    async def action_columns(self) -> None:
        now = getattr(self.session.settings, self.COLUMNS)
        dialog = Choose("Columns of the list", COLUMNS[self.COLUMNS], now)
        if chosen := await self.app.push_screen_wait(dialog):
            self.dashboard.change_settings(**{self.COLUMNS: chosen})
            self.table.set_columns(self.columns)
