"""What is known of something: names and values, meters, and the states of runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import App
from textual.content import Content
from textual.widgets import Static

from diode_app import text

_BAR = 20


class Facts(Static):
    """Names and values in two columns; a long value is broken into lines within its column."""

    DEFAULT_CSS = "Facts { height: auto; padding: 0 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[tuple[str, str], ...] = ()

    def show(self, pairs: Sequence[tuple[str, str]]) -> None:
        if tuple(pairs) == self._shown:
            return
        self._shown = tuple(pairs)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style=Style(dim=True))
        grid.add_column(ratio=1)
        for name, value in pairs:
            grid.add_row(name, Text(value))
        self.update(grid)


class Meter(Static):
    """One line: a label, a bar, what it stands for."""

    DEFAULT_CSS = "Meter { height: 1; }"

    def __init__(self, label: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.label = label

    def show(
        self, fraction: float | None, value: str, says: str = "", *, colour: str = "$primary"
    ) -> None:
        """`fraction` of the bar, from 0 to 1, None where it is not known; the value is a text."""
        self.update(
            Content.assemble(
                f"{self.label:<10} ",
                (text.bar(fraction, _BAR), colour),
                f" {value:>6}",
                f"  {says}",
            )
        )


def badge(state: str) -> Content:
    """For a widget, such as `✗ failed`."""
    return Content.styled(text.state(state), f"${text.STATES[state][1]}")


def state_style(app: App[object], shown: str) -> str:
    """Return the colour of a state that is shown as `✗ failed`, in the app's theme; for a table's
    cell, which knows no CSS variables."""
    _, colour = text.STATES.get(shown.rpartition(" ")[2], ("", "text-muted"))
    return "" if colour == "text-muted" else app.theme_variables[colour.removeprefix("text-")]
