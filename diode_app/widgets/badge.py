"""A run's state as a sign, a word and a colour."""

from __future__ import annotations

from rich.text import Text
from textual.app import App
from textual.content import Content

from diode_app import text


def badge(state: str) -> Content:
    """For a widget, such as `✗ failed`."""
    return Content.styled(text.state(state), f"${text.STATE_COLOURS.get(state, 'text')}")


def table_badge(app: App[object], state: str) -> Text:
    """The same for a cell of a DataTable, which knows no CSS variables; `state` is already
    `✗ failed`."""
    names = {
        "text-primary": "primary",
        "text-success": "success",
        "text-warning": "warning",
        "text-error": "error",
    }
    colour = names.get(text.STATE_COLOURS.get(state.rpartition(" ")[2], ""))
    return Text(state, style="" if colour is None else app.theme_variables[colour], no_wrap=True)
