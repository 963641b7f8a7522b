"""Some names in a row, of which one or several are chosen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

_GAP = 2
_BOX = 4  # a box and the space behind it


class Choices(Widget, can_focus=True):
    """All names are visible at once; the arrows up and down are left to the widget around it. With
    one choice, left and right choose the next name. With several, they move a mark, and Space
    chooses the marked name or not. A click does what Space does.

    Posts `Choices.Changed`.
    """

    DEFAULT_CSS = "Choices { height: auto; width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "go(-1)", "Left", show=False),
        Binding("right", "go(1)", "Right", show=False),
        Binding("space", "take", "Take", show=False),
    ]

    @dataclass
    class Changed(Message):
        choices: Choices

    def __init__(
        self, names: Sequence[str], chosen: Collection[str] = (), *, several: bool = False
    ) -> None:
        super().__init__()
        self._names = tuple(names)
        self._several = several
        self._chosen = frozenset(chosen)
        self._at = next((i for i, name in enumerate(names) if name in self._chosen), 0)

    @property
    def chosen(self) -> tuple[str, ...]:
        """In the order in which they are offered."""
        return tuple(name for name in self._names if name in self._chosen)

    @chosen.setter
    def chosen(self, names: Collection[str]) -> None:
        if frozenset(names) != self._chosen:
            self._chosen = frozenset(names)
            if not self._several:
                self._at = next((i for i, n in enumerate(self._names) if n in names), 0)
            self.refresh()
            self.post_message(self.Changed(self))

    def offer(self, names: Sequence[str]) -> None:
        """Offer these names from now on. Names that were chosen stay so if they are among them;
        with one choice, the first is chosen else."""
        if tuple(names) == self._names:
            return
        self._names = tuple(names)
        self._at = 0
        kept = self._chosen & set(names)
        self.refresh(layout=True)
        self.chosen = kept or (frozenset() if self._several else frozenset(names[:1]))

    def _rows(self, width: int) -> list[list[int]]:
        """Return the places of the names in each row of this width. Broken here, between names:
        where Textual breaks a line, a box may be on another one than its name, also with a
        non-breaking space."""
        rows: list[list[int]] = [[]]
        used = 0
        for i, name in enumerate(self._names):
            size = _BOX + len(name)
            if rows[-1] and used + size > width:
                rows.append([])
                used = 0
            rows[-1].append(i)
            used += size + _GAP
        return rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def render(self) -> Content:
        rows = self._rows(self.content_size.width)
        gap = Content(" " * _GAP)
        return Content("\n").join(gap.join(map(self._draw_name, row)) for row in rows)

    def _draw_name(self, place: int) -> Content:
        name = self._names[place]
        on = name in self._chosen
        style = "bold" if on else "$text-muted"
        if self.has_focus and place == self._at:
            style = f"{style} reverse"
        marks = ("[x]", "[ ]") if self._several else ("(•)", "( )")
        return Content.styled(f"{marks[0] if on else marks[1]} {name}", style)

    def action_go(self, step: int) -> None:
        if self._names:
            self._at = (self._at + step) % len(self._names)
            if not self._several:
                self.chosen = (self._names[self._at],)
            self.refresh()

    def action_take(self) -> None:
        if not self._names:
            return
        name = self._names[self._at]
        self.chosen = self._chosen ^ {name} if self._several else {name}

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        rows = self._rows(self.content_size.width)
        if at is None or at.y >= len(rows):
            return
        x = 0
        for place in rows[at.y]:
            size = _BOX + len(self._names[place])
            if x <= at.x < x + size:
                self._at = place
                self.action_take()
                return
            x += size + _GAP
