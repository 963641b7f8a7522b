"""Ways not to have widgets styled once more where they look the same afterwards. Textual takes up
to half a millisecond for each of them."""

from __future__ import annotations

from textual.containers import VerticalScroll

# For `classes` of a widget that is made with compact=True, which else gives it this class, and
# styles it, before the widget is on a screen.
COMPACT = "-textual-compact"


class FocusScroll(VerticalScroll, can_focus=True):
    """What scrolls and takes the focus: only itself is styled again then, and not all that is in
    it, since no rule for that asks whether this has the focus."""

    def watch_has_focus(self, _has_focus: bool) -> None:
        self.app.stylesheet.update_nodes([self])
