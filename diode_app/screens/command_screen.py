"""A screen with the form of a command, which starts the command as a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Static

from diode_app.screens.base import DiodeScreen
from diode_app.widgets.command_form import CommandForm
from diode_app.widgets.form import Field

if TYPE_CHECKING:
    from diode_engine.store import Store


class CommandScreen(DiodeScreen):
    """The form of COMMAND, and beside it what follows from its values. NOUN says what a run of the
    command is, and COUNTS selects the text that is repeated in the question before it starts."""

    COMMAND: ClassVar[str] = ""
    NOUN: ClassVar[str] = ""
    COUNTS: ClassVar[str] = ""
    VERTICAL_BREAKPOINTS = [(0, "-low"), (40, "-high")]  # noqa: RUF012  # as Textual types it

    @property
    def form(self) -> CommandForm:
        return self.query_one(CommandForm)

    def body_mounted(self) -> None:
        self.form.follow()
        self.form.focus_rows()

    def on_field_changed(self, event: Field.Changed) -> None:
        self.form.follow()
        if self.form.mistakes:
            self.show_nothing()
        elif self.session.store.last.ready:
            self.reload()

    def show_nothing(self) -> None:
        """Called where a field has a mistake: shows no plan."""

    def values(self) -> Mapping[str, object]:
        from diode_engine.runs import command_line

        try:
            return {"command": command_line(self.COMMAND, self.form.spec, self.session.location)}
        except ValueError:  # the quotes in a field do not match
            return {"command": None}

    async def may_start(self) -> bool:
        """Called before the question: whether the run can be started here."""
        return True

    def page_of(self, run: int) -> DiodeScreen:
        """Return the page of the run that has started."""
        raise NotImplementedError

    def has_started(self, run: int) -> None:
        """Called when the run has started: opens its page."""
        self.form.focus_rows()  # who comes back is in no field, so that letters are keys
        self.app.push_screen(self.page_of(run))
        self.notify(f"Run {run} has started; it continues when you leave.", markup=False)

    def action_start(self) -> None:
        mistakes = self.form.mistakes
        if mistakes:
            self.form.complain({})
            self.form.go_to(next(iter(mistakes)))
            self.notify(next(iter(mistakes.values())), severity="error", markup=False)
            return
        spec = self.form.spec

        def begin(store: Store) -> int:
            from diode_engine.runs import start

            return start(store, self.COMMAND, spec).id

        async def go() -> None:
            self.session.store.must_be_writable()
            if not await self.may_start():
                return
            counts = self.query_one(self.COUNTS, Static).content
            if await self.confirm(f"Start this {self.NOUN}?\n{counts}", "Start it"):
                self.has_started(await self.session.store.write(begin))

        self.act(go, f"starts a {self.NOUN}")

    def action_defaults(self) -> None:
        self.form.reset()
