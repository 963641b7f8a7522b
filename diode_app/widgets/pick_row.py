"""A table in front of a screen, from which one row is picked."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label

from diode_app.actions import Action, Actions
from diode_app.widgets.key_bar import KeyBar
from diode_app.widgets.table import PagedTable


class PickRow(Actions, ModalScreen[str | None]):
    """The result is the key of the row, None where the person leaves."""

    DEFAULT_CSS = """
    PickRow {
        align: center middle;
        .pick--box {
            width: 90%; height: 85%; border: round $primary; background: $surface; padding: 0 1;
        }
        Label { text-style: bold; }
    }
    """
    HELP_TITLE = "Picking a row"
    ACTIONS = (
        Action("pick.take", "enter", "Take", "Take this row."),
        Action("pick.leave", "escape", "Leave", "Take none."),
    )

    def __init__(self, title: str, table: PagedTable) -> None:
        super().__init__()
        self._title = title
        self._table = table

    def compose(self) -> ComposeResult:
        with Vertical(classes="pick--box"):
            yield Label(self._title, markup=False)
            yield self._table
        yield KeyBar()

    def on_mount(self) -> None:
        self._table.reload()
        self._table.focus_rows()

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        self.dismiss(event.key)

    def action_take(self) -> None:
        if self._table.pointed is not None:
            self.dismiss(self._table.pointed)

    def action_leave(self) -> None:
        self.dismiss(None)
