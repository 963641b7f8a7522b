"""Ways not to have widgets styled once more where they look the same afterwards. Textual takes up
to half a millisecond for each of them."""

from __future__ import annotations

from textual.containers import VerticalScroll

# For `classes` of a widget that is made with compact=True, which else gives it this class, and
# styles it, before the widget is on a screen.
COMPACT = "-textual-compact"


class FocusScroll(VerticalScroll, can_focus=True):
    """What scrolls and takes the focus: it is styled then, alone, and not all that is in it, since
    no rule for that asks whether this has the focus. Where it loses the focus to something in it,
    that is styled as Textual does it."""

    def watch_has_focus(self, _has_focus: bool) -> None:
        if _has_focus:
            self.app.stylesheet.update_nodes([self])
        else:
            super().watch_has_focus(_has_focus)
