"""A line to filter a table with: completions while the person types, the mistake below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalGroup
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from diode_app.widgets.styling import COMPACT, set_text

Suggest = Callable[[str, int], Sequence[str]]  # (text, cursor) -> whole texts that it may become


class Completions(Suggester):
    """How the text of a line can be completed, for an Input."""

    def __init__(self, suggest: Suggest) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._suggest = suggest

    async def get_suggestion(self, value: str) -> str | None:
        found = self._suggest(value, len(value))
        return next((text for text in found if text.startswith(value) and text != value), None)


class FilterBox(VerticalGroup):
    """Posts `FilterBox.Submitted` with the text on Enter; Escape posts an empty text and leaves, as
    an empty text does. Right accepts the completion; Up and Down go through earlier texts."""

    DEFAULT_CSS = """
    FilterBox {
        height: auto; display: none;
        &.-open { display: block; }
        Input { background: $panel; padding: 0 1 !important; }
        .error { color: $text-error; display: none; padding: 0 1; }
        &.-wrong .error { display: block; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "All rows"),
        Binding("up", "go_back(1)", "Earlier"),
        Binding("down", "go_back(-1)", "Later", show=False),
    ]

    @dataclass
    class Submitted(Message):
        text: str

    def __init__(
        self, placeholder: str, suggest: Suggest | None = None, history: list[str] | None = None
    ) -> None:
        """`history` has the earlier texts, the last one at its end; new ones are added."""
        super().__init__()
        self._placeholder = placeholder
        self._suggest = suggest
        self._history = [] if history is None else history
        self._at = 0  # how many texts back in the history

    def compose(self) -> ComposeResult:
        suggester = None if self._suggest is None else Completions(self._suggest)
        yield Input(
            placeholder=self._placeholder, suggester=suggester, compact=True, classes=COMPACT
        )
        yield Static(classes="error", markup=False)

    def on_resize(self) -> None:
        """Show as many of the examples as have room."""
        entry, words = self.query_one(Input), self._placeholder.split()
        while len(words) > 1 and len(" ".join(words)) >= entry.content_size.width:
            words.pop()
        entry.placeholder = " ".join(words)

    def open(self) -> None:
        self.add_class("-open")
        self.query_one(Input).focus()

    def put(self, text: str) -> None:
        """Set the text where the filter was changed elsewhere."""
        self.query_one(Input).value = text

    def complain(self, sentence: str | None) -> None:
        self.set_class(sentence is not None, "-wrong")
        set_text(self.query_one(".error", Static), f"✗ {sentence}" if sentence else "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        asked = event.value.strip()
        if asked:
            if asked in self._history:
                self._history.remove(asked)
            self._history.append(asked)
        else:
            self.remove_class("-open")
        self._at = 0
        self.post_message(self.Submitted(asked))

    def action_go_back(self, steps: int) -> None:
        """Show an earlier text, or with negative steps a later one."""
        self._at = min(max(0, self._at + steps), len(self._history))
        entry = self.query_one(Input)
        entry.value = self._history[-self._at] if self._at else ""
        entry.cursor_position = len(entry.value)

    def action_leave(self) -> None:
        self.query_one(Input).value = ""
        self.remove_class("-open")
        self.complain(None)
        self.post_message(self.Submitted(""))
