"""Jump mode: a letter at each place that can have the focus, and the letter goes there."""

from __future__ import annotations

from string import ascii_lowercase
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static, Tab, Tabs


def jump_targets(screen: Screen[object]) -> list[Widget]:
    """Return the widgets of the screen that can be seen and can have the focus, from the top to the
    bottom; of a row of tabs, each tab."""
    found = [
        target
        for widget in screen.focus_chain
        for target in (widget.query(Tab) if isinstance(widget, Tabs) else (widget,))
        if target.is_on_screen and screen.find_widget(target).visible_region
    ]
    return sorted(found, key=lambda target: (target.region.y, target.region.x))


class Jump(ModalScreen[Widget | None]):
    """Shows the letters over the screen. The result is the widget that was chosen."""

    DEFAULT_CSS = """
    Jump {
        background: transparent;
        Static {
            position: absolute; width: 3; height: 1; text-align: center;
            background: $accent; color: $background; text-style: bold;
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Leave")]

    def __init__(self, targets: list[Widget]) -> None:
        super().__init__()
        self._targets = dict(zip(ascii_lowercase, targets, strict=False))

    def compose(self) -> ComposeResult:
        for letter, target in self._targets.items():
            label = Static(letter)
            label.styles.offset = target.region.offset
            yield label

    def on_key(self, event: events.Key) -> None:
        if event.key != "escape":
            event.stop()
            self.dismiss(self._targets.get(event.key))
