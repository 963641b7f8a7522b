"""The actions that work everywhere in the dashboard."""

from __future__ import annotations

from diode_app.actions import Action
from diode_app.screens.places import PLACES

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
