"""Collect: what is timed, on which GPUs, and the plan that follows, before it starts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from diode_app import text
from diode_app.actions import Action, import_shipped
from diode_app.data.collection import (
    LAYOUTS,
    MAX_PROBLEMS,
    OPS,
    SPACES,
    TYPES,
    USUAL,
    CollectionPlan,
    PlanView,
    Share,
    planned,
    source_kinds,
    spec_of,
)
from diode_app.data.threads import in_thread
from diode_app.screens.base import WIDTHS, DiodeScreen
from diode_app.screens.run import RunScreen
from diode_app.screens.source_picker import SourcePicker
from diode_app.session import Session
from diode_app.widgets.field_rows import FieldRows
from diode_app.widgets.form import ChoiceField, Field, existing_file, optional, whole_number
from diode_app.widgets.modals import Confirm
from diode_app.widgets.path_completion import complete_path

if TYPE_CHECKING:
    from diode_engine.store import Store

_NONE = "Choose at least one."
_MAX_SEED = 2**31 - 1
_BAR = 16


class CollectScreen(DiodeScreen):
    """A form, and the plan that follows it."""

    MODE = "collect"
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = [(0, "-low"), (40, "-high")]  # noqa: RUF012
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
        self._values: Mapping[str, str] = {}
        self._plan: PlanView | None = None

    def body(self) -> ComposeResult:
        with Horizontal(id="collect-parts"):
            yield FieldRows(
                "Problems",
                Field("source", "Sources", "Where problems are drawn from: names with parameters, "
                      "such as skinny grid:m=1/64; p shows all of them.",
                      hint="a mix of transformers, zoo, log-normal and attention"),
                Field("file", "Files", "A shapeset (as diode-engine capture writes it) or a "
                      "dataset, whose problems are timed. Nothing is drawn then, unless a source "
                      "is named too.", check=_check_files, suggest=complete_path),
                Field("problems", "Problems", "How many distinct problems to draw.",
                      USUAL["problems"], check=whole_number(1, MAX_PROBLEMS)),
                ChoiceField("ops", "Operators", "Only problems of these.", OPS, USUAL["ops"],
                            several=True, check=_one_at_least),
                ChoiceField("dtypes", "Types", "Of the operands; fp32 is without TF32.", TYPES,
                            USUAL["dtypes"], several=True, check=_one_at_least),
                ChoiceField("layouts", "Layouts", "Of the two operands; a Linear layer's forward "
                            "is row/col.", LAYOUTS, USUAL["layouts"], several=True,
                            check=_one_at_least),
                "Candidates of each",
                ChoiceField("search_space", "Space", "EXHAUSTIVE is what Diode chooses among, "
                            "DEFAULT what max-autotune times by itself.", SPACES,
                            USUAL["search_space"]),
                Field("budget", "Budget", "At most this many of each problem: the usual ones "
                      "first, then the model's favourites, random ones, neighbours of the best.",
                      hint="all", check=optional(whole_number(1, 100_000))),
                Field("whole", "Whole", "Time all candidates of this many problems, the first "
                      "ones, whatever the budget is.", USUAL["whole"],
                      check=whole_number(0, MAX_PROBLEMS)),
                "How",
                ChoiceField("direct", "Direct", "Compile each kernel once for many problems and "
                            "launch it directly: faster, within a few percent of Inductor's own.",
                            ("yes",), several=True),
                Field("compiles", "Compiles", "With Direct and a budget: compile at most this "
                      "many kernels for a problem, then time kernels of other problems.",
                      hint="as many as the budget needs",
                      check=optional(whole_number(0, 100_000))),
                Field("gpu", "GPUs", "Their numbers, such as 0 1.", hint="all",
                      check=self._check_gpus),
                Field("seed", "Seed", "Another seed draws other problems.", USUAL["seed"],
                      check=whole_number(0, _MAX_SEED)),
            )  # fmt: skip
            with VerticalScroll(id="collect-plan", can_focus=False) as panel:
                panel.border_title = "Plan"
                yield Static(id="collect-gpus", markup=False)
                yield Static("Counting ...", id="collect-counts", markup=False)
                yield Static(id="collect-shares", markup=False)
                yield Button("Start (^g)", id="collect-start", action="screen.start", compact=True)

    @property
    def form(self) -> FieldRows:
        return self.query_one(FieldRows)

    def body_mounted(self) -> None:
        self._fields_follow()
        self.form.focus_rows()

    # The plan

    @property
    def _gpus(self) -> int | None:
        """How many GPUs are here; None while that is not known."""
        return None if self.session.here is None else self.session.here.count

    def looked(self) -> None:
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
        form = self.form
        if form.mistakes:
            return None
        values, gpus = {**USUAL, **form.values}, self._gpus or 0
        return lambda store: planned(store, values, gpus)

    def show(self, snapshot: CollectionPlan) -> None:
        self._plan = snapshot.plan
        self.form.complain(snapshot.mistakes)
        if snapshot.plan is not None:
            self._show_plan(snapshot.plan)
        else:
            self._no_plan("No plan yet: a field needs another value.")

    def _show_plan(self, plan: PlanView) -> None:
        where = f"{plan.gpus} GPU{'s' if plan.gpus != 1 else ''}"
        if not self._gpus:
            where += " like an H200"
        self.query_one("#collect-counts", Static).update(
            f"{plan.problems:,} problems · {plan.candidates:,} candidates\n"
            f"up to {plan.compiles:,} compiles · about {text.seconds(plan.seconds)} on {where}"
        )
        parts = [_shares("operator", plan.by_op), _shares("type", plan.by_type)]
        if self.has_class("-wide"):
            parts.append(_shares("selection", plan.by_selection))
            parts.append(Content(f"Time by {plan.known_from}."))
            parts.append(Content("What the store has of this GPU and software is not timed again."))
            shown = Content("\n\n").join(parts)
        else:
            lines = [_line(plan.by_op), _line(plan.by_type)]
            shown = Content("\n").join(lines)
        self.query_one("#collect-shares", Static).update(shown)

    def _no_plan(self, says: str) -> None:
        self._plan = None
        self.query_one("#collect-counts", Static).update(says)
        self.query_one("#collect-shares", Static).update("")

    def on_field_changed(self, event: Field.Changed) -> None:
        self._fields_follow()
        if self.form.mistakes:
            self._no_plan("No plan yet: a field needs another value.")
        elif self.session.store.last.ready:
            self.reload()

    def _fields_follow(self) -> None:
        """Hides the limit on compiles where problems do not share kernels."""
        values = self.form
        wanted = bool(values.field("direct").value and values.field("budget").value.strip())
        self.form.field("compiles").display = wanted

    def on_resize(self) -> None:
        super().on_resize()
        if self._plan is not None:
            self._show_plan(self._plan)

    # Actions

    def values(self) -> Mapping[str, object]:
        from diode_engine.runs import command_line

        try:
            spec = spec_of(self.form.values)
        except ValueError:
            return {"command": None}
        return {"command": command_line("collect", spec, self.session.location)}

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

            return start(store, "collect", spec).id

        async def go() -> str | None:
            self.session.store.must_be_writable()
            if self._gpus == 0:
                if await self.confirmed_import():
                    await self.app.run_action("app.import_shipped(True)")
                return None
            counts = self.query_one("#collect-counts", Static).content
            if not await self.confirmed(f"Start this collection?\n{counts}", "Start it"):
                return None
            run = await self.session.store.write(begin)
            self.form.focus_rows()  # who comes back is in no field, so that letters are keys
            self.app.push_screen(RunScreen(self.session, run))
            return f"Run {run} has started; it continues when you leave."

        self.act(go, "starts a collection")

    async def confirmed_import(self) -> bool:
        return await self.app.push_screen_wait(
            Confirm(
                "There is no GPU here, and a collection needs one. The command (y) can be run on a "
                "machine that has one. Import the timings that come with Diode instead?",
                yes="Import",
            )
        )

    def action_pick(self) -> None:
        async def pick() -> None:
            kinds = await in_thread(source_kinds, "sources")
            field = self.form.field("source")
            chosen = await self.app.push_screen_wait(SourcePicker(kinds, field.value))
            if chosen is not None:
                field.value = chosen

        self.run_worker(pick(), group="acting", exit_on_error=False)

    def action_defaults(self) -> None:
        self.form.reset()

    def _check_gpus(self, given: str) -> str | None:
        count = self._gpus
        for word in given.split():
            if not word.isascii() or not word.isdigit():
                return f"{word} is no number of a GPU; they are counted from 0."
            if count and int(word) >= count:
                return f"There is no GPU {word} here; the last one is {count - 1}."
        return None


def _one_at_least(chosen: str) -> str | None:
    return None if chosen else _NONE


def _check_files(given: str) -> str | None:
    try:
        files = shlex.split(given)
    except ValueError:
        return "Its quotes do not match."
    return next(filter(None, map(existing_file, files)), None)


def _shares(what: str, shares: Sequence[Share]) -> Content:
    """A table with bars for the numbers of candidates."""
    most = max((share.candidates for share in shares), default=1) or 1
    width = max(len(what), *(len(share.name) for share in shares))
    head = f"{what:<{width}} {'problems':>9} {'candidates':>11}"
    rows = [
        Content.assemble(
            f"{share.name:<{width}} {share.problems:>9,} {share.candidates:>11,} ",
            (text.bar(share.candidates / most, _BAR).rstrip("░"), "$primary"),
        )
        for share in shares
    ]
    return Content("\n").join([Content.styled(head, "$text-muted"), *rows])


def _line(shares: Sequence[Share]) -> Content:
    return Content(", ".join(f"{share.problems:,} {share.name}" for share in shares))
