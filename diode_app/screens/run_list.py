"""What the lists of runs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diode_app.data.store_access import Look
from diode_app.screens.run import RunScreen
from diode_app.screens.run_actions import RunActions
from diode_app.widgets.table import PagedTable


class RunList(RunActions):
    """A mixin for a screen whose one table has a run a row: its run is the one that the cursor is
    on, and Enter opens its page."""

    @property
    def table(self) -> PagedTable:
        return self.query_one(PagedTable)

    @property
    def run(self) -> int | None:
        pointed = self.table.pointed
        return None if pointed is None else int(pointed)

    @property
    def at_hand(self) -> Mapping[str, Any] | None:
        if not self.has_body:
            return None
        pointed = self.table.pointed
        return next((row.record for row in self.table.page.rows if row.key == pointed), None)

    def body_mounted(self) -> None:
        self.table.focus_rows()

    def look_changed(self, look: Look) -> None:
        self.reload()

    def reload(self) -> None:
        super().reload()
        self.table.reload()

    def values(self) -> Mapping[str, object]:
        command = (self.at_hand or {}).get("command")
        return {"run": self.run, "command": None if command is None else tuple(command)}

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        self.app.push_screen(RunScreen(self.session, int(event.key)))

    def action_open(self) -> None:
        if self.run is not None:
            self.app.push_screen(RunScreen(self.session, self.run))
