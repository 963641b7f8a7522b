"""Fields of a form: a label, what it means, the value, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from diode_app.widgets.choices import Choices
from diode_app.widgets.filter_box import Completions, Suggest
from diode_app.widgets.styling import COMPACT

_ENTRY = f"field--entry {COMPACT}"
Check = Callable[[str], str | None]  # a sentence where the value will not do


class Field(VerticalGroup):
    """A label, one value as text, what it means, and what is wrong with it.

    Posts `Field.Changed` with the value and whether it is valid.
    """

    DEFAULT_CSS = """
    Field {
        height: auto; margin-bottom: 1;
        .field--label { text-style: bold; }
        .field--help { color: $text-muted; }
        .field--error { color: $text-error; display: none; }
        &.-wrong .field--error { display: block; }
    }
    """

    class Changed(Message):
        def __init__(self, field: Field, value: str, right: bool) -> None:
            super().__init__()
            self.field, self.value, self.right = field, value, right

        @property
        def control(self) -> Field:
            return self.field

    def __init__(
        self, name: str, label: str, sentence: str = "", value: str = "", *, hint: str = "",
        suggest: Suggest | None = None, check: Check = lambda _: None,
    ) -> None:  # fmt: skip
        """`hint` is shown in an empty field; `suggest` completes a text."""
        super().__init__(id=f"field-{name}", name=name)
        self.sentence, self.first = sentence, value
        self._label, self._hint, self._suggest, self._check = label, hint, suggest, check
        self._complaint: str | None = None

    def compose(self) -> ComposeResult:
        yield Static(self._label, classes="field--label", markup=False)
        yield self.make_entry()
        if self.sentence:
            yield Static(self.sentence, classes="field--help", markup=False)
        yield Static(classes="field--error", markup=False)

    def make_entry(self) -> Widget:
        """The widget that holds the value, of the class field--entry."""
        suggester = None if self._suggest is None else Completions(self._suggest)
        return Input(
            self.first, placeholder=self._hint, suggester=suggester, compact=True, classes=_ENTRY
        )

    @property
    def value(self) -> str:
        return self.query_one(Input).value

    @value.setter
    def value(self, value: str) -> None:
        self.query_one(Input).value = value

    @property
    def error(self) -> str | None:
        """The mistake in the value, as a sentence."""
        return self._check(self.value)

    def complain(self, sentence: str | None) -> None:
        """Shows a sentence about the value, or none; also for mistakes that the field cannot
        know."""
        if sentence != self._complaint:  # each update lays the screen out again
            self._complaint = sentence
            self.set_class(sentence is not None, "-wrong")
            self.query_one(".field--error", Static).update(f"✗ {sentence}" if sentence else "")

    def on_input_changed(self, event: Input.Changed | Choices.Changed) -> None:
        """Checks the value and posts that it has changed."""
        event.stop()
        sentence = self.error
        self.complain(sentence)
        self.post_message(self.Changed(self, self.value, sentence is None))


class ChoiceField(Field):
    """A value that is one of some names, all visible at once; with `several`, names with commas
    between."""

    def __init__(
        self, name: str, label: str, sentence: str, names: Sequence[str], value: str = "", *,
        several: bool = False, check: Check = lambda _: None,
    ) -> None:  # fmt: skip
        super().__init__(name, label, sentence, value, check=check)
        self._names, self._several = tuple(names), several

    def make_entry(self) -> Widget:
        entry = Choices(self._names, _parts(self.first), several=self._several)
        return entry.add_class("field--entry", update=False)

    @property
    def is_decided(self) -> bool:
        """Whether there is nothing to choose: one name at most, of which one is chosen."""
        return not self._several and len(self._names) < 2

    def offer(self, names: Sequence[str]) -> None:
        """Offers these names from now on (see `Choices.offer`)."""
        self._names = tuple(names)
        self.query_one(Choices).offer(names)

    @property
    def value(self) -> str:
        return ",".join(self.query_one(Choices).chosen)

    @value.setter
    def value(self, value: str) -> None:
        self.query_one(Choices).chosen = _parts(value)

    def on_choices_changed(self, event: Choices.Changed) -> None:
        self.on_input_changed(event)


def _parts(value: str) -> tuple[str, ...]:
    return tuple(filter(None, value.split(",")))


def existing_file(given: str) -> str | None:
    """A check: the path of an existing file."""
    path = Path(given).expanduser()
    if path.is_dir():
        return f"{path} is a folder; give a file in it."
    return None if path.is_file() else f"There is no file {path}."
