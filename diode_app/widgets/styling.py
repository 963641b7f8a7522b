"""Keeps Textual from styling widgets again that will look the same. It takes up to half a
millisecond for each widget."""

from __future__ import annotations

from textual.containers import VerticalScroll

# Given as `classes` to a widget that is made with compact=True. Textual would otherwise add this
# class later, and style the widget once more for it.
COMPACT = "-textual-compact"


class FocusScroll(VerticalScroll, can_focus=True):
    """A container that scrolls and takes the focus. When it gets the focus, only the container is
    styled again and not what is in it, since no style of those widgets depends on its focus. When
    it loses the focus, Textual styles it as usual."""

    def watch_has_focus(self, _has_focus: bool) -> None:
        if _has_focus:
            self.app.stylesheet.update_nodes([self])
        else:
            super().watch_has_focus(_has_focus)
