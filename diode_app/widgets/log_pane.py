"""A run's log as it grows; it can be searched."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Log, Static

from diode_app.actions import Action, Actions
from diode_app.data.background import in_thread
from diode_app.data.runs import LOG_BYTES
from diode_app.widgets.filter_box import FilterBox
from diode_app.widgets.styling import set_text
from diode_app.widgets.work import Latest
from diode_engine.runs import Tail

_MAX_LINES = 5000


class _Search(FilterBox):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "All lines")]


class LogPane(Actions, Vertical):
    """Follows the end of a text file; who has scrolled up stays there."""

    DEFAULT_CSS = """
    LogPane {
        height: 1fr;
        Log { height: 1fr; background: $surface; }
    }
    """
    HELP_TITLE = "In a log"
    ACTIONS = (Action("log.search", "slash", "Search", "Show only the lines that hold a text."),)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._path: Path | None = None
        self._tail: Tail | None = None
        self._text = ""
        self._wanted = ""
        self._reading: Latest[str] = Latest(self, self._append, self._say)

    def compose(self) -> ComposeResult:
        yield _Search("text to look for; Escape shows all lines")
        yield Log(max_lines=_MAX_LINES, auto_scroll=True)
        yield Static(id="log-says", classes="line muted", markup=False)

    def on_mount(self) -> None:
        self._tell()

    def focus_rows(self) -> None:
        """Take the focus, so that the log's keys work."""
        self.query_one(Log).focus()

    def follow(self, path: Path | None) -> None:
        """Read what has been written to the file since the last time."""
        if path != self._path:
            self._path, self._text = path, ""
            self._reading.drop()
            self._tail = None if path is None else Tail(path, last=LOG_BYTES)
            self.query_one(Log).clear()
        self._tell()
        if self._tail is not None:
            self._reading.do(partial(in_thread, self._tail.read, "log"), again=True)

    def _append(self, new: str) -> None:
        if not new:
            return
        # A progress bar returns to the start of its line; the last of it counts.
        new = "\n".join(line.rpartition("\r")[2] for line in new.split("\n"))
        self._text = (self._text + new)[-2 * LOG_BYTES :]
        if self._wanted:
            self._fill()
        else:
            log = self.query_one(Log)
            log.write(new, scroll_end=log.is_vertical_scroll_end)
        self._tell()

    def _fill(self) -> None:
        log = self.query_one(Log)
        log.clear()
        lines = self._text.splitlines()
        if self._wanted:
            lines = [line for line in lines if self._wanted.lower() in line.lower()]
        log.write_lines(lines[-_MAX_LINES:])

    def _tell(self) -> None:
        if self._path is None:
            says = "This run has no log: it was started in a terminal, which showed it."
        else:
            says = f"following {self._path}, unless you scroll up"
            if self._wanted:
                says = f"lines with {self._wanted!r} · {says}"
        self._say(says)

    def _say(self, sentence: str) -> None:
        set_text(self.query_one("#log-says", Static), sentence)

    def action_search(self) -> None:
        self.query_one(FilterBox).open()

    def on_filter_box_submitted(self, event: FilterBox.Submitted) -> None:
        event.stop()
        self._wanted = event.text
        self._fill()
        self._tell()
        self.focus_rows()
