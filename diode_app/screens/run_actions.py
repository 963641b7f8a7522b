"""What can be done with a run, from the list and from its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diode_app.actions import Action
from diode_app.screens.base import DiodeScreen
from diode_app.widgets.modals import Prompt

if TYPE_CHECKING:
    from diode_engine.store import RunState, Store

RUN_ACTIONS = (
    Action("runs.cancel", "c", "Cancel", "Stop this run; what it has written stays.",
           "diode-engine runs cancel {run} --store={store}"),
    Action("runs.resume", "r", "Resume", "Continue a run that failed, died or was cancelled.",
           "diode-engine runs resume {run} --store={store}"),
    Action("runs.retry", "t", "Retry", "Start this run's command once more, as a new run.",
           "{command}"),
    Action("runs.tag", "a", "Tags", "Write this run's tags.",
           "diode-engine runs tag {run} TAG --store={store}"),
    Action("runs.note", "n", "Note", "Write a note on this run.",
           "diode-engine runs note {run} NOTE --store={store}"),
)  # fmt: skip


_LIVE = ("queued", "running", "cancelling")
_RUN_ACTIONS = frozenset(action.name for action in RUN_ACTIONS) | {"pin"}


class RunActions(DiodeScreen):
    """A mixin for a screen that has a run chosen: `run` is its number, `at_hand` what can be done
    with it."""

    @property
    def run(self) -> int | None:
        raise NotImplementedError

    @property
    def at_hand(self) -> Mapping[str, Any] | None:
        """The run as `Status.to_dict` has it; None where there is none, or it is not read yet."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action not in _RUN_ACTIONS:
            return super().check_action(action, parameters)
        known = self.at_hand
        if known is None:
            return False
        over = known["state"] not in _LIVE
        again = over and known["command"] is not None and known["directory"] is not None
        offered: dict[str, bool] = {
            "cancel": not over,
            "resume": again and known["state"] != "done",
            "retry": again,
            "pin": known["kind"] == "train",
        }
        return offered.get(action, True)

    def _chosen(self) -> int | None:
        if self.run is None:
            self.notify("There is no run chosen.")
        return self.run

    def action_cancel(self) -> None:
        run = self._chosen()
        if run is None:
            return

        def state_of(store: Store) -> RunState:
            from diode_engine.runs import look

            return look(store, run).state

        async def cancel() -> str | None:
            self.session.store.must_be_writable()
            state = await self.session.store.read(state_of)
            if state.ended:
                return f"Run {run} has ended already ({state})."
            if not await self.confirmed(
                f"Stop run {run}? What it has written stays, and it can be resumed.", "Stop it"
            ):
                return None
            self.notify(f"Run {run} is asked to stop ...")
            # A process of its own: it may take twenty seconds, and is not to end with us.
            await self.session.store.command(
                ["runs", "cancel", str(run), f"--store={self.session.location}"]
            )
            return f"Run {run} has stopped."

        self.act(cancel, f"cancels run {run}")

    def action_resume(self) -> None:
        if (run := self._chosen()) is None:
            return

        def resume(store: Store) -> int:
            from diode_engine.runs import resume

            return resume(store, run).id

        async def go_on() -> str | None:
            self.session.store.must_be_writable()
            if not await self.confirmed(f"Continue run {run}? A new run does it.", "Continue"):
                return None
            started = await self.session.store.write(resume)
            return f"Run {started} continues run {run}."

        self.act(go_on, f"resumes run {run}")

    def action_retry(self) -> None:
        if (run := self._chosen()) is None:
            return

        def once_more(store: Store) -> int:
            from diode_engine.runs import repeat

            return repeat(store, run).id

        async def retry() -> str | None:
            self.session.store.must_be_writable()
            if not await self.confirmed(
                f"Start the command of run {run} once more, as a new run?", "Start it"
            ):
                return None
            started = await self.session.store.write(once_more)
            return f"Run {started} does the same as run {run}."

        self.act(retry, f"repeats run {run}")

    def action_tag(self) -> None:
        if (run := self._chosen()) is None:
            return

        async def tag() -> str | None:
            self.session.store.must_be_writable()
            before = await self.session.store.read(lambda store: store.run(run).tags)
            given = await self.app.push_screen_wait(
                Prompt(f"Tags of run {run}, with spaces between", " ".join(before))
            )
            if given is None:
                return None
            after = tuple(dict.fromkeys(given.split()))

            def write(store: Store) -> None:
                store.tag(run, *(tag for tag in after if tag not in before))
                store.untag(run, *(tag for tag in before if tag not in after))

            def back(store: Store) -> None:
                store.untag(run, *(tag for tag in after if tag not in before))
                store.tag(run, *(tag for tag in before if tag not in after))

            async def take_back() -> str:
                await self.session.store.write(back)
                return f"Run {run} has the tags {' '.join(before) or '(none)'} again."

            await self.session.store.write(write)
            self.session.undo.add(f"the tags of run {run}", take_back)
            return f"Run {run} has the tags {' '.join(after)}." if after else "It has no tags."

        self.act(tag, f"tags run {run}")

    def action_note(self) -> None:
        if (run := self._chosen()) is None:
            return

        async def note() -> str | None:
            self.session.store.must_be_writable()
            before = await self.session.store.read(lambda store: store.run(run).note)
            given = await self.app.push_screen_wait(Prompt(f"Note on run {run}", before or ""))
            if given is None:
                return None
            await self.session.store.write(lambda store: store.set_note(run, given or None))
            return f"The note on run {run} is written."

        self.act(note, f"notes on run {run}")
