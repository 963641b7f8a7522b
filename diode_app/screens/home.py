"""Home: this machine, the store, the model in use, the last runs, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalGroup
from textual.content import Content
from textual.widgets import Static

from diode_app import text
from diode_app.actions import Action, import_timings
from diode_app.data.background import CommandError, in_thread, run_command
from diode_app.data.hardware import describe_environment, find_hardware
from diode_app.data.overview import RUNS_SHOWN, StoreOverview, model_in_use, overview
from diode_app.data.run_results import headline, outcome
from diode_app.data.store_access import Condition, Look
from diode_app.screens.base import DiodeScreen, Reader
from diode_app.session import Session
from diode_app.widgets.empty import IMPORT, EmptyState, Step
from diode_app.widgets.facts import Facts, badge
from diode_app.widgets.modals import Notice
from diode_app.widgets.styling import FocusScroll
from diode_app.widgets.work import acts
from diode_engine.errors import DiodeError

if TYPE_CHECKING:
    from diode_engine.runs import Status

_NEXT = (IMPORT, Step("Collect timings", "app.go('collect')", "On this machine's GPUs.", "C"))


class _RunLine(Static, can_focus=True):
    """How a run is or has ended, in one line; Enter, or a click, opens the run's page."""

    run_number: int | None = None

    def on_click(self) -> None:
        self.screen.action_run()  # type: ignore[attr-defined]


class HomeScreen(DiodeScreen):
    """An overview."""

    MODE = "home"
    ACTIONS = (
        import_timings("home", footer=True),
        Action("home.run", "enter", "Open", "The page of the run of the line that has the focus, "
               "else of the last one.", "diode-engine runs show {run} --store={store}",
               footer=False),
        Action("home.stats", "d", "Details", "All counts of the store.",
               "diode-engine data stats --store={store}"),
    )  # fmt: skip
    DEFAULT_CSS = """
    HomeScreen {
        #home-rows { height: auto; }
        #home-store, #home-model { width: 1fr; min-height: 8; }
        #home-rows Facts { padding: 0; }
        #run-rows { layout: grid; grid-size: 2; grid-columns: 41 1fr; grid-rows: auto; }
        #run-rows Static { height: 1; display: none; }
        .run-says { text-wrap: nowrap; text-overflow: ellipsis; }
        .run-says:focus { background: $block-cursor-background; color: $block-cursor-foreground; }
        .run-says:nocolor:focus { text-style: reverse; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._asked = False
        self._registry = 0
        self._has_timings = False
        self._last: int | None = None  # run

    def body(self) -> ComposeResult:
        with FocusScroll():
            yield EmptyState(
                "What to do next",
                "There are no timings in this store yet, and a model is made from timings.",
                _NEXT, id="home-next",
            )  # fmt: skip
            with Horizontal(id="home-rows"):
                with VerticalGroup(classes="panel", id="home-store") as panel:
                    panel.border_title = "Store"
                    yield Facts(id="store-facts")
                with VerticalGroup(classes="panel", id="home-model") as panel:
                    panel.border_title = "Model in use"
                    yield Static("Looking ...", id="no-model", markup=False)
                    yield Facts(id="model-facts")
            with VerticalGroup(classes="panel") as panel:
                panel.border_title = "Runs"
                yield Static("Looking ...", id="no-runs")
                with VerticalGroup(id="run-rows"):
                    for _ in range(RUNS_SHOWN):
                        yield Static(classes="run-head")
                        yield _RunLine(classes="run-says", markup=False)
            with VerticalGroup(classes="panel") as panel:
                panel.border_title = "This machine"
                yield Static("Looking ...", id="hardware-facts", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        may = super().check_action(action, parameters)
        if action == "run":
            return self._run is not None
        return may and self._has_timings if action == "stats" else may

    @property
    def _run(self) -> int | None:
        """The run whose line has the focus, else the last one."""
        focused = self.focused
        return focused.run_number if isinstance(focused, _RunLine) else self._last

    def values(self) -> Mapping[str, object]:
        return {"run": self._run}

    def action_run(self) -> None:
        if self._run is not None:
            self.dashboard.open_run(self._run)

    def store_looked(self) -> None:
        # Only after the figures: torch's import would take the time that the start needs.
        opened = self.session.store.last.condition is not Condition.OPENING
        if opened and not self._asked and not self.reading.busy:
            self._asked = True
            self.run_worker(self._look_around(), group="hardware", exit_on_error=False)

    # The store

    def look_changed(self, look: Look) -> None:
        super().look_changed(look)
        if self._asked and look.registry != self._registry:
            self._registry = look.registry
            self.run_worker(self._show_model(), group="hardware", exit_on_error=False)

    def reader(self) -> Reader[StoreOverview]:
        return overview

    def show(self, snapshot: StoreOverview) -> None:
        on_disk = isinstance(self.session.location, Path)
        stats = snapshot.stats
        facts = [
            ("file" if on_disk else "server", str(self.session.location)),
            ("size", f"{text.size(snapshot.size_bytes)}, schema {snapshot.schema}"),
            ("problems", text.count(stats.problems)),
            ("timings", f"{stats.timings:,}, {sum(stats.failures.values()):,} failed"),
            ("candidates", f"{stats.candidates:,} different ones"),
        ]
        facts += [("on", f"{describe_environment(e)} ({n:,})") for e, n in stats.by_environment]
        self.query_one("#store-facts", Facts).show(facts)
        self._show_runs(snapshot.last)
        self.query_one("#home-next").display = stats.timings == 0
        if self._has_timings is not (stats.timings > 0):
            self._has_timings = stats.timings > 0
            self.refresh_bindings()
        self.call_after_refresh(self.store_looked)

    def _show_runs(self, last: Sequence[Status]) -> None:
        self.put("#no-runs", "No run yet.")
        self.query_one("#no-runs").display = not last
        newest = last[0].run.id if last else None
        if newest != self._last:
            self._last = newest
            self.refresh_bindings()
        heads, lines = self.query(".run-head"), self.query(_RunLine)
        pairs = zip(heads.results(Static), lines, strict=True)
        for i, (head, line) in enumerate(pairs):
            head.display = line.display = i < len(last)
            if i < len(last):
                line.run_number = last[i].run.id
                self.put(head, _run_head(last[i]))
                self.put(line, headline(last[i]).split("\n")[0])

    @acts(asks=False)
    async def action_stats(self) -> None:
        # This reads alone: it refuses a store of an older schema, which the command updates.
        await self.session.store.read(lambda store: store)
        # Nor does it write to the log of errors.
        words = ["--debug", "data", "stats", f"--store={self.session.location}"]
        said = await run_command(words)
        await self.app.push_screen_wait(Notice("What the store holds", said))

    # Hardware and model

    async def _look_around(self) -> None:
        panel = self.query_one("#hardware-facts", Static)
        panel.update("Looking ... (torch takes some seconds, in a separate process)")
        await self._show_model()
        try:
            self.session.here = await find_hardware()
        except CommandError as error:
            panel.update(f"✗ The hardware here could not be found out: {error}")
            return
        here = self.session.here
        versions = ", ".join(f"{name} {version}" for name, version in here.versions.items())
        says = "" if here.count else " Timings need one; all else works without."
        panel.update(f"{here}{says}\n{versions}")
        await self._show_model()

    async def _show_model(self) -> None:
        panel = self.query_one("#no-model", Static)
        try:
            model = await in_thread(partial(model_in_use, self.session.hardware), "model")
        except DiodeError as error:
            panel.update(f"✗ {error}")
            return
        panel.display = isinstance(model, str)
        if isinstance(model, str):
            panel.update(model)
        self.query_one("#model-facts", Facts).show(() if isinstance(model, str) else model)


def _run_head(status: Status) -> Content:
    state = outcome(status)
    pad = " " * (12 - len(text.state(state)))
    return Content.assemble(
        f"{status.run.id:>4}  {status.run.kind:<9} ", badge(state),
        f"{pad}  {text.seconds(status.seconds)}",
    )  # fmt: skip
