"""Collect: what is timed, on which GPUs, and the plan that follows, before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.content import Content

from diode_app import text
from diode_app.actions import Action, import_timings
from diode_app.data.collection import (
    MAX_PROBLEMS,
    CollectionPlan,
    complete_source,
    describe_sources,
    planned,
)
from diode_app.screens.base import Reader
from diode_app.screens.command_screen import CommandScreen
from diode_app.session import Session
from diode_app.widgets.command_form import CommandForm
from diode_app.widgets.modals import Confirm, Notice

_BAR = 16


class CollectScreen(CommandScreen):
    """A form, and the plan that follows it."""

    MODE = COMMAND = "collect"
    NOUN = "collection"
    ACTIONS = (
        Action("collect.start", "ctrl+g", "Start", "Start this collection as a run.",
               "{command}", writes=True),
        Action("collect.pick", "p", "Sources", "What can be drawn, with which parameters."),
        Action("collect.defaults", "d", "Defaults", "Set all fields to their defaults."),
        import_timings("collect"),
    )  # fmt: skip

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._plan: CollectionPlan | None = None
        self._says = ""  # of the GPUs here

    def make_form(self) -> CommandForm:
        checks = {"gpu": self._check_gpus, "problems": _check_problems}
        return CommandForm("collect", checks=checks, suggest={"source": complete_source})

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
        if says != self._says:
            self._says = says
            self.put("#command-warning", says)
            self.query_one("#command-warning").display = bool(says)
            self.form.complain({})
            self.reload()

    def reader(self) -> Reader[CollectionPlan]:
        spec, gpus = self.form.spec, self._gpus or 0
        return lambda store: planned(store, spec, gpus)

    def show(self, snapshot: CollectionPlan) -> None:
        self._plan = snapshot
        self.form.complain(snapshot.mistakes)
        if snapshot.summary is None:
            self.show_plan()
            return
        plan, gpus = snapshot.summary, snapshot.gpus
        where = f"{text.quantity(gpus, 'GPUs')}{'' if self._gpus else ' like an H200'}"
        counts = (
            f"{text.quantity(plan['problems'], 'problems')} · {plan['candidates']:,} candidates\n"
            f"up to {plan['compiles']:,} compiles · about {text.seconds(plan['seconds'])} on "
            f"{where}"
        )
        if self.has_class("-wide"):
            kinds = ("operator", "by_op"), ("type", "by_type"), ("selection", "by_selection")
            parts = [_shares(what, plan[group]) for what, group in kinds]
            parts.append(Content(f"Time by {plan['known_from']}."))
            parts.append(Content("What the store has of this GPU and software is not timed again."))
            shown = Content("\n\n").join(parts)
        else:
            shown = Content("\n").join([_line(plan["by_op"]), _line(plan["by_type"])])
        self.show_plan(counts, shown)

    def on_resize(self) -> None:
        if self._plan is not None and not self.form.mistakes:
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
            await self.app.run_action("app.import_timings(True)")
        return False

    def action_pick(self) -> None:
        words = "Write some into the field, with a blank between; none: the first four.\n\n"
        self.app.push_screen(Notice("Where problems are drawn from", words + describe_sources()))

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
