"""Names and values, in two columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.widgets import Static


class Facts(Static):
    """A long value is broken into lines within its column."""

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
