"""The screen that is shown, as text; its actions as entries of the palette, and as headless
commands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from textual.app import App, SystemCommand
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from diode_app.links import link_to
from diode_app.screens.base import DiodeScreen
from diode_app.session import Session


def palette_entries(app: App[Any], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Return an entry for each action that can be done now, with its key. How to move about is in
    the help alone."""
    for active in list(screen.active_bindings.values()):
        binding = active.binding
        if binding.id is None or not active.enabled or binding.id.startswith("move."):
            continue
        yield SystemCommand(
            binding.description,
            f"{app.get_key_display(binding)}  {binding.tooltip}",
            partial(app.run_action, binding.action, active.node),
        )


def headless_commands(session: Session, screen: DiodeScreen) -> list[tuple[str, str]]:
    """(what it does, command): the command that opens this screen, then those of its actions."""
    commands = screen.headless_commands()
    link = link_to(screen)
    if link is None:
        return commands
    return [
        ("Open this", link.command(session.location, read_only=session.read_only)),
        *commands,
    ]


def read_text(screen: Screen[Any]) -> str:
    """Return what the screen shows, as lines of text."""
    lines = [" " * screen.size.width] * screen.size.height
    for widget in screen.walk_children(Widget):
        if not widget.region:
            continue  # it is not shown
        seen = widget.region.intersection(screen.find_widget(widget).clip)
        crop = Region(*(seen.offset - widget.region.offset), *seen.size)
        for y, strip in enumerate(widget.render_lines(crop) if seen else (), seen.y):
            lines[y] = lines[y][: seen.x] + strip.text + lines[y][seen.right :]
    return "".join(f"{line.rstrip()}\n" for line in lines)
