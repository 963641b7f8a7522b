"""What to judge, and on which problems: starts a validation as a run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.widgets import Button, Static

from diode_app import text
from diode_app.actions import Action
from diode_app.data.problems import suggestions
from diode_app.data.training import FAMILIES
from diode_app.screens.base import DiodeScreen
from diode_app.session import Session
from diode_app.widgets.field_rows import FieldRows
from diode_app.widgets.form import ChoiceField, Field
from diode_engine.errors import QueryError

if TYPE_CHECKING:
    from diode_engine.store import Store

IN_USE = "in use"
_MODEL = "a model"
_HELD_OUT, _ALL = "held out", "all"
_KINDS = (_MODEL, "folds", "llm", "sizes")


def model_choices() -> tuple[str, ...]:
    """The registered models as `--model` takes them: by reference; by folder where a reference is
    of several."""
    from diode_engine import registry

    models = registry.list_models()
    references = [model.reference for model in models]
    return tuple(
        model.reference if references.count(model.reference) == 1 else str(model.folder)
        for model in models
    )


class NewValidationScreen(DiodeScreen):
    """`models` are those to choose from; `model` is the one that is chosen at first."""

    MODE = "validate"
    HELP_TITLE = "A new validation"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (40, "-high")]  # noqa: RUF012  # as Textual types it
    ACTIONS = (
        Action("validation.back", "escape", "Back", "Start nothing."),
        Action("validation.start", "ctrl+g", "Start", "Start it as a run.", "{command}"),
    )
    DEFAULT_CSS = """
    NewValidationScreen {
        #validation-plan { height: auto; padding: 0 1; border-top: solid $panel; }
        #validation-command { color: $text-muted; height: auto; }
    }
    """

    def __init__(self, session: Session, models: Sequence[str], model: str = IN_USE) -> None:
        super().__init__(session)
        self._models = (IN_USE, *models)
        self._model = model if model in models else IN_USE

    def body(self) -> ComposeResult:
        yield FieldRows(
            "What is judged",
            ChoiceField("what", "Judge", "A model; or a way of training, by models that are made "
                        "without a part of the problems: folds, each named transformer, the "
                        "largest. These take minutes.", _KINDS, _MODEL),
            ChoiceField("model", "Model", "That in use is the one for the timings' GPU.",
                        self._models, self._model),
            ChoiceField("family", "Family", "What is trained.", FAMILIES, FAMILIES[0]),
            "On which problems",
            ChoiceField("problems", "Problems", "Those that training holds out, about a fifth; or "
                        "all, also those that the model may have learned from.",
                        (_HELD_OUT, _ALL), _HELD_OUT),
            Field("query", "Only", "The problems that a filter finds, such as op:mm m<=64.",
                  hint="all of the store", suggest=suggestions({}), check=_check_query),
        )  # fmt: skip
        with VerticalGroup(id="validation-plan"):
            yield Static(id="validation-count", markup=False)
            yield Static(id="validation-command", markup=False)
            yield Button("Start (^g)", action="screen.start", compact=True)

    @property
    def form(self) -> FieldRows:
        return self.query_one(FieldRows)

    def body_mounted(self) -> None:
        self._arrange()
        self.form.focus_rows()

    @property
    def spec(self) -> dict[str, Any]:
        """The command's options."""
        values = self.form.values
        kind, model = values["what"], values.get("model", IN_USE)
        return {
            "model": None if model == IN_USE else model,
            "cross_validate": None if kind == _MODEL else kind,
            "family": values.get("family"),
            "all": values["problems"] == _ALL,
            "query": values["query"] or None,
        }

    def _command(self) -> tuple[str, ...]:
        from diode_engine.runs import command_line

        return command_line("validate", self.spec, self.session.location)

    def values(self) -> Mapping[str, object]:
        return {"command": self._command()}

    def _arrange(self) -> None:
        crossed = self.form.field("what").value != _MODEL
        self.form.field("model").display = not crossed
        self.form.field("family").display = crossed
        self.put("#validation-command", f"$ {shlex.join(self._command())}")

    def on_field_changed(self, event: Field.Changed) -> None:
        self._arrange()
        if event.field.name == "query":
            self.reload()

    def reader(self) -> Callable[[Store], int] | None:
        if self.form.mistakes:
            return None
        query = self.form.values["query"]

        def count(store: Store) -> int:
            from diode_engine.store.query import count_problems

            return count_problems(store, query)

        return count

    def show(self, snapshot: int) -> None:
        self.put("#validation-count", f"{text.counted(snapshot, 'problems')} with timings.")

    # Actions

    def action_back(self) -> None:
        self.dismiss()

    def action_start(self) -> None:
        if self.form.mistakes:
            self.form.go_to(next(iter(self.form.mistakes)))
            return
        spec = self.spec

        def start(store: Store) -> int:
            from diode_engine.runs import start

            return start(store, "validate", spec).id

        async def begin() -> None:
            self.session.store.must_be_writable()
            counts = self.query_one("#validation-count", Static).content
            if not await self.confirmed(f"Start this validation?\n{counts}", "Start it"):
                return
            run = await self.session.store.write(start)
            self.app.notify(f"Run {run} has started; its report is shown here when it is done.")
            self.call_next(self.action_back)

        self.act(begin, "starts a validation")


def _check_query(query: str) -> str | None:
    from diode_engine.store.fields import PROBLEMS

    try:
        PROBLEMS.parse(query)
    except QueryError as error:
        return str(error)
    return None
