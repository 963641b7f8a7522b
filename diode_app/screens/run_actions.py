"""What can be done with a run, from the list and from its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from diode_app.actions import Action
from diode_app.data.run_results import pin
from diode_app.screens.labels import WORDS, Labels
from diode_app.widgets.work import acts
from diode_engine.runs import look, repeat, resume
from diode_engine.store import Store

RUN_ACTIONS = (
    Action("runs.pin", "p", "Pin", "Make this training the one that others are compared with, or "
           "not: it has the tag diode/baseline.",
           "diode-engine runs tag {run} diode/baseline --store={store}", writes=True),
    Action("runs.cancel", "c", "Cancel", "Stop this run; what it has written stays.",
           "diode-engine runs cancel {run} --store={store}", writes=True),
    Action("runs.resume", "r", "Run again", "Continue a run that failed, died or was cancelled, "
           "or start the command of one that is done once more.", "{again}", writes=True),
    Action("runs.tag", "a", "Tags", "Write this run's tags.",
           "diode-engine runs tag {run} TAG --store={store}", writes=True),
    Action("runs.note", "n", "Note", "Write a note on this run.",
           "diode-engine runs note {run} NOTE --store={store}", writes=True),
)  # fmt: skip


_LIVE = ("queued", "running", "cancelling")
_RUN_ACTIONS = frozenset(action.name for action in RUN_ACTIONS)


class RunActions(Labels):
    """A mixin for a screen that has a run chosen: `run` is its number, `run_record` what is known
    of it. The actions are offered where both are known."""

    @property
    def run(self) -> int | None:
        raise NotImplementedError

    @property
    def run_record(self) -> Mapping[str, Any] | None:
        """The run as `Status.to_dict` has it, and whether it `is_resumed`; None where there is
        none, or it is not read yet."""
        raise NotImplementedError

    def values(self) -> Mapping[str, object]:
        known, again = self.run_record or {}, None
        if known.get("state") == "done":
            again = None if known["command"] is None else tuple(known["command"])
        elif known:
            store = f"--store={self.session.location}"
            again = ("diode-engine", "runs", "resume", str(self.run), store)
        return {"run": self.run, "again": again}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        may = super().check_action(action, parameters)
        if action not in _RUN_ACTIONS or not may:
            return may
        known = self.run_record
        if known is None:
            return False
        is_over = known["state"] not in _LIVE
        has_command = known["command"] is not None and known["directory"] is not None
        offered: dict[str, bool] = {
            "cancel": not is_over,
            "resume": is_over and has_command and not known["is_resumed"],
            "pin": known["kind"] == "train",
        }
        return offered.get(action, True)

    @property
    def _chosen(self) -> int:
        assert self.run is not None, "the actions are offered for a run"
        return self.run

    @acts(asks=False)
    async def action_pin(self) -> str:
        run = self._chosen
        if await self.session.store.write(lambda store: pin(store, run)):
            return f"Run {run} is what others are compared with."
        return f"Run {run} is no longer pinned."

    @acts(writes=True)
    async def action_cancel(self) -> str | None:
        run = self._chosen
        state = await self.session.store.read(lambda store: look(store, run).state)
        if state.ended:
            return f"Run {run} has ended already ({state})."
        if not await self.confirm(
            f"Stop run {run}? What it has written stays, and it can be resumed.", "Stop it"
        ):
            return None
        # A process of its own: it may take twenty seconds, and is not to end with us.
        await self.session.store.command(
            ["runs", "cancel", str(run), f"--store={self.session.location}"]
        )
        return None  # a notification tells the end of every run

    @acts(writes=True)
    async def action_resume(self) -> str | None:
        run, known = self._chosen, self.run_record
        assert known is not None
        is_done = known["state"] == "done"
        question = (
            f"Start the command of run {run} once more, as a new run?"
            if is_done
            else f"Continue run {run}? A new run does it."
        )
        if not await self.confirm(question, "Start it" if is_done else "Continue"):
            return None
        start = repeat if is_done else resume
        started = await self.session.store.write(lambda store: start(store, run).id)
        self.dashboard.open_run(started)
        return f"Run {started} {'does the same as' if is_done else 'continues'} run {run}."

    def action_tag(self) -> None:
        run, store = self._chosen, self.session.store
        self.edit_label(
            "tags",
            f"run {run}",
            lambda: store.read(lambda opened: " ".join(opened.run(run).tags)),
            lambda given: store.write(partial(_set_tags, run, given.split())),
            hint=WORDS,
        )

    def action_note(self) -> None:
        run, store = self._chosen, self.session.store
        self.edit_label(
            "note",
            f"run {run}",
            lambda: store.read(lambda opened: opened.run(run).note or ""),
            lambda note: store.write(lambda opened: opened.set_note(run, note or None)),
        )


def _set_tags(run: int, words: Sequence[str], store: Store) -> None:
    now = store.run(run).tags
    store.tag(run, *(word for word in words if word not in now))
    store.untag(run, *(tag for tag in now if tag not in words))
