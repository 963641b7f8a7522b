"""Two models side by side."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.models import Comparison
from diode_app.screens.base import DiodeScreen
from diode_app.session import Session
from diode_app.widgets.memory_table import MemoryTable
from diode_app.widgets.table_columns import TableColumn


class CompareScreen(DiodeScreen):
    """What each model was made of, and its own metrics."""

    MODE = "models"
    NEEDS_STORE = False
    HELP_TITLE = "Two models"
    ACTIONS = (
        Action("comparison.back", "escape", "Back", "To the models.",
               "diode-engine models compare {a} {b}"),
    )  # fmt: skip
    DEFAULT_CSS = """
    CompareScreen {
        #comparison-title { height: 1; padding: 0 1; text-style: bold; }
        #comparison-warning { height: auto; padding: 0 1; color: $text-warning; }
    }
    """

    def __init__(self, session: Session, comparison: Comparison) -> None:
        super().__init__(session)
        self._comparison = comparison

    def body(self) -> ComposeResult:
        a, b = self._comparison.names
        yield Static(f"{a} and {b}", id="comparison-title", markup=False)
        warning = self._comparison.warning
        yield Static(f"⚠ {warning}" if warning else "", id="comparison-warning", markup=False)
        yield MemoryTable(
            self.session,
            (
                TableColumn("metric", "metric"),
                TableColumn("a", a, sortable=False, right=True),
                TableColumn("b", b, sortable=False, right=True),
                TableColumn("difference", "difference", right=True),
            ),
            what="metrics",
            wraps=True,
        )

    def body_mounted(self) -> None:
        self.query_one("#comparison-warning").display = self._comparison.warning is not None
        table = self.query_one(MemoryTable)
        table.show_rows(self._comparison.rows)
        table.focus_rows()

    def values(self) -> Mapping[str, object]:
        a, b = self._comparison.names
        return {"a": a, "b": b}

    def action_back(self) -> None:
        self.dismiss()
