"""Train: what a model learns from and how, and the results of earlier trainings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Static

from diode_app import text
from diode_app.actions import Action, import_shipped
from diode_app.data.problems import suggestions
from diode_app.data.progress import fraction
from diode_app.data.training import Part, TrainingPlan, planned
from diode_app.data.trainings import Training, last_trainings
from diode_app.screens.base import WIDTHS
from diode_app.screens.command_screen import CommandScreen
from diode_app.screens.run import RunScreen
from diode_app.session import Session
from diode_app.widgets.command_form import CommandForm
from diode_app.widgets.form import ChoiceField
from diode_app.widgets.reading import Reading

if TYPE_CHECKING:
    from diode_engine.store import Store

_LISTED = 12  # trainings beside the form


class TrainScreen(CommandScreen):
    """A form, the data that follows it, and the last trainings."""

    MODE = COMMAND = "train"
    NOUN = "training"
    COUNTS = "#train-counts"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    ACTIONS = (
        Action("train.start", "ctrl+g", "Start", "Start this training as a run.", "{command}"),
        Action("train.curves", "v", "Trainings", "The trainings among the runs, to compare them.",
               "diode-engine runs list kind:train --store={store}"),
        Action("train.defaults", "d", "Defaults", "Set all fields to their defaults."),
        import_shipped("train"),
    )  # fmt: skip
    DEFAULT_CSS = """
    TrainScreen {
        #train-parts { height: 1fr; }
        #train-side { height: 1fr; }
        #train-data { border: round $panel; border-title-color: $primary; padding: 0 1; }
        #train-runs { border: round $panel; border-title-color: $primary; padding: 0 1; }
        #train-data, #train-runs, #train-counts, #train-list { height: auto; }
        #train-counts { text-style: bold; }
        &.-narrow #train-parts { layout: vertical; }
        &.-narrow #train-side { height: auto; max-height: 8; }
        &.-narrow #train-runs { display: none; }
        &.-wide #train-side { width: 2fr; }
        &.-wide FieldRows { width: 3fr; }
        &.-wide Button { margin-top: 1; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._models: tuple[str, ...] = ()
        self._known: dict[str, list[str]] = {}
        self._listing: Reading[tuple[Training, ...]] = Reading(
            self, session.store, self._show_trainings, self.fail
        )

    def body(self) -> ComposeResult:
        with Horizontal(id="train-parts"):
            suggest = {"query": suggestions(self._known), "fine_tune": self._suggest_model}
            yield CommandForm("train", choices={"hardware": ()}, suggest=suggest)
            with VerticalScroll(id="train-side", can_focus=False):
                with VerticalScroll(id="train-data", can_focus=False) as panel:
                    panel.border_title = "Data"
                    yield Static("Counting ...", id="train-counts", markup=False)
                    yield Static(id="train-parts-of", markup=False)
                    yield Button("Start (^g)", action="screen.start", compact=True)
                with VerticalScroll(id="train-runs", can_focus=False) as panel:
                    panel.border_title = "Trainings"
                    yield Static("Looking ...", id="train-list")

    # What is read

    def reload(self) -> None:
        super().reload()
        self._listing.ask(lambda store: last_trainings(store, _LISTED))

    def reader(self) -> Callable[[Store], TrainingPlan] | None:
        if self.form.mistakes:
            return None
        spec = self.form.spec
        return lambda store: planned(store, spec)

    def show(self, snapshot: TrainingPlan) -> None:
        form, data = self.form, snapshot.data
        self._models = snapshot.models
        self._known.update(snapshot.known)
        for name, usual in snapshot.usual.items():
            form.field(name).query_one(Input).placeholder = usual
        gpus = form.field("hardware")
        assert isinstance(gpus, ChoiceField)
        if not snapshot.mistakes:  # a query that finds nothing takes no choice away
            gpus.offer(data.gpus)
            form.follow()
        form.complain(snapshot.mistakes)
        part = data.chosen
        if part is None:
            self.show_nothing()
            return
        held_out = round(part.problems / 5)
        counts = f"{part.problems:,} problems · {part.timings:,} timings of {part.gpu}"
        self.put("#train-counts", counts)
        lines = [
            f"About {part.problems - held_out:,} to learn from, {held_out:,} held out.",
            f"torch {part.torch}; {part.failed:,} candidates failed.",
            *(_left_out(other) for other in data.left_out),
        ]
        self.put("#train-parts-of", "\n".join(lines))

    def show_nothing(self) -> None:
        self.put("#train-counts", "No data yet: a field needs another value.")
        self.put("#train-parts-of", "")

    def _show_trainings(self, trainings: tuple[Training, ...]) -> None:
        lines = [_line(training) for training in trainings]
        self.put("#train-list", Content("\n").join(lines) if lines else "None yet.")

    def _suggest_model(self, given: str, _cursor: int) -> list[str]:
        return [model for model in self._models if model.startswith(given)]

    def page_of(self, run: int) -> RunScreen:
        return RunScreen(self.session, run)

    def action_curves(self) -> None:
        self.session.pending_filters["runs"] = "kind:train"
        self.app.switch_mode("runs")


def _left_out(part: Part) -> str:
    return f"Left out: {part.timings:,} timings of {part.gpu} with torch {part.torch}."


def _line(training: Training) -> Content:
    status = training.status
    state = str(status.state)
    part = None if status.state.ended else fraction(status)
    says = training.model or (status.why or status.run.message or "")
    shown = "" if training.efficiency is None else f"{training.efficiency:.3f}"
    return Content.assemble(
        f"{'▪' if training.is_baseline else ' '}{training.run:>4} ",
        (f"{text.state(state):<12}", f"${text.STATE_COLOURS[state]}"),
        f" {training.what:<10} ",
        (f"{shown:<5}", "bold" if training.judged else "$text-muted"),
        f" {'' if part is None else text.bar(part, 8) + ' '}",
        f" {says}".split("\n")[0],
    )
