"""Help: every key, by screen."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.keys import format_key
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.source import Look
from diode_app.screens.base import DiodeScreen
from diode_app.screens.places import sections

_WORDS = (
    "A capital letter goes to a screen, a small one acts on it; : lists all that can be done.\n"
    "Every action has a command that does the same without the dashboard: y shows and copies it.\n"
    "Keys can be changed on the screen Settings (S), by the names in the last column."
)


class HelpScreen(DiodeScreen):
    """The keys as they are bound now."""

    MODE = "help"
    NEEDS_STORE = False

    def body(self) -> ComposeResult:
        with VerticalScroll(can_focus=True):
            yield Static(_WORDS, markup=False)
            yield Static(id="help-keys")

    def look_changed(self, look: Look) -> None:
        everywhere: tuple[Action, ...] = getattr(self.app, "ACTIONS", ())
        parts = [("Everywhere", everywhere), *sections()]
        self.query_one("#help-keys", Static).update(
            Content("\n").join([self._section(title, actions) for title, actions in parts])
        )

    def _section(self, title: str, actions: Sequence[Action]) -> Content:
        keys = self.session.settings.keys
        lines = [
            Content.assemble(
                (f"  {_display(keys.get(action.id, action.key)):<8}", "$primary bold"),
                f"{action.label:<14} {action.tooltip:<56} ",
                (action.id, "$text-muted"),
            )
            for action in actions
        ]
        return Content("\n").join([Content(""), Content.styled(title, "bold underline"), *lines])


def _display(key: str) -> str:
    return " ".join(format_key(part) for part in key.split(","))
