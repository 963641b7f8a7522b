"""Fields in rows: a form that is filled in before something is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from diode_app.widgets.form import Field
from diode_app.widgets.styling import FocusScroll


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
        """Shows these sentences besides the fields' own mistakes, and no others."""
        for field in self.shown:
            field.complain(field.error or mistakes.get(str(field.name)))

    def reset(self) -> None:
        """Gives each field the value that it had at first."""
        for field in self.query(Field):
            field.value = field.first

    def go_to(self, name: str) -> None:
        """Puts the cursor into this field."""
        _enter(self.field(name))

    def focus_rows(self) -> None:
        """Takes the focus without being in a field."""
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
        self.query_one(".form--meaning", Static).update("" if field is None else field.sentence)


def _enter(field: Field) -> None:
    field.query_children(".field--entry").first().focus()
