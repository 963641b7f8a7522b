"""A form: fields in rows, each with a label, what it means, its value and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalGroup
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from diode_app.widgets.choices import Choices
from diode_app.widgets.filter_box import Completions, Suggest
from diode_app.widgets.styling import COMPACT, FocusScroll, set_text

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

    @dataclass
    class Changed(Message):
        field: Field
        value: str
        right: bool

    def __init__(
        self, name: str, label: str, sentence: str = "", value: str = "", *, hint: str = "",
        suggest: Suggest | None = None, check: Check = lambda _: None,
    ) -> None:  # fmt: skip
        """`hint` is shown in an empty field; `suggest` completes a text."""
        super().__init__(id=f"field-{name}", name=name)
        self.sentence, self.first = sentence, value
        self._label, self._hint, self._suggest, self._check = label, hint, suggest, check

    def compose(self) -> ComposeResult:
        yield Static(self._label, classes="field--label", markup=False)
        yield self.make_entry()
        if self.sentence:
            yield Static(self.sentence, classes="field--help", markup=False)
        yield Static(classes="field--error", markup=False)

    def make_entry(self) -> Widget:
        """Return the widget that holds the value, of the class field--entry."""
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
        """Show a sentence about the value, or none; also for mistakes that the field cannot
        know."""
        self.set_class(sentence is not None, "-wrong")
        set_text(self.query_one(".field--error", Static), f"✗ {sentence}" if sentence else "")

    def on_input_changed(self, event: Input.Changed | Choices.Changed) -> None:
        """Check the value and posts that it has changed."""
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
        """Offer these names from now on (see `Choices.offer`)."""
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


class _FieldScroll(FocusScroll, inherit_bindings=False):
    """It does not scroll with the arrows, which go from field to field."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
    ]


class FieldRows(Vertical):
    """Fields in rows, with headings (texts) between them. The arrows up and down and Enter go from
    field to field; Escape leaves them, so that letters are the screen's keys again.

    The meaning of a field is shown below the rows where the screen has no room for it beside the
    field: where the screen has the class -low (see app.tcss).
    """

    DEFAULT_CSS = """
    FieldRows {
        height: 1fr;
        Field {
            layout: grid; grid-size: 2; grid-columns: 14 1fr; grid-rows: auto; margin: 0;
            .field--help, .field--error { column-span: 2; padding-left: 14; }
        }
        Field.-wrong .field--label { color: $text-error; }
        Field:focus-within .field--label { color: $text-primary; }
        .form--heading { color: $primary; text-style: bold; margin-top: 1; }
        .form--heading.-first { margin-top: 0; }
        .form--meaning { height: 2; color: $text-muted; padding: 0 1; display: none; }
        .form--rows { padding: 0 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "step(1)", "Next field", show=False),
        Binding("enter", "step(1)", "Next field", show=False),
        Binding("up", "step(-1)", "Field before", show=False),
        Binding("escape", "leave", "Leave the field"),
    ]

    def __init__(self, *parts: Field | str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._parts = parts

    def compose(self) -> ComposeResult:
        with _FieldScroll(classes="form--rows"):
            for i, part in enumerate(self._parts):
                if isinstance(part, Field):
                    yield part
                else:
                    first = " -first" if i == 0 else ""
                    yield Static(part, classes=f"form--heading{first}", markup=False)
        yield Static(classes="form--meaning", markup=False)

    def field(self, name: str) -> Field:
        return self.query_one(f"#field-{name}", Field)

    @property
    def shown(self) -> list[Field]:
        """The fields that are not hidden."""
        return [field for field in self.query(Field) if field.display]

    @property
    def values(self) -> dict[str, str]:
        """The values of the fields that are not hidden, by name, without spaces around them."""
        return {str(field.name): field.value.strip() for field in self.shown}

    @property
    def mistakes(self) -> dict[str, str]:
        """The mistakes in the fields, by name."""
        found = {str(field.name): field.error for field in self.shown}
        return {name: sentence for name, sentence in found.items() if sentence is not None}

    def complain(self, mistakes: Mapping[str, str]) -> None:
        """Show these sentences besides the fields' own mistakes, and no others."""
        for field in self.shown:
            field.complain(field.error or mistakes.get(str(field.name)))

    def reset(self) -> None:
        """Give each field the value that it had at first."""
        for field in self.query(Field):
            field.value = field.first

    def go_to(self, name: str) -> None:
        """Put the cursor into this field."""
        _enter(self.field(name))

    def focus_rows(self) -> None:
        """Take the focus without being in a field."""
        self.query_one(_FieldScroll).focus()

    def action_step(self, step: int) -> None:
        fields = self.shown
        at = next((i for i, field in enumerate(fields) if field.has_focus_within), None)
        to = (0 if step > 0 else len(fields) - 1) if at is None else at + step
        if 0 <= to < len(fields):
            _enter(fields[to])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(1)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "leave" or not self.query_one(_FieldScroll).has_focus

    def action_leave(self) -> None:
        self.focus_rows()

    def on_descendant_focus(self) -> None:
        field = next((field for field in self.shown if field.has_focus_within), None)
        set_text(self.query_one(".form--meaning", Static), "" if field is None else field.sentence)


def _enter(field: Field) -> None:
    field.query_children(".field--entry").first().focus()
