"""Filters with a name: kept in the settings, found by `:`."""

from __future__ import annotations

from dataclasses import replace

from diode_app.actions import Action
from diode_app.screens.base import DiodeScreen, SettingsChanged
from diode_app.widgets.modals import Prompt
from diode_app.widgets.table import PagedTable


def save_filter(place: str) -> Action:
    """The same action on each list."""
    return Action(
        f"{place}.save-filter", "b", "Save filter", "Give the list's filter a name, by which : "
        "finds it; without a filter, forget a name.", footer=False,
    )  # fmt: skip


class SavedFilters(DiodeScreen):
    """A mixin for the screen of a place with one list."""

    def action_save_filter(self) -> None:
        query = self.query_one(PagedTable).query_now.filter

        async def save() -> str | None:
            known = dict(self.session.settings.filters)
            if query:
                question = f"A name for the filter {query}"
            elif known:
                question = f"The name of the filter to forget: {', '.join(known)}"
            else:
                return "The list has no filter; / makes one."
            given = await self.app.push_screen_wait(Prompt(question))
            name = (given or "").strip()
            if not name:
                return None
            if query:
                known[name] = f"{self.MODE} {query}"
            elif known.pop(name, None) is None:
                return f"There is no filter {name}."
            self.post_message(SettingsChanged(replace(self.session.settings, filters=known)))
            return f"The filter {name} is {'kept: : finds it' if query else 'forgotten'}."

        self.act(save, "keeps a filter")
