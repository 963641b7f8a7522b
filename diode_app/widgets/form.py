"""Fields of a form: a label, what it means, the value, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Checkbox, Input, Select, Static

from diode_app.widgets.choices import Choices
from diode_app.widgets.filter_box import Completions, Suggest
from diode_app.widgets.styling import COMPACT

_ENTRY = f"field--entry {COMPACT}"
Check = Callable[[str], str | None]  # a sentence where the value will not do


class Field(VerticalGroup):
    """One value, as text. With `choices` it is a selection, with `flag` a box to tick ("yes" or
    "").

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
            self.field = field
            self.value = value
            self.right = right

        @property
        def control(self) -> Field:
            return self.field

    def __init__(
        self,
        name: str,
        label: str,
        sentence: str = "",
        value: str = "",
        *,
        choices: Sequence[str] = (),
        flag: bool = False,
        hint: str = "",
        suggest: Suggest | None = None,
        check: Check = lambda _: None,
    ) -> None:
        """`hint` is shown in an empty field; `suggest` completes a text."""
        super().__init__(id=f"field-{name}", name=name)
        self._label = label
        self.sentence = sentence
        self._hint = hint
        self._suggest = suggest
        self._check = check
        self.first = value
        self._choices = tuple(choices)
        self._flag = flag
        self._complaint: str | None = None

    def compose(self) -> ComposeResult:
        if not self._flag:
            yield Static(self._label, classes="field--label", markup=False)
        yield self.make_entry()
        if self.sentence:
            yield Static(self.sentence, classes="field--help", markup=False)
        yield Static(classes="field--error", markup=False)

    def make_entry(self) -> Widget:
        """The widget that holds the value, of the class field--entry."""
        if self._choices:
            return Select(
                [(choice, choice) for choice in self._choices],
                value=self.first,
                allow_blank=False,
                compact=True,
                classes=_ENTRY,
            )
        if self._flag:
            return Checkbox(self._label, value=self.first == "yes", compact=True, classes=_ENTRY)
        suggester = None if self._suggest is None else Completions(self._suggest)
        return Input(
            self.first,
            placeholder=self._hint,
            suggester=suggester,
            compact=True,
            classes=_ENTRY,
        )

    @property
    def value(self) -> str:
        if self._choices:
            return str(self.query_one(Select).value)
        if self._flag:
            return "yes" if self.query_one(Checkbox).value else ""
        return self.query_one(Input).value

    @value.setter
    def value(self, value: str) -> None:
        if self._choices:
            self.query_one(Select).value = value
        elif self._flag:
            self.query_one(Checkbox).value = value == "yes"
        else:
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

    def changed(self) -> None:
        """Checks the value and posts that it has changed."""
        sentence = self.error
        self.complain(sentence)
        self.post_message(self.Changed(self, self.value, sentence is None))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.changed()

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        self.changed()

    def on_checkbox_changed(self, event: Checkbox.Changed) -> None:
        event.stop()
        self.changed()


class ChoiceField(Field):
    """A value that is one of some names, all visible at once; with `several`, names with commas
    between."""

    def __init__(
        self,
        name: str,
        label: str,
        sentence: str,
        names: Sequence[str],
        value: str = "",
        *,
        several: bool = False,
        check: Check = lambda _: None,
    ) -> None:
        super().__init__(name, label, sentence, value, check=check)
        self._names = tuple(names)
        self._several = several

    def make_entry(self) -> Widget:
        return Choices(self._names, _parts(self.first), several=self._several).add_class(
            "field--entry", update=False
        )

    @property
    def entry(self) -> Choices:
        return self.query_one(Choices)

    @property
    def value(self) -> str:
        return ",".join(self.entry.chosen)

    @value.setter
    def value(self, value: str) -> None:
        self.entry.chosen = _parts(value)

    def on_choices_changed(self, event: Choices.Changed) -> None:
        event.stop()
        self.changed()


def _parts(value: str) -> tuple[str, ...]:
    return tuple(filter(None, value.split(",")))


def optional(check: Check) -> Check:
    """The check, for a value that may be left out."""
    return lambda value: check(value) if value.strip() else None


def existing_file(given: str) -> str | None:
    """A check: the path of an existing file."""
    path = Path(given).expanduser()
    if path.is_dir():
        return f"{path} is a folder; give a file in it."
    return None if path.is_file() else f"There is no file {path}."


def whole_number(least: int, most: int) -> Check:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if least <= number <= most:
            return None
        return f"It must be a whole number from {least:,} to {most:,}."

    return check
