"""The keys below every screen."""

from __future__ import annotations

from typing import Any

from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

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
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def on_resize(self) -> None:
        self._show()

    def _bindings_changed(self, screen: Screen[Any]) -> None:
        if screen is self.screen:
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
        if content != self.content:
            self.update(content)


def _rank(action: str) -> int:
    if action in _ALWAYS:
        return 0
    return 2 + _LAST.index(action) if action in _LAST else 1
