"""Two models side by side."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.columns import Column
from diode_app.data.comparison import FACT, Comparison
from diode_app.screens.base import DiodeScreen
from diode_app.session import Session
from diode_app.widgets.table import MemoryTable


class CompareScreen(DiodeScreen):
    """What each model was made of, and its own metrics; `warning` says where these cannot be
    compared."""

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

    def __init__(self, session: Session, comparison: Comparison, warning: str | None) -> None:
        super().__init__(session)
        self._comparison = comparison
        self._warning = warning

    def body(self) -> ComposeResult:
        names = tuple(self._comparison.facts)
        yield Static(" and ".join(names), id="comparison-title", markup=False)
        if self._warning is not None:
            yield Static(f"⚠ {self._warning}", id="comparison-warning", markup=False)
        columns = (FACT, *(Column(name, name, sortable=False) for name in names))
        yield MemoryTable(self.session, columns, what="facts", wraps=True)

    def body_mounted(self) -> None:
        table = self.query_one(MemoryTable)
        table.show_rows(self._comparison.rows(all_facts=True))
        table.focus_rows()

    def values(self) -> Mapping[str, object]:
        return dict(zip("ab", self._comparison.facts, strict=True))
