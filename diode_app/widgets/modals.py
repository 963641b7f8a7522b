"""Dialogs: questions, notices and errors, in front of a screen."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

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
from diode_app.widgets.filter_box import Completions, Suggest
from diode_app.widgets.styling import SeldomDrawn
from diode_engine.errors import DiodeError

T = TypeVar("T")
_LEAVING = ("n", "escape")
_TAKES_SECONDS = 0.3  # at most, for which keys wait while a line is written
_TAKES, _LEAVES = ("Enter takes it", "take"), ("Escape leaves everything as it is", "dismiss")


class DialogKeys(Static):
    """The last line of a dialog: what can be done. Each of `ways` is (words that name the key, the
    dialog's action): a click on the words does the action. Without an action they are only
    words."""

    def __init__(self, *ways: tuple[str, str | None], id: str | None = None) -> None:
        parts = [
            Content(words) if action is None else Content(words).stylize(f"@click=screen.{action}")
            for words, action in ways
        ]
        super().__init__(Content(", ").join(parts) + ".", id=id)


class Modal(ModalScreen[T], SeldomDrawn[T]):
    """In front of a screen that is darkened. Textual would style its new widgets twice, and compute
    the layout of both screens twice."""

    _laid_out: object = None  # the size for which the layout was computed last

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        event.refresh_styles, self._laid_out = False, self.app.size

    def on_resize(self, event: events.Resize) -> None:
        if event.size == self._laid_out:
            event.prevent_default()
        self._laid_out = event.size


class Dialog(Actions, Modal[T]):
    """A box with a title and the widgets of `content`. The result is None where the person leaves
    it with Escape."""

    DEFAULT_CSS = """
    Dialog {
        align: center middle;
        .box {
            width: 76; max-width: 96%; height: auto; max-height: 90%;
            border: round $primary; background: $surface; padding: 0 1; grid-size: 1;
            grid-rows: auto; grid-gutter: 1 0;
        }
        .buttons { layout: grid; grid-size: 2; grid-columns: auto; grid-gutter: 0 2; height: auto; }
        .title { text-style: bold; }
        .error { color: $text-error; }
        OptionList, SelectionList { height: auto; max-height: 14; }
        VerticalScroll { height: auto; max-height: 45vh; }
    }
    """
    ACTIONS: tuple[Action, ...] = (
        Action("dialog.leave", "escape", "Leave", "Back to the screen.", does="dismiss"),
    )

    def __init__(self, title: str = "") -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Grid(classes="box"):
            if self._title:
                yield Label(self._title, classes="title", markup=False)
            yield from self.content()

    def content(self) -> ComposeResult:
        """The widgets below the title."""
        yield from ()


class Confirm(Dialog[bool]):
    """A question before something starts, or before something that cannot be undone. The result is
    whether to do it. Of keys that were pressed before the question was visible, only those that
    leave it count."""

    ACTIONS = (
        Action("confirm.yes", "y", "Yes", "Do it.", does="dismiss(True)"),
        Action("confirm.no", "n,escape", "No", "Leave it.", does="dismiss(False)"),
    )
    AUTO_FOCUS = "#no"
    is_question = True  # to the keys, which draw it at once

    def __init__(self, question: str | Content, *, yes: str = "Yes", no: str = "No") -> None:
        super().__init__()
        self._question = question
        self._yes = yes
        self._no = no
        self._visible_since = math.inf

    def content(self) -> ComposeResult:
        yield Static(self._question, markup=False)
        with Grid(classes="buttons"):
            yes, no = Content(f"{self._yes} (y)"), Content(f"{self._no} (n)")
            yield Button(yes, variant="error", action="screen.dismiss(True)", compact=True)
            yield Button(no, id="no", action="screen.dismiss(False)", compact=True)

    def on_mount(self) -> None:
        dashboard: Any = self.app
        dashboard.keys.draw()
        self.call_after_refresh(self._accept_keys)

    def _accept_keys(self) -> None:
        self._visible_since = time.monotonic()  # as events are timed

    def on_key(self, event: events.Key) -> None:
        if event.time < self._visible_since and event.key not in _LEAVING:
            event.stop()
            event.prevent_default()


class Notice(Dialog[None]):
    """A text to read, until it is closed."""

    ACTIONS = (
        Action("notice.leave", "escape,enter,q", "Close", "Back to the screen.", does="dismiss"),
    )

    def __init__(self, title: str, words: str | Content) -> None:
        super().__init__(title)
        self._words = words

    def content(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._words, markup=False)
        with Grid(classes="buttons"):
            yield Button("Close", action="screen.dismiss", compact=True)


class ErrorDialog(Notice):
    """The sentence of an error: what went wrong and what to do."""

    DEFAULT_CSS = "ErrorDialog { .box { border: round $error; } }"

    def __init__(self, sentence: str) -> None:
        super().__init__("✗ That did not work", sentence)


class Working(Dialog[None]):
    """In front of the screen while the person waits for some work; it shows for how long. When it
    is closed, the work continues."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._began = time.monotonic()

    def content(self) -> ComposeResult:
        yield Static(id="working-for", markup=False)
        yield DialogKeys(("Escape: it continues, and you are told when it is done", "dismiss"))

    def on_mount(self) -> None:
        self._show_time()
        self.set_interval(1.0, self._show_time)

    def _show_time(self) -> None:
        seconds = time.monotonic() - self._began
        self.query_one("#working-for", Static).update(f"▶ working for {text.seconds(seconds)}")


class Prompt(Dialog[str | None]):
    """Asks for one line. `check` returns a sentence for an invalid one. With `take` the dialog
    stays until that has taken the line: what it refuses by a DiodeError stays to be changed, with
    the reason below."""

    def __init__(
        self,
        question: str,
        value: str = "",
        *,
        check: Callable[[str], str | None] = lambda _: None,
        suggest: Suggest | None = None,
        take: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(question)
        self._take = take
        self._since = -math.inf  # when it began to take the line; infinite where it does not
        self._value = value
        self._check = check
        self._suggester = None if suggest is None else Completions(suggest)

    def content(self) -> ComposeResult:
        yield Input(
            self._value,
            validators=[Function(lambda given: self._check(given) is None)],
            validate_on=["changed"],
            suggester=self._suggester,
        )
        yield Static(classes="error", markup=False)
        yield DialogKeys(_TAKES, _LEAVES)

    @property
    def is_made(self) -> bool:
        """Whether keys may come; those that follow Enter are for the screen, not for the line."""
        return not 0 <= time.monotonic() - self._since < _TAKES_SECONDS

    def on_input_changed(self, event: Input.Changed) -> None:
        self.say(self._check(event.value) or "")

    def on_input_submitted(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        given = self.query_one(Input).value
        if (wrong := self._check(given)) is not None:
            self.say(wrong)
        elif self._take is None:
            self.dismiss(given)
        elif self._since == -math.inf:
            self._since = time.monotonic()
            # A worker of the app: it continues where the person leaves.
            self.app.run_worker(self._taken(self._take(given), given), exit_on_error=False)

    async def _taken(self, work: Awaitable[object], given: str) -> None:
        app = self.app
        try:
            await work
        except DiodeError as error:
            self._since = -math.inf
            if self.is_attached:
                self.say(str(error))
            else:
                app.push_screen(ErrorDialog(str(error)))
            return
        self._since = -math.inf
        if self.is_attached:
            self.dismiss(given)

    def say(self, sentence: str) -> None:
        self.query_one(".error", Static).update(sentence)

    def show_waiting(self) -> None:
        """Show that the line waits to be written."""
        if self._since > 0:
            self.say("◍ waiting for the store; Escape leaves, and it is written all the same")


class Choose(Dialog[tuple[str, ...] | None]):
    """Several of some names, in the order in which they are offered."""

    ACTIONS = (Action("choose.take", "enter", "Take", "Use these."),)

    def __init__(self, title: str, names: Sequence[str], chosen: Sequence[str]) -> None:
        super().__init__(title)
        self._names = tuple(names)
        self._chosen = frozenset(chosen)

    def content(self) -> ComposeResult:
        yield SelectionList[str](*((name, name, name in self._chosen) for name in self._names))
        yield DialogKeys(
            ("Space chooses", None), ("Tab and Enter takes", "take"), ("Escape leaves", "dismiss")
        )
        yield Button("Use these", action="screen.take", compact=True)

    def action_take(self) -> None:
        chosen = self.query_one(SelectionList).selected
        self.dismiss(tuple(name for name in self._names if name in chosen))


class PickOne(Dialog[str | None]):
    """One of several. `choices` are (the result, what is shown); `now` is the result that the
    cursor is on at first."""

    def __init__(
        self, title: str, choices: Sequence[tuple[str, str | Content]], now: str | None = None
    ) -> None:
        super().__init__(title)
        self._choices = tuple(choices)
        self._now = now

    def content(self) -> ComposeResult:
        yield OptionList(*(Option(Content("") + shown) for _, shown in self._choices))
        yield DialogKeys(_TAKES, _LEAVES)

    def on_mount(self) -> None:
        results = [result for result, _ in self._choices]
        at = results.index(self._now) if self._now in results else 0
        self.query_one(OptionList).highlighted = at

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index][0])

    def action_take(self) -> None:
        self.query_one(OptionList).action_select()


class HeadlessCommands(PickOne):
    """The headless commands of a screen's actions, of which one is copied. `commands` are (what it
    does, command)."""

    ACTIONS = (Action("commands.take", "y", "Copy", "Copy this command."),)

    def __init__(self, commands: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            "The same without the dashboard: Enter or y copies a command",
            [(c, Content.assemble(f"{label}\n", (c, "$primary"))) for label, c in commands],
        )
