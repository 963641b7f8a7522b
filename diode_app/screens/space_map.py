"""The map of the problem space: how many problems have which sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from textual.app import ComposeResult
from textual.color import Color
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.space_map import FEW, bins, count_gaps, map_rows, short_count, short_size
from diode_app.data.tables import Column
from diode_app.screens.base import Reader
from diode_app.screens.filtered_list import ListScreen
from diode_app.session import Session
from diode_app.text import next_of
from diode_app.widgets.table import PagedTable
from diode_engine.store.problem_counts import AXES, SpaceMap, space_map


class SpaceMapScreen(ListScreen):
    """A table of counts, the fuller cells brighter. `query` is the filter of the counted problems.
    When a row is chosen, `narrow` is called with the row's query and the page closes."""

    MODE = "data"
    HELP_TITLE = "The map of the problems"
    ACTIONS = (
        Action("map.back", "escape", "Back", "To the list of problems."),
        Action("map.across", "x", "Across", "Another size from left to right."),
        Action("map.down", "d", "Down", "Another size from top to bottom.",
               "diode-engine data map {filter} --across={across} --down={down} --store={store}"),
        Action("map.list", "enter", "Problems", "List the problems of the row.",
               "diode-engine data problems {row} --store={store}", does="open"),
    )  # fmt: skip

    def __init__(self, session: Session, query: str, narrow: Callable[[str], None]) -> None:
        super().__init__(session)
        self._query = query
        self._narrow = narrow
        self._across, self._down = "n", "m"

    def body(self) -> ComposeResult:
        yield Static(id="map-title", classes="line bold", markup=False)
        yield Static(id="map-says", classes="line muted", markup=False)
        yield PagedTable(self.session, (), what="ranges of sizes")

    def reader(self) -> Reader[SpaceMap]:
        query, across, down = self._query, self._across, self._down
        return lambda store: space_map(store, query, x=across, y=down)

    def values(self) -> Mapping[str, object]:
        asked = {"across": self._across, "down": self._down, "filter": tuple(self._query.split())}
        return {**asked, "row": tuple(self._row(self.table.pointed or "").split())}

    def show(self, snapshot: SpaceMap) -> None:
        across, down = snapshot.x.upper(), snapshot.y.upper()
        matching = f" · filter: {self._query}" if self._query else ""
        problems = f"{snapshot.counts.sum():,} problems"
        self.put("#map-title", f"{problems} by {down} and {across}{matching}")
        none, few = count_gaps(snapshot.counts)
        says = f"Of the bins between measured ones {none:,} are empty, {few:,} have fewer than "
        self.put("#map-says", f"{says}{FEW} problems.")
        self._colour_cells(snapshot)
        self.table.show_rows(map_rows(snapshot))

    def _colour_cells(self, found: SpaceMap) -> None:
        """Set the columns, whose cells are brighter the more problems they count: by the logarithm,
        since the map is there to show where there is little."""
        colours = self.app.theme_variables
        low, high = Color.parse(colours["surface"]), Color.parse(colours["primary"])
        most = found.counts.max(initial=0)
        styles = {"": ("", "")}
        for count in np.unique(found.counts).tolist():
            ground = low.blend(high, math.log1p(count) / math.log1p(max(most, 1)))
            style = f"{ground.get_contrast_text(1.0).hex6} on {ground.hex6}"
            styles[short_count(count)] = short_count(count), style
        down, across = found.y.upper(), found.x.upper()
        self.table.set_columns((
            Column("size", f"{down} from", f"the least {down} of the row", right=True),
            *(Column(str(first), f"{across} {short_size(first)}" if not i else short_size(first),
                     f"problems with {across} from {first:,} to {last:,}", right=True,
                     sign=lambda value: styles.get(value, (value, "")))
              for i, (first, last) in enumerate(bins(found.x_first, found.counts.shape[1]))),
        ))  # fmt: skip

    def _row(self, term: str) -> str:
        """Return the query of a row, within the filter."""
        return f"{self._query} {term}".strip()

    # Actions

    def action_across(self) -> None:
        self._across = next_of([axis for axis in AXES if axis != self._down], self._across)
        self.reading.drop()
        self.reload()

    def action_down(self) -> None:
        self._down = next_of([axis for axis in AXES if axis != self._across], self._down)
        self.reading.drop()
        self.reload()

    def open(self, key: str) -> None:
        self.dismiss()
        self._narrow(self._row(key))
