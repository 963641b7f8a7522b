"""Train: what a model learns from, and how."""

from __future__ import annotations

from textual.widgets import Input

from diode_app.actions import Action, import_timings
from diode_app.data.filters import suggestions
from diode_app.data.training import TrainingPlan, planned
from diode_app.screens.base import Reader
from diode_app.screens.command_screen import CommandScreen
from diode_app.session import Session
from diode_app.widgets.command_form import CommandForm
from diode_app.widgets.form import ChoiceField


class TrainScreen(CommandScreen):
    """A form, and the data that follows it."""

    MODE = COMMAND = "train"
    NOUN = "training"
    ACTIONS = (
        Action("train.start", "ctrl+g", "Start", "Start this training as a run.", "{command}",
           writes=True),
        Action("train.defaults", "d", "Defaults", "Set all fields to their defaults."),
        import_timings("train"),
    )  # fmt: skip

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._models: tuple[str, ...] = ()
        self._known: dict[str, list[str]] = {}

    def make_form(self) -> CommandForm:
        suggest = {"query": suggestions("data", self._known), "fine_tune": self._suggest_model}
        return CommandForm("train", choices={"hardware": ()}, suggest=suggest)

    # What is read

    def reader(self) -> Reader[TrainingPlan]:
        spec = self.form.spec
        return lambda store: planned(store, spec)

    def show(self, snapshot: TrainingPlan) -> None:
        form, part = self.form, snapshot.chosen
        self._models = snapshot.models
        self._known.update(snapshot.known)
        for name, usual in snapshot.usual.items():
            form.field(name).query_one(Input).placeholder = usual
        gpus = form.field("hardware")
        assert isinstance(gpus, ChoiceField)
        if not snapshot.mistakes:  # a query that finds nothing takes no choice away
            gpus.offer(snapshot.gpus)
            form.follow()
        form.complain(snapshot.mistakes)
        if part is None:
            self.show_plan()
            return
        held_out = round(part.problems / 5)
        counts = f"{part.problems:,} problems · {part.timings:,} timings of {part.gpu}"
        lines = [
            f"About {part.problems - held_out:,} to learn from, {held_out:,} held out.",
            f"torch {part.torch}; {part.failed:,} candidates have no time.",
            *(
                f"Left out: {other.timings:,} timings of {other.gpu} with torch {other.torch}."
                for other in snapshot.left_out
            ),
        ]
        self.show_plan(counts, "\n".join(lines))

    def _suggest_model(self, given: str, _cursor: int) -> list[str]:
        return [model for model in self._models if model.startswith(given)]
