"""Several things side by side: models, or (in `compare_runs`) runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.columns import Column
from diode_app.data.comparison import FACT, Comparison
from diode_app.data.pages import Row
from diode_app.screens.base import DiodeScreen
from diode_app.session import Session
from diode_app.widgets.table import PagedTable


class ComparisonScreen(DiodeScreen):
    """A title, what cannot be compared, and a table with a column for each thing."""

    DEFAULT_CSS = "ComparisonScreen #comparison-warning { display: none; }"

    def body(self) -> ComposeResult:
        yield Static(id="comparison-title", classes="lines bold", markup=False)
        yield Static(id="comparison-warning", classes="words warning", markup=False)
        yield PagedTable(self.session, (FACT,), what="facts", wraps=True)

    def show_facts(
        self, title: str, names: Mapping[str, str], rows: Sequence[Row], warning: str
    ) -> None:
        """Show what is known of each thing; `names` are the headings, by the things' keys."""
        self.put("#comparison-title", title)
        self.put("#comparison-warning", f"⚠ {warning}")
        self.query_one("#comparison-warning").display = bool(warning)
        table = self.query_one(PagedTable)
        columns = (Column(key, name, rank=place) for place, (key, name) in enumerate(names.items()))
        table.set_columns((FACT, *columns))
        table.show_rows(rows)


class CompareScreen(ComparisonScreen):
    """What each of two models was made of, and its own metrics."""

    MODE = "models"
    NEEDS_STORE = False
    HELP_TITLE = "Two models"
    ACTIONS = (
        Action("comparison.back", "escape", "Back", "To the models.",
               "diode-engine models compare {a} {b}"),
    )  # fmt: skip

    def __init__(self, session: Session, comparison: Comparison) -> None:
        super().__init__(session)
        self._comparison = comparison

    def body_mounted(self) -> None:
        found = self._comparison
        names = {name: name for name in found.facts}
        self.show_facts(" and ".join(names), names, found.rows(all_facts=True), found.warning)

    def values(self) -> Mapping[str, object]:
        return dict(zip("ab", self._comparison.facts, strict=True))
