"""Collect: what is timed, on which GPUs, and the plan that follows, before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from diode_app import text
from diode_app.actions import Action, import_shipped
from diode_app.data.collection import MAX_PROBLEMS, CollectionPlan, planned, source_kinds
from diode_app.data.threads import in_thread
from diode_app.screens.base import WIDTHS
from diode_app.screens.command_screen import CommandScreen
from diode_app.screens.run import RunScreen
from diode_app.screens.source_picker import SourcePicker
from diode_app.session import Session
from diode_app.widgets.command_form import CommandForm
from diode_app.widgets.modals import Confirm

if TYPE_CHECKING:
    from diode_engine.store import Store

_BAR = 16
_NO_PLAN = "No plan yet: a field needs another value."


class CollectScreen(CommandScreen):
    """A form, and the plan that follows it."""

    MODE = COMMAND = "collect"
    NOUN = "collection"
    COUNTS = "#collect-counts"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    ACTIONS = (
        Action("collect.start", "ctrl+g", "Start", "Start this collection as a run.",
               "{command}"),
        Action("collect.pick", "p", "Sources", "Choose sources and their parameters."),
        Action("collect.defaults", "d", "Defaults", "Set all fields to their defaults."),
        import_shipped("collect"),
    )  # fmt: skip
    DEFAULT_CSS = """
    CollectScreen {
        #collect-parts { height: 1fr; }
        #collect-plan { border-title-color: $primary; border: round $panel; padding: 0 1; }
        #collect-gpus { color: $text-warning; display: none; }
        #collect-counts { text-style: bold; }
        #collect-plan Button { margin-top: 1; }
        &.-narrow #collect-parts { layout: vertical; }
        &.-narrow #collect-plan { height: auto; max-height: 10; }
        &.-narrow #collect-plan Button { margin-top: 0; }
        &.-wide #collect-plan { width: 2fr; height: 1fr; }
        &.-wide FieldRows { width: 3fr; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._plan: CollectionPlan | None = None

    def body(self) -> ComposeResult:
        with Horizontal(id="collect-parts"):
            checks = {"gpu": self._check_gpus, "problems": _check_problems}
            yield CommandForm("collect", checks=checks)
            with VerticalScroll(id="collect-plan", can_focus=False) as panel:
                panel.border_title = "Plan"
                yield Static(id="collect-gpus", markup=False)
                yield Static("Counting ...", id="collect-counts", markup=False)
                yield Static(id="collect-shares", markup=False)
                yield Button("Start (^g)", id="collect-start", action="screen.start", compact=True)

    # The plan

    @property
    def _gpus(self) -> int | None:
        """How many GPUs are here; None while that is not known."""
        return None if self.session.here is None else self.session.here.count

    def store_looked(self) -> None:
        gpus = self._gpus
        says = ""
        if gpus is None:
            says = "Looking for GPUs ..."
        elif not gpus:
            says = "✗ No GPU here: copy the command (y) to where one is, or import timings (i)."
        if self.query_one("#collect-gpus", Static).content != says:
            self.put("#collect-gpus", says)
            self.query_one("#collect-gpus").display = bool(says)
            self.form.complain({})
            if self.session.store.last.ready:
                self.reload()

    def reader(self) -> Callable[[Store], CollectionPlan] | None:
        if self.form.mistakes:
            return None
        spec, gpus = self.form.spec, self._gpus or 0
        return lambda store: planned(store, spec, gpus)

    def show(self, snapshot: CollectionPlan) -> None:
        self._plan = snapshot
        self.form.complain(snapshot.mistakes)
        if snapshot.summary is None:
            self.show_nothing()
            return
        plan, gpus = snapshot.summary, snapshot.gpus
        where = f"{text.quantity(gpus, 'GPUs')}{'' if self._gpus else ' like an H200'}"
        self.put(
            "#collect-counts",
            f"{plan['problems']:,} problems · {plan['candidates']:,} candidates\n"
            f"up to {plan['compiles']:,} compiles · about {text.seconds(plan['seconds'])} on "
            f"{where}",
        )
        if self.has_class("-wide"):
            kinds = ("operator", "by_op"), ("type", "by_type"), ("selection", "by_selection")
            parts = [_shares(what, plan[group]) for what, group in kinds]
            parts.append(Content(f"Time by {plan['known_from']}."))
            parts.append(Content("What the store has of this GPU and software is not timed again."))
            shown = Content("\n\n").join(parts)
        else:
            shown = Content("\n").join([_line(plan["by_op"]), _line(plan["by_type"])])
        self.put("#collect-shares", shown)

    def show_nothing(self) -> None:
        self._plan = None
        self.put("#collect-counts", _NO_PLAN)
        self.put("#collect-shares", "")

    def on_resize(self) -> None:
        super().on_resize()
        if self._plan is not None:
            self.show(self._plan)

    # Actions

    async def may_start(self) -> bool:
        if self._gpus != 0:
            return True
        question = (
            "There is no GPU here, and a collection needs one. The command (y) can be run on a "
            "machine that has one. Import the timings that come with Diode instead?"
        )
        if await self.app.push_screen_wait(Confirm(question, yes="Import")):
            await self.app.run_action("app.import_shipped(True)")
        return False

    def page_of(self, run: int) -> RunScreen:
        return RunScreen(self.session, run)

    def action_pick(self) -> None:
        async def pick() -> None:
            kinds = await in_thread(source_kinds, "sources")
            field = self.form.field("source")
            chosen = await self.app.push_screen_wait(SourcePicker(kinds, field.value))
            if chosen is not None:
                field.value = chosen

        self.run_worker(pick(), group="acting", exit_on_error=False)

    def _check_gpus(self, given: str) -> str | None:
        numbers = [int(word) for word in given.split() if word.isdecimal()]
        count = self._gpus
        if count and max(numbers, default=0) >= count:
            return f"There is no GPU {max(numbers)} here; the last one is {count - 1}."
        return None


def _check_problems(given: str) -> str | None:
    if given.isdecimal() and int(given) > MAX_PROBLEMS:
        return f"At most {MAX_PROBLEMS:,} here; the command (y) takes more."
    return None


def _shares(what: str, shares: Mapping[str, Mapping[str, Any]]) -> Content:
    """Return a table with bars for the numbers of candidates."""
    most = max((share["candidates"] for share in shares.values()), default=1) or 1
    width = max(len(what), *map(len, shares))
    head = f"{what:<{width}} {'problems':>9} {'candidates':>11}"
    rows = [
        Content.assemble(
            f"{name:<{width}} {share['problems']:>9,} {share['candidates']:>11,} ",
            (text.bar(share["candidates"] / most, _BAR).rstrip("░"), "$primary"),
        )
        for name, share in shares.items()
    ]
    return Content("\n").join([Content.styled(head, "$text-muted"), *rows])


def _line(shares: Mapping[str, Mapping[str, Any]]) -> Content:
    return Content(", ".join(f"{share['problems']:,} {name}" for name, share in shares.items()))
