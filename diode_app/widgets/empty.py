"""What a screen shows while there is nothing else to show: what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.content import Content
from textual.widgets import Button, Static

from diode_app.widgets.styling import COMPACT


@dataclass(frozen=True)
class Step:
    """Something to do next: the action (of the screen or `app.`) behind a button."""

    label: str
    action: str
    why: str = ""
    key: str = ""


IMPORT = Step(
    "Import timings", "app.import_timings", "Those that come with Diode, or a file's.", "i"
)


class EmptyState(VerticalGroup):
    """A title, a sentence, and a button for each next step; it is hidden at first."""

    DEFAULT_CSS = """
    EmptyState {
        padding: 1 2; display: none;
        .empty--title { text-style: bold; }
        .empty--step { height: auto; layout: horizontal; margin-top: 1; }
        .empty--why { width: 1fr; height: auto; padding-left: 2; }
    }
    """

    def __init__(
        self, title: str, sentence: str, steps: Sequence[Step] = (), *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._title = title
        self._sentence = sentence
        self._steps = tuple(steps)

    def compose(self) -> ComposeResult:
        yield Static(self._title, classes="empty--title", markup=False)
        yield Static(self._sentence, markup=False)
        for step in filter(self._can_be_done, self._steps):
            with VerticalGroup(classes="empty--step"):
                key = f" ({step.key})" if step.key else ""
                yield Button(Content(f"{step.label}{key}"), action=step.action,
                             compact=True, classes=COMPACT)  # fmt: skip
                if step.why:
                    yield Static(step.why, classes="empty--why", markup=False)

    def _can_be_done(self, step: Step) -> bool:
        """Whether the step can be done, and not just refused by --read-only."""
        where, _, action = step.action.partition(".")
        node = self.app if where == "app" else self.screen
        is_refused = getattr(node, "is_refused", None)
        return is_refused is None or not is_refused(action)

    async def show_advice(self, title: str, sentence: str, steps: Sequence[Step] = ()) -> None:
        """Show this instead."""
        if (title, sentence, tuple(steps)) == (self._title, self._sentence, self._steps):
            return
        self._title, self._sentence, self._steps = title, sentence, tuple(steps)
        await self.recompose()
