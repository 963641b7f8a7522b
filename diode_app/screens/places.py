"""The places to go to from anywhere: one line for each screen. A capital letter goes to a screen,
small letters are for actions on it."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from diode_app.actions import Action


@dataclass(frozen=True)
class Place:
    """A screen: its mode, its key, its label in the bar (None: not there), what it is for, and its
    class (`module:Class`), which is imported when the screen is first opened."""

    mode: str
    key: str
    label: str | None
    title: str
    target: str

    def load(self) -> Any:
        """Return the screen's class; it is made with a session."""
        return resolve_name(self.target)

    @property
    def action(self) -> Action:
        return Action(
            f"app.{self.mode}", self.key, self.label or self.title,
            f"Go to {self.title}.".replace("?.", "?"),
            footer=False, does=f"go('{self.mode}')",
        )  # fmt: skip


PLACES = (
    Place("home", "H", "Home", "Home", "diode_app.screens.home:HomeScreen"),
    Place("programs", "P", "Programs", "Programs", "diode_app.screens.programs:ProgramsScreen"),
    Place("runs", "R", "Runs", "Runs", "diode_app.screens.runs:RunsScreen"),
    Place("collect", "C", "Collect", "Collect", "diode_app.screens.collect:CollectScreen"),
    Place("data", "D", "Data", "Data", "diode_app.screens.data:DataScreen"),
    Place("ask", "W", "Ask", "What would it choose?", "diode_app.screens.ask:AskScreen"),
    Place("train", "T", "Train", "Train", "diode_app.screens.train:TrainScreen"),
    Place("validate", "V", "Validate", "Validate", "diode_app.screens.validate:ValidateScreen"),
    Place("models", "M", "Models", "Models", "diode_app.screens.models:ModelsScreen"),
    Place("sql", "Q", None, "SQL", "diode_app.screens.sql:SqlScreen"),
    Place("settings", "S", None, "Settings", "diode_app.screens.settings:SettingsScreen"),
    Place("about", "A", None, "About", "diode_app.screens.about:AboutScreen"),
)
# What works everywhere.
APP_ACTIONS = (
    *(place.action for place in PLACES),
    Action("app.palette", "colon", "Commands", "All that can be done here, by name.",
           does="command_palette"),
    Action("app.commands", "y", "As command", "The commands that do the same without the "
           "dashboard."),
    Action("app.text", "Y", "As text", "Copy the table as text, in columns; where there is none, "
           "what the screen shows.", footer=False, does="copy_as_text"),
    Action("app.help", "question_mark", "Help", "The keys and the columns of this screen, and all "
           "others."),
    Action("app.jump", "apostrophe,ctrl+o", "Jump", "A letter at each field, table and tab; the "
           "letter goes there.", footer=False),
    Action("app.theme", "comma", "Theme", "The next colours.", footer=False),
    Action("app.undo", "U", "Undo", "Undo the last roll-back, change of tags or deletion that "
           "was made here.", footer=False, writes=True),
    Action("move.down", "j", "Down", "As the arrow key.", footer=False, does="press('down')"),
    Action("move.up", "k", "Up", "As the arrow key.", footer=False, does="press('up')"),
    Action("move.first", "g", "First", "To the first row or line.", footer=False,
           does="press('ctrl+home')"),
    Action("move.last", "G", "Last", "To the last row or line.", footer=False,
           does="press('ctrl+end')"),
    Action("app.quit", "q", "Quit", "Leave; runs go on."),
)  # fmt: skip
# Visited from elsewhere: Escape goes back there.
ASIDE = ("sql", "settings", "about")
# Pages that are opened from another screen, for the help and the settings.
PAGES = (
    "diode_app.screens.run:RunScreen",
    "diode_app.screens.compare:CompareRunsScreen",
    "diode_app.screens.problem:ProblemScreen",
    "diode_app.screens.candidate:CandidateScreen",
    "diode_app.screens.program:ProgramScreen",
    "diode_app.screens.validate_new:NewValidationScreen",
    "diode_app.screens.model:ModelScreen",
    "diode_app.screens.compare:CompareScreen",
)
WIDGETS = (
    "diode_app.widgets.table:PagedTable",
    "diode_app.widgets.plot:Plot",
    "diode_app.widgets.log_pane:LogPane",
)


def modules() -> list[str]:
    """Return the names of the modules of all that has actions, those of the places first."""
    targets = (*(place.target for place in PLACES), *PAGES, *WIDGETS)
    return list(dict.fromkeys(target.partition(":")[0] for target in targets))


def sections() -> list[tuple[str, tuple[Action, ...]]]:
    """(title, actions) of everything that has actions; imports all screens."""
    parts = [(place.title, place.load()) for place in PLACES]
    parts += [(part.HELP_TITLE, part) for part in map(resolve_name, (*PAGES, *WIDGETS))]
    return [(title, part.ACTIONS) for title, part in parts if part.ACTIONS]
