"""The sources of problems, to choose from, with their parameters."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Button, Input, Static

from diode_app.actions import Action
from diode_app.data.collection import SourceKind
from diode_app.widgets.choices import Choices
from diode_app.widgets.modals import Dialog, DialogKeys


class SourcePicker(Dialog[str | None]):
    """The result is what `diode-engine collect --source` takes, with spaces between; None where the
    person leaves."""

    DEFAULT_CSS = """
    SourcePicker {
        .box { width: 100; max-height: 95%; grid-gutter: 0; }
        Horizontal { height: 1; }
        Choices { width: 18; }
        #meaning { height: 3; }
        #sources-keys { color: $text-muted; }
    }
    """
    ACTIONS = (Action("sources.take", "enter", "Take", "Use these."),)
    AUTO_FOCUS = "Choices"

    def __init__(self, kinds: Sequence[SourceKind], now: str) -> None:
        super().__init__("Where problems are drawn from, in equal shares")
        self._kinds = {kind.name: kind for kind in kinds}
        self._now = dict(word.partition(":")[::2] for word in now.split())

    def content(self) -> ComposeResult:
        for name, kind in self._kinds.items():
            with Horizontal(name=name):
                yield Choices((name,), (name,) if name in self._now else (), several=True)
                if kind.parameters:
                    yield Input(self._now.get(name, ""), placeholder=kind.parameters, compact=True)
        yield Static(id="meaning", markup=False)
        yield DialogKeys(
            ("Tab goes on", None), ("Space chooses", None), ("Escape leaves", "leave"),
            ("none is a mix of the first four", None), id="sources-keys",
        )  # fmt: skip
        yield Button("Use these (Enter)", compact=True)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        row = event.widget.parent
        kind = None if row is None else self._kinds.get(str(row.name))
        if kind is not None:
            self.query_one("#meaning", Static).update(f"{kind.name}: {kind.draws}")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Writing a parameter chooses its source."""
        row = event.input.parent
        if event.value and row is not None:
            row.query_one(Choices).chosen = (str(row.name),)

    def on_input_submitted(self) -> None:
        self.action_take()

    def on_button_pressed(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        words = []
        for row in self.query(Horizontal):
            if row.query_one(Choices).chosen:
                given = "".join(entry.value.strip() for entry in row.query(Input))
                words.append(f"{row.name}:{given}" if given else str(row.name))
        self.dismiss(" ".join(words))
