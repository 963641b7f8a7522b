"""The lines above and below every screen: the places, the state of the store, and the keys."""

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
from diode_app.widgets.styling import set_text

_ALWAYS = ("command_palette", "help", "quit")  # the palette lists the keys that have no room
_LAST = ("filter", "sort", "export", "commands")  # shown last: they are the same on many screens


class KeyBar(Static):
    """The keys that can be pressed now. Where there is no room for all, it shows the first of the
    screen's own keys, and always the key of the palette, which lists the others. No key is cut
    off, as it would be in Textual's Footer. A click presses the key."""

    DEFAULT_CSS = """
    KeyBar {
        dock: bottom; height: 1;
        color: $footer-description-foreground; background: $footer-background;
    }
    """
    ALLOW_SELECT = False

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self._show())

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        keys: dict[str, tuple[str, Content]] = {}  # by action; what is nearest to the focus first
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and binding.action not in keys:
                link = f"@click=app.simulate_key('{binding.key}')"
                name = Content.assemble(
                    (self.app.get_key_display(binding), "$footer-key-foreground bold"),
                    f" {binding.description}",
                ).stylize(link)
                keys[binding.action] = binding.action.rpartition(".")[2], name
        room = self.size.width
        shown = []
        for action, (_, name) in sorted(keys.items(), key=lambda key: _rank(key[1][0])):
            if name.cell_length > room:
                break
            room -= name.cell_length + 1
            shown.append(action)
        content = Content(" ").join(name for key, (_, name) in keys.items() if key in shown)
        set_text(self, content, resizes=False)


def _rank(action: str) -> int:
    if action in _ALWAYS:
        return 0
    return 2 + _LAST.index(action) if action in _LAST else 1


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
        set_text(self.query_one("#bar-store", Static), says, resizes=False)
