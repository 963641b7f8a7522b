"""Keeps Textual from work that changes nothing: to style a widget again that will look the same
takes up to half a millisecond, to compute the layout of the whole screen for a text some more."""

from __future__ import annotations

from typing import Any, TypeVar

from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

T = TypeVar("T")

# Given as `classes` to a widget that is made with compact=True. Textual would otherwise add this
# class later, and style the widget once more for it.
COMPACT = "-textual-compact"


def set_text(widget: Static, said: str | Content, *, resizes: bool = True) -> None:
    """Show this text in the widget, if it shows another. `resizes`: the widget's size depends on
    the text; only then is the layout of the screen computed."""
    before = widget.content
    if isinstance(before, Content) and isinstance(said, Content):
        is_same = before.is_same(said)  # in its colours too
    else:
        is_same = before == said
    if not is_same:
        widget.update(said, layout=resizes)


class FocusScroll(VerticalScroll, can_focus=True):
    """A container that scrolls and takes the focus. When it gets the focus, only the container is
    styled again and not what is in it, since no style of those widgets depends on its focus. When
    it loses the focus, Textual styles it as usual."""

    def watch_has_focus(self, _has_focus: bool) -> None:
        if _has_focus:
            self.app.stylesheet.update_nodes([self])
        else:
            super().watch_has_focus(_has_focus)


class SeldomDrawn(Screen[T]):
    """A screen that does not count as visible while the dashboard holds frames back: Textual would
    else paint each screen whose layout it has computed, and throw the frame away."""

    @property
    def is_shown(self) -> bool:
        """Whether it is in front, or behind dialogs."""
        return super().is_current

    @property
    def is_current(self) -> bool:
        dashboard: Any = self.app
        return self.is_shown and not dashboard.keys.held
