"""A table in front of a screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult

from diode_app.widgets.key_bar import KeyBar
from diode_app.widgets.modals import Dialog
from diode_app.widgets.table import PagedTable


class TableDialog(Dialog[None]):
    """Shows a table until it is left. `choose` is called with the key of a row that is chosen."""

    DEFAULT_CSS = """
    TableDialog { .box { width: 90%; height: 85%; grid-rows: 1 1fr; grid-gutter: 0; } }
    """
    HELP_TITLE = "A table"

    def __init__(self, title: str, table: PagedTable, choose: Callable[[str], object]) -> None:
        super().__init__(title)
        self._table = table
        self._choose = choose

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield KeyBar()

    def content(self) -> ComposeResult:
        yield self._table

    def on_mount(self) -> None:
        self._table.reload()
        self._table.focus_rows()

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        event.stop()
        self._choose(event.key)
