"""The two lines above every screen: the places, and the state of the store."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.content import Content
from textual.keys import format_key
from textual.widgets import Static

from diode_app import text
from diode_app.data.store_access import Condition, Look
from diode_app.session import Session

WAITING = "◍ waiting for the store"
_SIGNS = {
    Condition.OPENING: ("…", "$text-muted"),
    Condition.READY: ("●", "$text-success"),
    Condition.MISSING: ("○", "$text-warning"),
    Condition.LOCKED: ("◍", "$text-warning"),
}


class TopBar(VerticalGroup):
    """`places` are (mode, key, label) of the screens that one can go to from anywhere."""

    DEFAULT_CSS = """
    TopBar {
        height: 2; background: $panel;
        Static { height: 1; padding: 0 1; }
    }
    """

    def __init__(self, session: Session, places: Sequence[tuple[str, str, str]], here: str) -> None:
        super().__init__()
        self._session = session
        self._places = tuple(places)
        self._here = here

    def compose(self) -> ComposeResult:
        yield Static(id="bar-store", markup=False)
        yield Static(self._navigation(), id="bar-places", markup=False)

    def _navigation(self) -> Content:
        parts: list[Content] = []
        for mode, key, label in self._places:
            style = "bold reverse" if mode == self._here else f"@click=app.go('{mode}')"
            name = f" {label} " if label.startswith(key) else f" {format_key(key)} {label} "
            parts.append(Content(name).stylize(style))
        return Content("").join(parts)

    def show(self, look: Look) -> None:
        sign, colour = _SIGNS.get(look.condition, ("✗", "$text-error"))
        wide = self.app.size.width >= 120
        path = self._session.location
        words: list[str | Content | tuple[str, str]] = [
            ("Diode ", "bold"),
            f" {path if wide else path.name}  ",
            (f"{sign} {look.condition}", colour),
        ]
        if look.ready:
            runs = f" · {text.quantity(look.runs, 'runs')}"
            live = f", {len(look.live)} live" if look.live else ""
            words.append(runs + live)
        if self._session.store.waiting:
            words.append((f"  {WAITING}", "$text-warning"))
        if self._session.read_only:
            words.append(("  read-only", "bold"))
        says = Content.assemble(*words)
        widget = self.query_one("#bar-store", Static)
        if widget.content != says:
            widget.update(says)
