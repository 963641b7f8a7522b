"""Help, in front of the screen: the screen's keys, what its columns mean, and everything else, with
a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.keys import format_key
from textual.screen import Screen
from textual.widgets import Input, Static

from diode_app.actions import Action, Actions
from diode_app.screens.base import DiodeScreen
from diode_app.screens.places import PLACES, sections
from diode_app.session import Session
from diode_app.widgets.modals import DialogKeys, Modal
from diode_app.widgets.styling import set_text
from diode_app.widgets.table import PagedTable

_WORDS = (
    "A capital letter goes to a screen, a small one acts on it, a digit shows a tab; : finds all "
    "that can be done, and runs, models, problems and settings. y shows and copies the command "
    "that does the same without the dashboard. Keys can be changed on Settings (S), by the names "
    "at the end of the lines."
)


@dataclass(frozen=True)
class HelpLine:
    """A line of the help: a key or a column, its name, and what it does or means; `name` is the id
    by which users change its key."""

    key: str
    label: str
    meaning: str
    name: str = ""

    def has_words(self, words: Sequence[str]) -> bool:
        whole = f"{self.key} {self.label} {self.meaning} {self.name}".lower()
        return all(word in whole for word in words)


Section = tuple[str, list[HelpLine]]


class Help(Actions, Modal[None]):
    """In front of the screen `behind`."""

    HELP_TITLE = "Help"
    ACTIONS = (
        Action("help.close", "escape", "Close", "Back to the screen.", does="dismiss"),
        *(
            Action(f"help.{key}", key, label, f"{label} in the help.", footer=False,
                   does=f"scroll('{way}')")
            for key, way, label in (
                ("down", "down", "Down"), ("up", "up", "Up"),
                ("pagedown", "page_down", "Page down"),
                ("pageup", "page_up", "Page up"),
            )
        ),
    )  # fmt: skip
    DEFAULT_CSS = """
    Help {
        align: center middle;
        #help-box {
            width: 96%; max-width: 116; height: 90%; border: round $primary;
            background: $surface; padding: 0 1; border-title-color: $primary;
        }
        #help-box Input { background: $panel; margin-bottom: 1; }
        #help-foot { height: 1; color: $text-muted; }
    }
    """

    def __init__(self, session: Session, behind: Screen[Any]) -> None:
        super().__init__()
        self._sections = _sections(session, behind)

    def compose(self) -> ComposeResult:
        with Vertical(id="help-box") as box:
            box.border_title = "Help"
            yield Input(placeholder="Search: a key, a column, a word", compact=True)
            yield VerticalScroll(can_focus=False)
            yield DialogKeys(
                ("Escape closes it", "dismiss"), ("↑ ↓ move it", None), ("letters search", None),
                id="help-foot",
            )  # fmt: skip

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self.call_after_refresh(self._fill)

    async def _fill(self) -> None:
        # After the frame is shown, which is laid out more than once. A widget for each section: of
        # those out of sight only the height is computed.
        texts = [Static(text) for text in self._texts()]
        for text in texts:
            text.display = bool(text.content)
        await self.query_one(VerticalScroll).mount_all(texts)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value == "?":  # the key that opens the help closes it
            self.dismiss()
            return
        scroll = self.query_one(VerticalScroll)
        for widget, text in zip(scroll.query_children(Static), self._texts(), strict=False):
            widget.display = bool(text)
            set_text(widget, text)
        scroll.scroll_home(animate=False)

    def _texts(self) -> list[Content]:
        """Return what is shown of the words before the sections, and of each section."""
        words = self.query_one(Input).value.lower().split()
        texts = [Content("" if words else _WORDS)]
        for title, entries in self._sections:
            found = [entry for entry in entries if entry.has_words(words)]
            text = _written(title, found) if found else Content("")
            texts.append(Content("\n") + text if found and any(texts) else text)
        if not any(texts):
            texts[0] = Content("Nothing here has these words: no key, no action and no column.")
        return texts

    def action_scroll(self, way: str) -> None:
        getattr(self.query_one(VerticalScroll), f"scroll_{way}")(animate=False)


def _sections(session: Session, behind: Screen[Any]) -> list[Section]:
    """Return what is on the screen first, then what works everywhere, then the other screens."""
    keys = session.settings.keys

    def entries(actions: Iterable[Action]) -> list[HelpLine]:
        return [
            HelpLine(_display(keys.get(a.id, a.key)), a.label, a.tooltip, a.id) for a in actions
        ]

    here: list[Section] = []
    if isinstance(behind, DiodeScreen):
        title = behind.HELP_TITLE or next(p.title for p in PLACES if p.mode == behind.MODE)
        here.append((f"Here: {title}", entries(behind.ACTIONS)))
        widgets = {  # one of each kind; a table of rows at hand is a table
            getattr(node, "HELP_TITLE", ""): getattr(node, "ACTIONS", ())
            for node in behind.walk_children()
        }
        here += [(f"Here: {title}", entries(of)) for title, of in widgets.items() if title and of]
        here += _columns(behind)
    everywhere: tuple[Action, ...] = getattr(behind.app, "ACTIONS", ())
    shown = {title.removeprefix("Here: ") for title, _ in here}
    others = [(title, entries(actions)) for title, actions in sections() if title not in shown]
    return [*here, ("Everywhere", entries(everywhere)), *others]


def _columns(screen: Screen[Any]) -> Iterable[Section]:
    """Return what the columns of the visible tables mean."""
    for table in screen.query(PagedTable):
        if table.region:
            found = [
                HelpLine(column.label, "", column.meaning)
                for column in table.columns
                if column.meaning
            ]
            if found:
                yield f"Columns of the {table.what}", found


def _written(title: str, entries: Sequence[HelpLine]) -> Content:
    width = max(9, *(len(entry.key) + 2 for entry in entries))
    lines = [
        Content.assemble(
            (f"  {entry.key:<{width}}", "$primary bold"),
            f"{entry.label:<14} " if entry.label else "",
            f"{entry.meaning} ",
            (entry.name, "$text-muted"),
        )
        for entry in entries
    ]
    return Content("\n").join([Content.styled(title, "bold underline"), *lines])


def _display(key: str) -> str:
    return " ".join(format_key(part) for part in key.split(","))
