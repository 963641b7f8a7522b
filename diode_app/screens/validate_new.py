"""What to judge, and on which problems: starts a validation as a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

from diode_app import text
from diode_app.actions import Action
from diode_app.data.background import in_thread
from diode_app.data.filters import check_query, suggestions
from diode_app.screens.base import DiodeScreen, Reader
from diode_app.screens.command_screen import CommandScreen
from diode_app.session import Session
from diode_app.widgets.command_form import CommandForm, form_options
from diode_app.widgets.work import acts
from diode_engine import registry
from diode_engine.runs import command_line
from diode_engine.store.query import count_problems


def model_choices() -> tuple[str, ...]:
    """Return the registered models as `--model` takes them: by reference; by folder where a
    reference is of several."""
    models = registry.list_models()
    references = [model.reference for model in models]
    return tuple(
        model.reference if references.count(model.reference) == 1 else str(model.folder)
        for model in models
    )


@acts(writes=True)
async def open_validation(screen: DiodeScreen, *models: str) -> None:
    """Open the form of a new validation, for the first of these names by which the registry has a
    model."""
    choices = await in_thread(model_choices, "models")
    known = [model for model in models if model in choices]
    screen.app.push_screen(NewValidationScreen(screen.session, choices, *known[:1]))


class NewValidationScreen(CommandScreen):
    """`models` are those to choose from; `model` is the one that is chosen at first."""

    MODE = COMMAND = "validate"
    NOUN = "validation"
    HELP_TITLE = "A new validation"
    ACTIONS = (
        Action("validation.back", "escape", "Back", "Start nothing."),
        Action(
            "validation.start", "ctrl+g", "Start", "Start it as a run.", "{command}", writes=True
        ),
    )

    def __init__(self, session: Session, models: Sequence[str], model: str | None = None) -> None:
        super().__init__(session)
        self._models = models
        self._model = model if model in models else None

    def make_form(self) -> CommandForm:
        usual = form_options("validate")["model"].default_text
        return CommandForm(
            "validate", choices={"model": (usual, *self._models)},
            first={"model": self._model or usual}, suggest={"query": suggestions("data")},
            checks={"query": partial(check_query, "data")},
        )  # fmt: skip

    def reader(self) -> Reader[int]:
        query = self.form.values["query"]
        return lambda store: count_problems(store, query)

    def show(self, snapshot: int) -> None:
        command = shlex.join(command_line(self.COMMAND, self.form.spec, self.session.location))
        self.show_plan(f"{text.quantity(snapshot, 'problems')} with timings.", f"$ {command}")
