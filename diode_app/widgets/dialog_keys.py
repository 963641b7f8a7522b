"""The last line of a dialog: what can be done, by key and by click."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class DialogKeys(Static):
    """`ways` are (words that name the key, the dialog's action): a click on the words does it.
    Without an action they are only words."""

    def __init__(self, *ways: tuple[str, str | None], id: str | None = None) -> None:
        parts = [
            Content(words) if action is None else Content(words).stylize(f"@click=screen.{action}")
            for words, action in ways
        ]
        super().__init__(Content(", ").join(parts) + ".", id=id)
