"""Pages with tabs."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import TabbedContent, TabPane

from diode_app.screens.base import DiodeScreen
from diode_app.widgets.log_pane import LogPane
from diode_app.widgets.plot import Plot
from diode_app.widgets.table import PagedTable

_MAX_TABS = 6


class TabbedScreen(DiodeScreen):
    """A mixin for a screen with one TabbedContent: digits show its tabs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(str(number), f"tab({number})", f"Tab {number}", show=False)
        for number in range(1, _MAX_TABS + 1)
    ]

    @property
    def tabs(self) -> TabbedContent:
        return self.query_one(TabbedContent)

    def action_tab(self, number: int) -> None:
        shown = [pane for pane in self.tabs.query(TabPane) if self.tabs.get_tab(pane).display]
        if number <= len(shown) and shown[number - 1].id is not None:
            self.show_tab(str(shown[number - 1].id))

    def show_tab(self, tab: str) -> None:
        """Show the tab of this id; its table, its log or its text takes the focus."""
        self.tabs.active = tab
        for widget in self.query_one(f"#{tab}").walk_children():
            if isinstance(widget, PagedTable | LogPane):
                widget.focus_rows()
                return
            if isinstance(widget, Plot | VerticalScroll) and widget.can_focus:
                widget.focus()
                return
