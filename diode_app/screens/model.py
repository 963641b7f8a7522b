"""The page of a model: its card, its lineage, the gate's verdict, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Markdown, Static, TabbedContent, TabPane

from diode_app.actions import Action
from diode_app.data.lineage import DATA, MODEL, RUN, ModelView, model_view
from diode_app.data.tables import Column
from diode_app.screens.base import ReaderIfReady
from diode_app.screens.model_actions import MODEL_ACTIONS, ModelActions, write_verdict
from diode_app.screens.tabs import TabbedScreen
from diode_app.session import Session
from diode_app.widgets.facts import Facts
from diode_app.widgets.table import PagedTable
from diode_engine.registry import ModelEntry
from diode_engine.validation.gate import GateVerdict

_STEPS = (
    Column("leads", "", sortable=False),
    Column("step", "step"),
    Column("what", "what"),
)


class ModelScreen(TabbedScreen, ModelActions):
    """The model in this folder."""

    MODE = "models"
    NEEDS_STORE = False
    HELP_TITLE = "A model"
    LINK = "link"
    ACTIONS = (
        Action("model.back", "escape", "Back", "To where this page was opened."),
        *MODEL_ACTIONS,
    )
    HEADLESS = (
        ("Verify", "diode-engine models verify {model} --hardware={hardware}"),
        ("History", "diode-engine models show {model} --hardware={hardware}"),
        ("Card", "diode-engine models show {model} --hardware={hardware} --card"),
    )
    DEFAULT_CSS = "ModelScreen Markdown { padding: 0 1; margin: 0; background: transparent; }"

    def __init__(self, session: Session, folder: str) -> None:
        super().__init__(session)
        self._folder = folder
        self._view: ModelView | None = None

    def body(self) -> ComposeResult:
        yield Static(id="model-title", classes="line")
        with TabbedContent(initial="tab-facts"):
            with TabPane("Facts", id="tab-facts"), VerticalScroll():
                yield Facts()
            with TabPane("Lineage", id="tab-lineage"):
                yield PagedTable(self.session, _STEPS, what="steps")
            with TabPane("Card", id="tab-card"), VerticalScroll():
                yield Markdown(open_links=False)
            with TabPane("Gate", id="tab-gate"), VerticalScroll():
                yield Static(id="model-gate", classes="words")
            with TabPane("History", id="tab-history"), VerticalScroll():
                yield Static(id="model-history", classes="words", markup=False)

    def body_mounted(self) -> None:
        self.focus_next()  # the tabs: the first one has no table

    @property
    def is_behind(self) -> bool:
        """Whether the model is not read yet; keys wait for it."""
        return self._view is None and self.reading.busy

    @property
    def entry(self) -> ModelEntry | None:
        return None if self._view is None else self._view.entry

    def reader(self) -> ReaderIfReady[ModelView]:
        return partial(model_view, folder=self._folder)

    def show(self, snapshot: ModelView) -> None:
        before, self._view = self._view, snapshot
        if snapshot == before:
            return
        entry = snapshot.entry
        taken = " · taken" if entry.taken else ""
        m = entry.manifest
        hardware = entry.model.slug if m is None else ", ".join(m.gpu_names)
        self.put(
            "#model-title",
            Content.assemble(
                (entry.model.reference, "bold"), f" for {hardware} · {entry.status}",
                (taken, "$text-success"),
                (f" · {' '.join(entry.aliases)}" if entry.aliases else "", "$text-muted"),
            ),
        )  # fmt: skip
        self.query_one(Facts).show(snapshot.facts)
        self.query_one(PagedTable).show_rows(snapshot.lineage)
        if before is None or before.card != snapshot.card:
            self.query_one(Markdown).update(snapshot.card)
        self.put(
            "#model-gate",
            "It has not passed the gate yet: Promote (p) tries it."
            if not snapshot.gates
            else _verdicts(snapshot.gates),
        )
        self.put(
            "#model-history",
            "\n".join(f"{at}  {what}" for at, what in snapshot.history)
            or "Nothing was done with it yet.",
        )

    # Actions

    def model_removed(self) -> None:
        self.call_next(self.action_back)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        _, leads, where = event.key.split(":", 2)
        if leads == RUN:
            self.dashboard.open_run(int(where))
        elif leads == MODEL:
            self.dashboard.open_model(where)
        elif leads == DATA:
            self.dashboard.go_to_place("data", where)
        else:
            self.notify("There is no page for this: it is not in the store.")


def _verdicts(gates: Mapping[str, GateVerdict | None]) -> Content:
    """Return the verdict for each GPU; with the GPU's name where there are several."""
    parts = []
    for slug, verdict in gates.items():
        if len(gates) > 1:
            parts.append(Content.styled(f"For {slug}", "bold"))
        parts.append(
            Content("The verdict cannot be read.") if verdict is None else write_verdict(verdict)
        )
    return Content("\n").join(parts)
