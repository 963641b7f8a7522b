"""A screen with the form of a command, which starts the command as a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from diode_app.screens.base import DiodeScreen
from diode_app.widgets.command_form import CommandForm
from diode_app.widgets.form import Field
from diode_app.widgets.work import acts
from diode_engine.runs import command_line


class CommandScreen(DiodeScreen):
    """The form of COMMAND, and beside or below it the plan that follows from its values. NOUN says
    what a run of the command is."""

    COMMAND: ClassVar[str] = ""
    NOUN: ClassVar[str] = ""
    VERTICAL_BREAKPOINTS = [(0, "-low"), (40, "-high")]  # noqa: RUF012  # as Textual types it
    DEFAULT_CSS = """
    CommandScreen {
        #command-parts { height: 1fr; }
        #command-plan { border: round $panel; border-title-color: $primary; padding: 0 1; }
        #command-warning { color: $text-warning; display: none; }
        #command-counts { text-style: bold; }
        &.-narrow #command-parts { layout: vertical; }
        &.-narrow #command-plan { height: auto; max-height: 10; }
        &.-wide #command-plan { width: 2fr; height: 1fr; }
        &.-wide FieldRows { width: 3fr; }
        &.-wide Button { margin-top: 1; }
    }
    """

    def body(self) -> ComposeResult:
        with Horizontal(id="command-parts"):
            yield self.make_form()
            with VerticalScroll(id="command-plan", can_focus=False) as panel:
                panel.border_title = "Plan"
                yield Static(id="command-warning", markup=False)
                yield Static("Counting ...", id="command-counts", markup=False)
                yield Static(id="command-details", markup=False)
                if not self.session.read_only:
                    yield Button("Start (^g)", action="screen.start", compact=True)

    def make_form(self) -> CommandForm:
        """Return the form."""
        return CommandForm(self.COMMAND)

    @property
    def form(self) -> CommandForm:
        return self.query_one(CommandForm)

    def body_mounted(self) -> None:
        self.form.follow()
        self.form.focus_rows()

    def take(self, given: Mapping[str, str]) -> None:
        """Set these fields."""
        for name, value in given.items():
            self.form.field(name).value = value

    def on_field_changed(self, event: Field.Changed) -> None:
        self.form.follow()
        self.reload()

    def reload(self) -> None:
        """Read the plan, where no field has a mistake."""
        if self.form.mistakes:
            self.reading.drop()
            self.show_plan()
        elif self.session.store.last.ready:
            super().reload()

    def show_plan(self, counts: str = "", details: str | Content = "") -> None:
        """Show what would be done; without counts, that a field has a mistake."""
        self.put("#command-counts", counts or "No plan yet: a field needs another value.")
        self.put("#command-details", details)

    def values(self) -> Mapping[str, object]:
        try:
            return {"command": command_line(self.COMMAND, self.form.spec, self.session.location)}
        except ValueError:  # the quotes in a field do not match
            return {"command": None}

    async def may_start(self) -> bool:
        """Called before the question: whether the run can be started here."""
        return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        may = super().check_action(action, parameters)
        return may and self.has_body and self.is_readable if action == "start" else may

    @acts(writes=True)
    async def action_start(self) -> str | None:
        mistakes = self.form.mistakes
        if mistakes:
            self.form.complain({})
            self.form.go_to(next(iter(mistakes)))
            self.notify(next(iter(mistakes.values())), severity="error", markup=False)
            return None
        spec = self.form.spec
        if not await self.may_start():
            return None
        counts = self.query_one("#command-counts", Static).content
        if not await self.confirm(f"Start this {self.NOUN}?\n{counts}", "Start it"):
            return None
        run = await self.start_run(self.COMMAND, spec)
        self.form.focus_rows()  # who comes back is in no field, so that letters are keys
        self.dashboard.open_run(run)
        return f"Run {run} has started; it continues when you leave."

    def action_defaults(self) -> None:
        self.form.reset()
