"""Models: the registry, which model is taken on this machine, and why."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.models import MODEL_COLUMNS, Models, facts, models
from diode_app.screens.base import ReaderIfReady
from diode_app.screens.filtered_list import ListScreen
from diode_app.screens.model_actions import MODEL_ACTIONS, ModelActions
from diode_app.session import Session
from diode_app.widgets.empty import EmptyState, Step
from diode_app.widgets.facts import Facts
from diode_app.widgets.files import complete_path
from diode_app.widgets.modals import Prompt
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import acts
from diode_engine import registry
from diode_engine.registry import ModelEntry, ModelVersion

_EMPTY = (
    "There are no models",
    "A model is made from timings, and takes the kernels that max-autotune would have timed.",
    (
        Step("Train one", "app.go('train')", "From the timings in the store.", "T"),
        Step(
            "Import a model", "screen.import_model", "From a file that was written elsewhere.", "i"
        ),
    ),
)  # fmt: skip


class ModelsScreen(ListScreen, ModelActions):
    """The list; Enter opens a model's page."""

    MODE = "models"
    NEEDS_STORE = False
    ACTIONS = (
        Action("models.open", "enter", "Open", "This model's card, lineage, gate and history.",
               "diode-engine models show {model} --hardware={hardware}", footer=False),
        *MODEL_ACTIONS[:4],
        Action("models.import-model", "i", "Import", "Register a model from an archive, or from a "
               "folder.", "diode-engine models import FILE", writes=True),
        *MODEL_ACTIONS[4:],
    )  # fmt: skip
    HEADLESS = (("List", "diode-engine models list"),)
    DEFAULT_CSS = """
    ModelsScreen {
        #models-problems {
            height: auto; max-height: 4; padding: 0 1; color: $text-error; display: none;
        }
        #models-preview { max-height: 20; border-top: solid $panel; }
        &.-low #models-preview { max-height: 9; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._models = Models({}, (), "", ())
        self._asked = False

    def body(self) -> ComposeResult:
        yield Static(id="models-taken", classes="words bold", markup=False)
        yield Static(id="models-problems", markup=False)
        yield PagedTable(self.session, MODEL_COLUMNS, what="models")
        yield Facts(id="models-preview")
        yield EmptyState(*_EMPTY, id="models-none")

    @property
    def entry(self) -> ModelEntry | None:
        return self._models.entries.get(self.table.pointed or "")

    def store_looked(self) -> None:
        if self._asked != (self.session.here is not None):  # the hardware was found out
            self.reload()

    def reader(self) -> ReaderIfReady[Models]:
        here = self.session.here
        self._asked = here is not None
        hardware, gpus = (None, 0) if here is None else (here.hardware, here.count)
        return lambda _: models(hardware, gpus)

    def show(self, snapshot: Models) -> None:
        self._models = snapshot
        self.put("#models-taken", snapshot.taken)
        self.put("#models-problems", "\n".join(f"✗ {sentence}" for sentence in snapshot.problems))
        self.query_one("#models-problems").display = bool(snapshot.problems)
        self.query_one(PagedTable).show_rows(snapshot.rows)
        self.show_empty(not snapshot.rows, "PagedTable")
        self._preview()

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        event.stop()
        self._preview()

    def _preview(self) -> None:
        entry = self.entry
        self.query_one(Facts).display = entry is not None
        if entry is None:
            return
        self.query_one(Facts).show((("model", entry.model.reference), *facts(entry)))

    # Actions

    def open(self, key: str) -> None:
        self.dashboard.open_model(key)

    @acts(writes=True)
    async def action_import_model(self) -> str | None:
        question = "Register the model in this archive, or folder"
        prompt = Prompt(question, check=_check_file, suggest=complete_path)
        given = await self.app.push_screen_wait(prompt)
        if given is None:
            return None
        path = Path(given).expanduser()

        def bring() -> tuple[ModelVersion, bool]:
            return (registry.register(path), True) if path.is_dir() else registry.import_model(path)

        model, is_new = await self.session.store.change(bring, "import")
        if not is_new:
            return f"{model.reference} is the same model; nothing was imported."
        return f"{model.reference} is registered; Promote judges it and makes it the default."


def _check_file(given: str) -> str | None:
    return None if given and Path(given).expanduser().exists() else "There is no such file."
