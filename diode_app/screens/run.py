"""The page of a run: how far it is, its curves, its log, and all that is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalGroup, VerticalScroll
from textual.content import Content
from textual.widgets import Static, TabbedContent, TabPane

from diode_app import text
from diode_app.actions import Action
from diode_app.data.runs import Curves, Gpu, RunView, run_view
from diode_app.screens.run_actions import RUN_ACTIONS, RunActions
from diode_app.session import Session
from diode_app.widgets.badge import badge
from diode_app.widgets.log_pane import LogPane
from diode_app.widgets.meter import Meter
from diode_app.widgets.plot import Line, Lines, Plot

if TYPE_CHECKING:
    from diode_engine.store import Store

_HOT_C = 85  # where a GPU is shown as warm


class RunScreen(RunActions):
    """`run` is its number."""

    MODE = "runs"
    HELP_TITLE = "A run"
    ACTIONS = (
        Action("run.back", "escape", "Back", "To the list of runs."),
        *RUN_ACTIONS,
        Action("run.log-scale", "l", "Log scale", "Values on a logarithmic axis, or not."),
        Action("run.curves", "v", "Next curves", "Another kind of curve.", footer=False),
        Action("run.follow", "f", "Follow", "Show the log.",
               "diode-engine runs follow {run} --store={store}", footer=False),
        Action("run.show", "i", "Facts", "All that is known of it.",
               "diode-engine runs show {run} --store={store}", footer=False),
    )  # fmt: skip
    DEFAULT_CSS = """
    RunScreen {
        #run-title { height: auto; max-height: 3; padding: 0 1; text-style: bold; }
        #run-command { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
        TabbedContent { height: 1fr; }
        TabPane { padding: 0; }
        #run-gpus { height: auto; }
    }
    """

    def __init__(self, session: Session, run: int) -> None:
        super().__init__(session)
        self._run = run
        self._view: RunView | None = None
        self._log_scale = False
        self._group: str | None = None

    @property
    def run(self) -> int:
        return self._run

    def body(self) -> ComposeResult:
        yield Static(f"Run {self._run}", id="run-title")
        yield Static(id="run-command", markup=False)
        yield Meter("done", id="run-progress")
        yield VerticalGroup(id="run-gpus")
        with TabbedContent(initial="tab-curves"):
            with TabPane("Curves", id="tab-curves"):
                yield Plot("This run has drawn no curves.")
            with TabPane("Log", id="tab-log"):
                yield LogPane()
            with TabPane("Facts", id="tab-facts"), VerticalScroll():
                yield Static(id="run-facts", markup=False)

    def reader(self) -> Callable[[Store], RunView]:
        run = self._run
        return lambda store: run_view(store, run)

    def values(self) -> Mapping[str, object]:
        command = None if self._view is None else self._view.status.run.command
        return {"run": self._run, "command": command}

    def show(self, snapshot: RunView) -> None:
        self._view = snapshot
        status = snapshot.status
        run = status.run
        why = status.why or run.message
        self.put(
            "#run-title",
            Content.assemble(
                f"Run {run.id}, {run.kind}  ",
                badge(str(status.state)),
                f"  {text.seconds(status.seconds)}" + (f"  {why}" if why else ""),
            ),
        )
        command = snapshot.command
        self.put("#run-command", "" if command is None else f"$ {command}")
        rate = "" if not snapshot.rate else f"{snapshot.rate:.3g} timings/s  "
        left = (
            "" if snapshot.left_seconds is None else f"{text.seconds(snapshot.left_seconds)} left"
        )
        failed = text.pairs(snapshot.failures)
        done = snapshot.fraction
        self.query_one(Meter).show(
            done,
            "" if done is None else f"{100 * done:.0f} %",
            f"{rate}{left}" + (f"  failed: {failed}" if failed else ""),
        )
        self._show_gpus(snapshot.gpus)
        self._draw()
        self.query_one(LogPane).follow(None if run.log is None else Path(run.log))
        width = max((len(name) for name, _ in snapshot.facts), default=0)
        self.put(
            "#run-facts", "\n".join(f"{name:<{width}}  {value}" for name, value in snapshot.facts)
        )

    def _show_gpus(self, gpus: tuple[Gpu, ...]) -> None:
        group = self.query_one("#run-gpus", VerticalGroup)
        meters = list(group.query(Meter))
        if len(meters) != len(gpus):
            group.remove_children()
            meters = [Meter(f"GPU {gpu.number}") for gpu in gpus]
            group.mount_all(meters)
        for meter, gpu in zip(meters, gpus, strict=True):
            heat = gpu.temperature_c
            words = [
                f"{gpu.timings:,} timings",
                "" if gpu.clock_mhz is None else f"{gpu.clock_mhz} MHz",
                "" if gpu.power_w is None else f"{gpu.power_w:.0f} W",
                f"held back: {', '.join(gpu.held_back)}" if gpu.held_back else "",
            ]
            meter.show(
                None if heat is None else heat / 100,
                "" if heat is None else f"{heat} °C",
                "  ".join(word for word in words if word),
                colour="$warning" if heat is not None and heat >= _HOT_C else "$success",
            )

    def _draw(self) -> None:
        if self._view is None:
            return
        groups = _groups(self._view.curves)
        if self._group not in groups:
            self._group = next(iter(groups), None)
        names = groups.get(self._group or "", [])
        self.query_one(Plot).show(
            Lines(
                [Line(name, *self._view.curves[name]) for name in names],
                title=self._group or "",
                x_label="step",
                log_y=self._log_scale,
            )
        )

    # Actions

    def action_back(self) -> None:
        self.dismiss()

    def action_log_scale(self) -> None:
        self._log_scale = not self._log_scale
        self._draw()

    def action_curves(self) -> None:
        groups = list(_groups(self._view.curves if self._view else {}))
        if groups:
            at = groups.index(self._group) if self._group in groups else -1
            self._group = groups[(at + 1) % len(groups)]
            self._draw()

    def action_follow(self) -> None:
        self.query_one(TabbedContent).active = "tab-log"

    def action_show(self) -> None:
        self.query_one(TabbedContent).active = "tab-facts"


def _groups(curves: Curves) -> dict[str, list[str]]:
    """The curves that share an axis: those whose names end alike, such as `network/loss` and
    `trees/loss`."""
    groups: dict[str, list[str]] = {}
    for name in curves:
        groups.setdefault(name.rpartition("/")[2], []).append(name)
    return groups
