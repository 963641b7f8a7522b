"""Ask: which kernel would a model choose for this problem? It shows the model's ranking; needs no
GPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Label, Select, Static

from diode_app.actions import Action
from diode_app.data.background import in_thread
from diode_app.data.choice import Answer, Question, answer
from diode_app.data.overview import find_main_hardware
from diode_app.data.predictors import Model, all_models
from diode_app.data.problem_text import parse_problem, write_problem
from diode_app.screens.base import DiodeScreen
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.ranking import Ranking, headline
from diode_app.session import Session
from diode_app.widgets.empty import EmptyState, Step
from diode_app.widgets.styling import COMPACT
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import Latest
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.errors import RecordError

_FIRST = Problem.make("addmm", 1024, 4096, 4096, "bfloat16", b_layout="col")
_NONE = ""
_NEXT = (
    Step("Train", "app.go('train')", "It learns from the timings in the store.", "T"),
    Step("Models", "app.go('models')", "Take one that somebody has exported.", "M"),
)


class AskScreen(DiodeScreen):
    """The answer follows the fields as they change."""

    MODE = "ask"
    NEEDS_STORE = False
    ACTIONS = (
        Action("ask.rows", "escape", "List", "From the fields to the candidates."),
        Action("ask.sizes", "m", "Problem", "Type another problem: the operator, the sizes, the "
               "type, the layouts, and name=value of the rest.", does="focus('#ask-problem')"),
        Action("ask.timings", "d", "Timings", "What was measured on this problem.",
               "diode-engine data show {key} --store={store}"),
        Action("ask.why", "w", "Why", "Why the candidate under the cursor has its place.",
               "diode-engine explain {question}"),
    )  # fmt: skip
    DEFAULT_CSS = """
    AskScreen {
        #ask-models, #ask-line { height: 1; }
        #ask-models Label, #ask-line Label { padding: 0 1; color: $text-muted; }
        #ask-models Select { width: 30; }
        #ask-says { height: auto; padding: 0 1; margin-top: 1; }
        Ranking { margin-top: 1; }
        Ranking PagedTable { width: 2fr; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._problem: Problem | None = _FIRST
        self._hardware: Hardware | None = None  # of the problem whose page this was opened from
        self._models: tuple[Model, ...] | None = None
        self._for: Hardware | None = None  # what the models were looked up for
        self._answer: Answer | None = None
        self._listing: Latest[tuple[Model, ...]] = Latest(self, self._list, self.fail)
        self._answering: Latest[Answer] = Latest(self, self._show_answer, self._refuse)

    def body(self) -> ComposeResult:
        with Horizontal(id="ask-line"):
            yield Label("problem")
            yield Input(write_problem(_FIRST), compact=True, classes=COMPACT, id="ask-problem")
        with Horizontal(id="ask-models"):
            yield Label("model")
            yield Select[str]([("...", _NONE)], allow_blank=False, compact=True, id="ask-model")
            yield Label("beside")
            yield Select[str]([("none", _NONE)], allow_blank=False, compact=True, id="ask-other")
        yield Static("Asking ...", id="ask-says")
        yield Ranking(self.session)
        yield EmptyState(
            "There is no model to ask", "Train one, or import one.", _NEXT,
            id="ask-empty",
        )  # fmt: skip

    @property
    def table(self) -> PagedTable:
        return self.query_one(Ranking).table

    def values(self) -> Mapping[str, object]:
        found = self._answer
        return {
            "key": None if self._problem is None else self._problem.key,
            "question": None if found is None else found.question.words,
        }

    # The models

    def take(self, given: tuple[Problem, Hardware | None]) -> None:
        """Ask about this problem, on this GPU (None: the one here, or that of the timings)."""
        problem, self._hardware = given
        self._models = None  # the first choice is that GPU's
        self.query_one("#ask-problem", Input).value = write_problem(problem)
        self.table.focus_rows()
        self._listing.do(self._find_models)

    def reload(self) -> None:
        self._listing.do(self._find_models, again=True)

    async def _find_models(self) -> tuple[Model, ...]:
        """Return the models, those for the GPU in question first: that of the problem's page, else
        the one here, else the one with the most timings in the store."""
        here, store = self.session.here, self.session.store
        hardware = self._hardware
        if hardware is None and here is not None and here.count:
            hardware = here.hardware
        elif hardware is None and store.last.ready:
            hardware = await store.read(find_main_hardware)
        self._for = hardware
        return await in_thread(partial(all_models, hardware), "models")

    def _list(self, models: tuple[Model, ...]) -> None:
        if models == self._models:
            return
        is_new = self._models is None
        self.show_empty(not models, "#ask-line", "Ranking", "#ask-says", "#ask-models")
        self._models = models
        # By the GPU only where there is more than one.
        several = len({model.hardware for model in models}) > 1
        names = [(m.name if several else m.reference, str(m.folder)) for m in models]
        with self.prevent(Select.Changed):
            for select, choices in (
                (self.query_one("#ask-model", Select), names or [("none", _NONE)]),
                (self.query_one("#ask-other", Select), [("none", _NONE), *names]),
            ):
                now = select.value
                select.set_options(choices)
                kept = now in [value for _, value in choices] and not is_new
                select.value = now if kept else choices[0][1]
        self._ask()

    def _model(self, select: str) -> Model | None:
        folder = self.query_one(select, Select).value
        return next((m for m in self._models or () if str(m.folder) == folder), None)

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        self._ask()

    # The answer

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id != "ask-problem":
            return
        try:
            problem = parse_problem(event.value)
        except RecordError as error:
            self._answering.drop()
            self._refuse(str(error))
            return
        if problem != self._problem or self._answer is None:
            self._problem = problem
            self._ask()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.table.focus_rows()

    def _ask(self) -> None:
        model = self._model("#ask-model")
        if model is None or self._problem is None:
            return
        other = self._model("#ask-other")
        here, hardware = self.session.here, self._for
        # Where that GPU is of another kind than the model's, the answer is for the model's own.
        serves = hardware is not None and model.likeness > 0
        question = Question(
            self._problem,
            model,
            None if other == model else other,
            hardware if hardware is not None and serves else model.hardware,
            "" if here is None else here.versions.get("torch", ""),
        )
        self._answering.do(partial(in_thread, partial(answer, question), "ask"))

    def _refuse(self, sentence: str) -> None:
        self._answer = None
        self.query_one("#ask-says", Static).update(f"✗ {sentence}")
        self.query_one(Ranking).show(None)

    def _show_answer(self, found: Answer) -> None:
        self._answer = found
        self.query_one("#ask-says", Static).update(headline(found))
        self.query_one(Ranking).show(found)

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "rows":  # not offered where the focus is in the list already
            return not (self.has_body and self.table.has_focus_within)
        return super().check_action(action, parameters)

    def action_rows(self) -> None:
        self.remove_class("-why")
        self.table.focus_rows()

    def action_why(self) -> None:
        self.toggle_class("-why")
        if self.has_class("-narrow") and self.has_class("-why"):
            self.query_one(Ranking).focus_words()
        else:
            self.table.focus_rows()

    def action_timings(self) -> None:
        if self._problem is not None:
            self.app.push_screen(ProblemScreen(self.session, self._problem.key))
