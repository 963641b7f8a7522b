"""Questions and errors, in front of a screen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.validation import Function
from textual.widgets import Button, Input, Label, OptionList, SelectionList, Static
from textual.widgets.option_list import Option

from diode_app import text
from diode_app.actions import Action, Actions
from diode_app.widgets.dialog_keys import DialogKeys
from diode_app.widgets.filter_box import Completions, Suggest

_LEAVING = ("n", "escape")
_LEAVES_ALL = ("Escape leaves everything as it is", "leave")
_BOX = """
    align: center middle;
    .box {
        width: 76; max-width: 96%; height: auto; max-height: 90%;
        border: round $primary; background: $surface; padding: 0 1; grid-size: 1;
        grid-rows: auto; grid-gutter: 1 0;
    }
    .buttons { layout: grid; grid-size: 2; grid-columns: auto; grid-gutter: 0 2; height: auto; }
    .title { text-style: bold; }
"""


class Confirm(Actions, ModalScreen[bool]):
    """A question before something starts, or before something that cannot be undone. The result is
    whether to do it. Of keys that were pressed before the question was visible, only those that
    leave it count."""

    DEFAULT_CSS = f"Confirm {{ {_BOX} }}"
    ACTIONS = (
        Action("confirm.yes", "y", "Yes", "Do it."),
        Action("confirm.no", "n,escape", "No", "Leave it."),
    )
    AUTO_FOCUS = "#no"

    def __init__(self, question: str | Content, *, yes: str = "Yes", no: str = "No") -> None:
        super().__init__()
        self._question = question
        self._yes = yes
        self._no = no
        self._seen = math.inf

    def on_mount(self) -> None:
        self.call_after_refresh(self._is_seen)

    def _is_seen(self) -> None:
        self._seen = time.monotonic()  # as events are timed

    def on_key(self, event: events.Key) -> None:
        if event.time < self._seen and event.key not in _LEAVING:
            event.stop()
            event.prevent_default()

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            yield Static(self._question, markup=False)
            with Grid(classes="buttons"):
                yield Button(Content(f"{self._yes} (y)"), variant="error", id="yes", compact=True)
                yield Button(Content(f"{self._no} (n)"), id="no", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_no(self) -> None:
        self.dismiss(False)


class Notice(Actions, ModalScreen[None]):
    """Something to read, until it is closed."""

    DEFAULT_CSS = f"Notice {{ {_BOX} VerticalScroll {{ height: auto; max-height: 18; }} }}"
    ACTIONS = (Action("notice.close", "escape,enter,q", "Close", "Back to the screen."),)

    def __init__(self, title: str, words: str | Content) -> None:
        super().__init__()
        self._title = title
        self._words = words

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            yield Label(self._title, classes="title", markup=False)
            with VerticalScroll():
                yield Static(self._words, markup=False)
            with Grid(classes="buttons"):
                yield Button("Close", compact=True)

    def on_button_pressed(self) -> None:
        self.dismiss()

    def action_close(self) -> None:
        self.dismiss()


class Working(Actions, ModalScreen[None]):
    """In front of the screen while the person waits for some work; it shows for how long. When it
    is closed, the work continues."""

    DEFAULT_CSS = f"Working {{ {_BOX} }}"
    ACTIONS = (Action("working.leave", "escape", "Leave", "Back to the screen; it goes on."),)

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._began = time.monotonic()

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            yield Label(self._what, classes="title", markup=False)
            yield Static(id="working-for", markup=False)
            yield DialogKeys(("Escape: it continues, and you are told when it is done", "leave"))

    def on_mount(self) -> None:
        self._tell()
        self.set_interval(1.0, self._tell)

    def _tell(self) -> None:
        seconds = time.monotonic() - self._began
        self.query_one("#working-for", Static).update(f"▶ working for {text.seconds(seconds)}")

    def action_leave(self) -> None:
        self.dismiss()


class ErrorDialog(Notice):
    """What went wrong and what to do about it, in a sentence."""

    DEFAULT_CSS = "ErrorDialog { .box { border: round $error; } }"

    def __init__(self, sentence: str) -> None:
        super().__init__("✗ That did not work", sentence)


class Prompt(Actions, ModalScreen[str | None]):
    """Asks for one line. `check` returns a sentence for an invalid one; the result is None where
    the person leaves."""

    DEFAULT_CSS = f"Prompt {{ {_BOX} .error {{ color: $text-error; }} }}"
    ACTIONS = (Action("prompt.leave", "escape", "Leave", "Change nothing."),)

    def __init__(
        self,
        question: str,
        value: str = "",
        *,
        check: Callable[[str], str | None] = lambda _: None,
        suggest: Suggest | None = None,
    ) -> None:
        super().__init__()
        self._question = question
        self._value = value
        self._check = check
        self._suggester = None if suggest is None else Completions(suggest)

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            yield Label(self._question, classes="title", markup=False)
            yield Input(
                self._value,
                validators=[Function(lambda text: self._check(text) is None)],
                validate_on=["changed"],
                suggester=self._suggester,
            )
            yield Static(classes="error", markup=False)
            yield DialogKeys(
                ("Enter takes it", "take"), ("Escape leaves everything as it is", "leave")
            )

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(".error", Static).update(self._check(event.value) or "")

    def on_input_submitted(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        given = self.query_one(Input).value
        if self._check(given) is None:
            self.dismiss(given)

    def action_leave(self) -> None:
        self.dismiss(None)


class HeadlessCommands(Actions, ModalScreen[str | None]):
    """The headless commands of a screen's actions; the chosen one is copied. `commands` are (what
    it does, command)."""

    DEFAULT_CSS = f"HeadlessCommands {{ {_BOX} OptionList {{ height: auto; max-height: 14; }} }}"
    ACTIONS = (
        Action("commands.copy", "y", "Copy", "Copy this command."),
        Action("commands.leave", "escape", "Leave", "Back to the screen."),
    )

    def __init__(self, commands: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._commands = tuple(commands)

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            yield Label("The same without the dashboard", classes="title")
            yield OptionList(
                *(
                    Option(Content.assemble(f"{label}\n", (command, "$primary")))
                    for label, command in self._commands
                )
            )
            yield DialogKeys(("Enter or y copies the command", "copy"), ("Escape leaves", "leave"))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._commands[event.option_index][1])

    def action_copy(self) -> None:
        chosen = self.query_one(OptionList).highlighted
        self.dismiss(self._commands[chosen or 0][1])

    def action_leave(self) -> None:
        self.dismiss(None)


class Choose(Actions, ModalScreen[tuple[str, ...] | None]):
    """Several of some names, in the order in which they are offered; None where the person
    leaves."""

    DEFAULT_CSS = f"Choose {{ {_BOX} SelectionList {{ height: auto; max-height: 12; }} }}"
    ACTIONS = (
        Action("choose.take", "enter", "Take", "Use these."),
        Action("choose.leave", "escape", "Leave", "Change nothing."),
    )

    def __init__(self, title: str, names: Sequence[str], chosen: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._names = tuple(names)
        self._chosen = frozenset(chosen)

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            yield Label(self._title, classes="title", markup=False)
            yield SelectionList[str](*((name, name, name in self._chosen) for name in self._names))
            yield DialogKeys(
                ("Space chooses", None), ("Tab and Enter takes", "take"), ("Escape leaves", "leave")
            )
            yield Button("Use these", compact=True)

    def on_button_pressed(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        chosen = self.query_one(SelectionList).selected
        self.dismiss(tuple(name for name in self._names if name in chosen))

    def action_leave(self) -> None:
        self.dismiss(None)


class PickOne(Actions, ModalScreen[str | None]):
    """One of several; None where the person leaves. `choices` are (the result, what is shown)."""

    DEFAULT_CSS = f"PickOne {{ {_BOX} OptionList {{ height: auto; max-height: 14; }} }}"
    ACTIONS = (Action("pick.leave", "escape", "Leave", "Change nothing."),)

    def __init__(
        self, title: str, choices: Sequence[tuple[str, str]], now: str | None = None
    ) -> None:
        super().__init__()
        self._title = title
        self._choices = tuple(choices)
        self._now = now

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            yield Label(self._title, classes="title", markup=False)
            yield OptionList(*(Option(Content(shown)) for _, shown in self._choices))
            yield DialogKeys(
                ("Enter takes it", "take"), ("Escape leaves everything as it is", "leave")
            )

    def on_mount(self) -> None:
        given = [choice for choice, _ in self._choices]
        if self._now in given:
            self.query_one(OptionList).highlighted = given.index(self._now)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index][0])

    def action_take(self) -> None:
        self.query_one(OptionList).action_select()

    def action_leave(self) -> None:
        self.dismiss(None)
