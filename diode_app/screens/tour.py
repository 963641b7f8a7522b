"""The tour: what Diode does, in five steps."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Grid
from textual.screen import ModalScreen
from textual.widgets import Static

from diode_app.actions import Action, Actions
from diode_app.widgets.dialog_keys import DialogKeys

STEPS = (
    ("Timings", "torch.compile turns a matrix multiplication into one of many kernels. Diode "
     "times candidates on a GPU once and keeps every time in a store, one file. Without a GPU, "
     "import the timings that come with it: key i on Home.",
     "diode-engine data import datasets/*/*.msgpack.zst"),
    ("A model", "A model learns to predict a kernel's time from the problem, the kernel and the "
     "GPU. A training is a run: it has a process of its own and continues when you leave.",
     "diode-engine train"),
    ("How well it chooses", "Validation has the model choose for problems that it has not seen. "
     "Efficiency is the best measured time divided by the chosen kernel's: 1 is perfect.",
     "diode-engine validate"),
    ("In use", "The registry keeps every version. The default of a GPU is what torch.compile "
     "takes there, after `import diode_engine`.",
     "diode-engine models list"),
    ("Watching", "Runs (R) shows all that works or has worked, from any machine that opens the "
     "store. y shows the command that does the same; ? shows all keys.",
     "diode-engine runs list"),
)  # fmt: skip


class Tour(Actions, ModalScreen[None]):
    """One step on each page."""

    DEFAULT_CSS = """
    Tour {
        align: center middle;
        Grid {
            width: 72; max-width: 96%; height: auto; border: round $primary;
            background: $surface; padding: 1 2; grid-size: 1; grid-rows: auto; grid-gutter: 1 0;
        }
        #tour-title { text-style: bold; }
        #tour-command { color: $primary; }
        #tour-foot { color: $text-muted; }
    }
    """
    ACTIONS = (
        Action("tour.next", "enter,right,space", "Next", "The next step."),
        Action("tour.back", "left", "Back", "The step before."),
        Action("tour.leave", "escape,q", "Leave", "Back to the screen."),
    )

    def __init__(self) -> None:
        super().__init__()
        self._step = 0

    def compose(self) -> ComposeResult:
        with Grid():
            yield Static(id="tour-title", markup=False)
            yield Static(id="tour-text", markup=False)
            yield Static(id="tour-command", markup=False)
            yield DialogKeys(
                ("Enter goes on", "next"), ("← goes back", "back"), ("Escape leaves", "leave"),
                id="tour-foot",
            )  # fmt: skip

    def on_mount(self) -> None:
        self._show()

    def _show(self) -> None:
        title, says, command = STEPS[self._step]
        self.query_one("#tour-title", Static).update(f"{self._step + 1} of {len(STEPS)}  {title}")
        self.query_one("#tour-text", Static).update(says)
        self.query_one("#tour-command", Static).update(f"$ {command}")

    def action_next(self) -> None:
        if self._step + 1 == len(STEPS):
            self.dismiss()
        else:
            self._step += 1
            self._show()

    def action_back(self) -> None:
        self._step = max(0, self._step - 1)
        self._show()

    def action_leave(self) -> None:
        self.dismiss()
