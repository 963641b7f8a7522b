"""Train: what a model learns from and how, and the results of earlier trainings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Static

from diode_app import text
from diode_app.actions import Action, import_shipped
from diode_app.data.problems import suggestions
from diode_app.data.progress import fraction
from diode_app.data.training import (
    FAMILIES,
    HELD_OUT,
    NOTHING,
    RANKINGS,
    USUAL,
    Part,
    TrainingPlan,
    fields_of,
    planned,
    spec_of,
)
from diode_app.data.trainings import Training, last_trainings
from diode_app.screens.base import WIDTHS, DiodeScreen
from diode_app.screens.run import RunScreen
from diode_app.session import Session
from diode_app.widgets.field_rows import FieldRows
from diode_app.widgets.form import (
    Check,
    ChoiceField,
    Field,
    existing_file,
    optional,
    whole_number,
)
from diode_app.widgets.path_completion import complete_path
from diode_app.widgets.reading import Reading

if TYPE_CHECKING:
    from diode_engine.store import Store

_MAX_COUNT = 1_000_000
_LISTED = 12  # trainings beside the form


class TrainScreen(DiodeScreen):
    """A form, the data that follows it, and the last trainings."""

    MODE = "train"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = [(0, "-low"), (40, "-high")]  # noqa: RUF012
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
            yield FieldRows(
                "Data",
                Field("query", "Problems", "Learn from the problems that this filter query finds, "
                      "such as dtype:bf16 op:mm,addmm m<=4096.", hint="all of the store",
                      suggest=suggestions(self._known)),
                Field("dataset", "File", "Learn from a dataset file's timings instead.",
                      hint="none: from the store", check=optional(existing_file),
                      suggest=complete_path),
                ChoiceField("hardware", "GPU", "A model is made for one.", ()),
                "Model",
                ChoiceField("family", "Family", "An ensemble is trees and three networks; "
                            "distilled is a small network that learns from one and answers in a "
                            "millisecond.", FAMILIES, USUAL["family"]),
                Field("fine_tune", "Tune", "A model to tune to these timings: better on these "
                      "problems, the same on others.", hint="none: a model from nothing",
                      suggest=self._suggest_model),
                Field("name", "Name", "It is registered as the next version of this name.",
                      hint="the family's, or the tuned model's"),
                ChoiceField("all", "Held out", "A fifth of the problems, always the same, to judge "
                            "the model on. Nothing: the registered model learns from these too; "
                            "its figures are of one that did not.", (HELD_OUT, NOTHING), HELD_OUT),
                ChoiceField("default", "Default", "Make it the model that torch.compile uses on "
                            "its GPU; else it waits to be promoted.", ("yes",), several=True),
                "Settings",
                Field("search", "Search", "First look for better settings in this many trials, on "
                      "folds of the problems to learn from.", hint="no trials",
                      check=optional(whole_number(1, 10_000))),
                Field("seed", "Seed", "Another seed makes another model.", USUAL["seed"],
                      check=whole_number(0, 2**31 - 1)),
                Field("hidden", "Width", "Networks: the width of a hidden layer.",
                      check=optional(whole_number(1, 65_536))),
                Field("layers", "Layers", "Networks: the number of hidden layers.",
                      check=optional(whole_number(1, 8))),
                Field("epochs", "Epochs", "Networks: the largest number of epochs.",
                      check=optional(whole_number(1, _MAX_COUNT))),
                Field("batch_size", "Batch", "Networks: candidates per step.",
                      check=optional(whole_number(1, _MAX_COUNT))),
                Field("learning_rate", "Learning rate", "Networks: the largest of the schedule.",
                      check=optional(_number(positive=True))),
                Field("weight_decay", "Weight decay", "Networks: the weight decay of AdamW.",
                      check=optional(_number())),
                Field("patience", "Patience", "Networks: the fit ends after this many epochs "
                      "without a better one.",
                      check=optional(whole_number(1, _MAX_COUNT))),
                ChoiceField("ranking", "Ranking", "Networks: the ranking loss within a problem, "
                            "which is added to that of the times.", RANKINGS, USUAL["ranking"]),
                Field("rounds", "Rounds", "Trees: the largest number of rounds.",
                      check=optional(whole_number(1, _MAX_COUNT))),
                Field("depth", "Depth", "Trees: the largest depth.",
                      check=optional(whole_number(1, 16))),
            )  # fmt: skip
            with VerticalScroll(id="train-side", can_focus=False):
                with VerticalScroll(id="train-data", can_focus=False) as panel:
                    panel.border_title = "Data"
                    yield Static("Counting ...", id="train-counts", markup=False)
                    yield Static(id="train-parts-of", markup=False)
                    yield Button("Start (^g)", action="screen.start", compact=True)
                with VerticalScroll(id="train-runs", can_focus=False) as panel:
                    panel.border_title = "Trainings"
                    yield Static("Looking ...", id="train-list")

    @property
    def form(self) -> FieldRows:
        return self.query_one(FieldRows)

    def body_mounted(self) -> None:
        self._fields_follow()
        self.form.field("hardware").display = False
        self.form.focus_rows()

    # What is read

    def reload(self) -> None:
        super().reload()
        self._listing.ask(lambda store: last_trainings(store, _LISTED))

    def reader(self) -> Callable[[Store], TrainingPlan] | None:
        form = self.form
        if form.mistakes:
            return None
        values = {**USUAL, **form.values}
        return lambda store: planned(store, values)

    def show(self, snapshot: TrainingPlan) -> None:
        form, data = self.form, snapshot.data
        self._models = snapshot.models
        self._known.update(snapshot.known)
        for name, usual in snapshot.usual.items():
            form.field(name).query_one(Input).placeholder = usual
        gpus = form.field("hardware")
        assert isinstance(gpus, ChoiceField)
        if not snapshot.mistakes:  # a query that finds nothing takes no choice away
            gpus.entry.offer(data.gpus)
            gpus.display = len(data.gpus) > 1
        form.complain(snapshot.mistakes)
        part = data.chosen
        if part is None:
            self._nothing()
            return
        held_out = round(part.problems / 5)
        self.put(
            "#train-counts",
            f"{part.problems:,} problems · {part.timings:,} timings of {part.gpu}",
        )
        lines = [
            f"About {part.problems - held_out:,} to learn from, {held_out:,} held out.",
            f"torch {part.torch}; {part.failed:,} candidates failed.",
            *(_left_out(other) for other in data.left_out),
        ]
        self.put("#train-parts-of", "\n".join(lines))

    def _nothing(self) -> None:
        self.put("#train-counts", "No data yet: a field needs another value.")
        self.put("#train-parts-of", "")

    def _show_trainings(self, trainings: tuple[Training, ...]) -> None:
        lines = [_line(training) for training in trainings]
        self.put("#train-list", Content("\n").join(lines) if lines else "None yet.")

    # The form

    def on_field_changed(self, event: Field.Changed) -> None:
        self._fields_follow()
        if self.form.mistakes:
            self._nothing()
        elif self.session.store.last.ready:
            self.reload()

    def _fields_follow(self) -> None:
        form = self.form
        wanted = fields_of({str(field.name): field.value for field in form.query(Field)})
        for field in form.query(Field):
            if field.name != "hardware":  # which follows the data
                field.display = field.name in wanted

    def _suggest_model(self, given: str, _cursor: int) -> list[str]:
        return [model for model in self._models if model.startswith(given)]

    # Actions

    def values(self) -> Mapping[str, object]:
        from diode_engine.runs import command_line

        return {"command": command_line("train", spec_of(self.form.values), self.session.location)}

    def action_start(self) -> None:
        mistakes = self.form.mistakes
        if mistakes:
            self.form.complain({})
            self.form.go_to(next(iter(mistakes)))
            self.notify(next(iter(mistakes.values())), severity="error", markup=False)
            return
        spec = spec_of(self.form.values)

        def begin(store: Store) -> int:
            from diode_engine.runs import start

            return start(store, "train", spec).id

        async def go() -> str | None:
            self.session.store.must_be_writable()
            counts = self.query_one("#train-counts", Static).content
            if not await self.confirmed(f"Start this training?\n{counts}", "Start it"):
                return None
            run = await self.session.store.write(begin)
            self.form.focus_rows()  # who comes back is in no field, so that letters are keys
            self.app.push_screen(RunScreen(self.session, run))
            return f"Run {run} has started; it continues when you leave."

        self.act(go, "starts a training")

    def action_curves(self) -> None:
        self.session.narrowed["runs"] = "kind:train"
        self.app.switch_mode("runs")

    def action_defaults(self) -> None:
        self.form.reset()


def _number(*, positive: bool = False) -> Check:
    def check(value: str) -> str | None:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number) and (number > 0 or (number == 0 and not positive)):
            return None
        return f"It must be a number {'above zero' if positive else 'from zero up'}."

    return check


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
