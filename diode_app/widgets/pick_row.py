"""A table in front of a screen, from which one row is picked."""

from __future__ import annotations

from textual.app import ComposeResult

from diode_app.actions import Action
from diode_app.widgets.key_bar import KeyBar
from diode_app.widgets.modals import Dialog
from diode_app.widgets.table import PagedTable


class PickRow(Dialog[str | None]):
    """The result is the key of the row, None where the person leaves."""

    DEFAULT_CSS = "PickRow { .box { width: 90%; height: 85%; grid-rows: 1 1fr; grid-gutter: 0; } }"
    HELP_TITLE = "Picking a row"
    ACTIONS = (Action("pick.take", "enter", "Take", "Take this row."),)

    def __init__(self, title: str, table: PagedTable) -> None:
        super().__init__(title)
        self._table = table

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield KeyBar()

    def content(self) -> ComposeResult:
        yield self._table

    def on_mount(self) -> None:
        self._table.reload()
        self._table.focus_rows()

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        self.dismiss(event.key)

    def action_take(self) -> None:
        if self._table.pointed is not None:
            self.dismiss(self._table.pointed)
