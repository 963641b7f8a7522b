"""Meters: a quantity as a bar, a number and words."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from diode_app import text

_BAR = 20


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
