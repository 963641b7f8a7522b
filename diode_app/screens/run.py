"""The page of a run: how far it is, its curves, its log, and all that is known of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import ComposeResult
from textual.containers import VerticalGroup, VerticalScroll
from textual.content import Content
from textual.widgets import Static, TabbedContent, TabPane

from diode_app import text
from diode_app.actions import Action
from diode_app.data.curves import CurveReader, kinds
from diode_app.data.run_results import describe_progress, fraction, outcome, seconds_left
from diode_app.data.runs import Gauge, RunView, gauges, run_view
from diode_app.screens.base import Reader
from diode_app.screens.run_actions import RUN_ACTIONS, RunActions
from diode_app.screens.tabs import TabbedScreen
from diode_app.screens.validate_new import open_validation
from diode_app.session import Session
from diode_app.widgets.curve_charts import RunCurves, training_charts
from diode_app.widgets.facts import Facts, Meter, badge
from diode_app.widgets.log_pane import LogPane
from diode_app.widgets.plot import Plot


class RunScreen(TabbedScreen, RunActions):
    """`run` is its number."""

    MODE = "runs"
    HELP_TITLE = "A run"
    LINK = "run"
    ACTIONS = (
        Action("run.back", "escape", "Back", "To where this page was opened."),
        Action("run.model", "m", "Model", "The page of the model that it made.",
               "diode-engine models show {model}"),
        Action("run.validate", "w", "Validate", "Judge the model that it made.",
               "diode-engine validate --model={model} --store={store}", writes=True),
        Action("run.report", "o", "Report", "The report of this validation."),
        Action("run.curves", "v", "Curves", "The curves; once more, those of another kind."),
        Action("run.log-scale", "l", "Log scale", "Values on a logarithmic axis, or not."),
        # The footer has no room for notes here; the list has them.
        *(replace(a, footer=a.footer and a.name not in ("tag", "note")) for a in RUN_ACTIONS),
    )  # fmt: skip
    HEADLESS = (
        ("Log", "diode-engine runs follow {run} --store={store}"),
        ("Facts", "diode-engine runs show {run} --store={store}"),
    )
    DEFAULT_CSS = "RunScreen #run-failed { display: none; }"

    def __init__(self, session: Session, run: int) -> None:
        super().__init__(session)
        self._run = run
        self._view: RunView | None = None
        self._log_scale = False
        self._kind: str | None = None
        self._curves = CurveReader()

    @property
    def run(self) -> int:
        return self._run

    @property
    def run_record(self) -> Mapping[str, Any] | None:
        view = self._view
        if view is None:
            return None
        return {**view.status.to_dict(), "is_resumed": view.is_resumed}

    @property
    def is_behind(self) -> bool:
        """Whether the run, which decides which actions there are, is not read yet."""
        return self._view is None and self.reading.busy

    def body(self) -> ComposeResult:
        yield Static(f"Run {self._run}", id="run-title", classes="lines bold")
        yield Static(id="run-command", classes="lines muted", markup=False)
        yield Meter("done", id="run-progress")
        yield Static(id="run-failed", classes="words warning", markup=False)
        yield VerticalGroup(id="run-gauges")
        with TabbedContent(initial="tab-curves"):
            with TabPane("Curves", id="tab-curves"):
                yield Plot("Looking ...")
            with TabPane("Log", id="tab-log"):
                yield LogPane()
            with TabPane("Facts", id="tab-facts"), VerticalScroll():
                yield Facts(id="run-facts")
            with TabPane("Result", id="tab-result"), VerticalScroll():
                yield Facts(id="run-result")

    def body_mounted(self) -> None:
        self.tabs.hide_tab("tab-result")

    def reader(self) -> Reader[RunView]:
        run, curves = self._run, self._curves
        return lambda store: run_view(store, run, curves)

    def values(self) -> Mapping[str, object]:
        trained = None if self._view is None else self._view.trained
        return {**super().values(), "model": None if trained is None else trained.model}

    def show(self, snapshot: RunView) -> None:
        before, self._view = self._view, snapshot
        status = snapshot.status
        run = status.run
        why = status.why or run.message
        self.put(
            "#run-title",
            Content.assemble(
                f"Run {run.id}, {run.kind}  ",
                badge(outcome(status)),
                f"  {text.seconds(status.seconds)}" + (f"  {why}" if why else ""),
            ),
        )
        self.put("#run-command", "" if run.command is None else f"$ {shlex.join(run.command)}")
        left, done = seconds_left(status), fraction(status)
        words = ["" if left is None else f"{text.seconds(left)} left", describe_progress(status)]
        self.query_one("#run-progress", Meter).show(
            done, "" if done is None else f"{100 * done:.0f} %", " · ".join(filter(None, words))
        )
        failed = text.pairs(snapshot.failures)
        self.put("#run-failed", f"failed: {failed}" if failed else "")
        self.query_one("#run-failed").display = bool(failed)
        self._show_gauges(gauges(status))
        trained = snapshot.trained
        if trained is not None and (before is None or before.trained != trained):
            self.query_one("#run-result", Facts).show(trained.facts)
            self.tabs.show_tab("tab-result")
            self.tabs.active = "tab-result"
        if before is None or (before.trained, before.status.state, before.is_resumed) != (
            trained, status.state, snapshot.is_resumed
        ):  # fmt: skip
            self.refresh_bindings()  # which actions there are depends on the state and the result
        self._draw()
        self.query_one(LogPane).follow(None if run.log is None else Path(run.log))
        self.query_one("#run-facts", Facts).show(snapshot.facts)

    def _show_gauges(self, shown: tuple[Gauge, ...]) -> None:
        group = self.query_one("#run-gauges", VerticalGroup)
        meters = list(group.query(Meter))
        if [meter.label for meter in meters] != [gauge.title for gauge in shown]:
            group.remove_children()
            meters = [Meter(gauge.title) for gauge in shown]
            group.mount_all(meters)
        for meter, gauge in zip(meters, shown, strict=True):
            colour = f"${gauge.colour}"
            meter.show(gauge.share, gauge.value, gauge.says, colour=colour)

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        found = kinds(view.curves)
        if not found:
            over = view.status.state.ended
            nothing = "This run has drawn no curves." if over else "No curves yet: they grow here."
            self.query_one(Plot).say_nothing(nothing)
        drawn = [RunCurves(view.curves, strong=view.baseline is not None)]
        if view.baseline is not None:
            pinned, curves = view.baseline
            drawn.append(RunCurves(curves, behind=f", pinned {pinned}"))
        charts = training_charts(drawn, self._shown_kind(found), log_y=self._log_scale)
        self.query_one(Plot).show(*charts)

    def _shown_kind(self, found: Sequence[str]) -> str | None:
        """The kind that was chosen, else the first."""
        return self._kind if self._kind in found else next(iter(found), None)

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._view
        may = super().check_action(action, parameters)
        if action == "report":
            run = None if view is None else view.status.run
            return run is not None and (run.kind, str(run.state)) == ("validate", "done")
        if action in ("model", "validate"):
            return may and view is not None and view.trained is not None
        return may

    def action_report(self) -> None:
        self.dashboard.go_to_place("validate", self._run)

    def action_log_scale(self) -> None:
        self._log_scale = not self._log_scale
        self._draw()

    def action_curves(self) -> None:
        found = kinds(self._view.curves if self._view else ())
        if found and self.tabs.active == "tab-curves":
            self._kind = text.next_of(found, self._shown_kind(found))
            self._draw()
        self.show_tab("tab-curves")

    def action_model(self) -> None:
        assert self._view is not None
        assert self._view.trained is not None
        self.dashboard.open_model(self._view.trained.folder)

    def action_validate(self) -> None:
        assert self._view is not None
        assert self._view.trained is not None
        open_validation(self, self._view.trained.model)
