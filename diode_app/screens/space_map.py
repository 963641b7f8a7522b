"""The map of the problem space: how many problems have which sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app import text
from diode_app.actions import Action
from diode_app.data.filters import suggestions
from diode_app.data.space_map import AXES, FEW, SizeMap, size_map
from diode_app.screens.base import DiodeScreen
from diode_app.session import Session
from diode_app.widgets.filter_box import FilterBox
from diode_app.widgets.heat_map import HeatMap, Map

if TYPE_CHECKING:
    from diode_engine.store import Store


class SpaceMapScreen(DiodeScreen):
    """`query` is the filter to begin with. When a bin is chosen, `narrow` is called with the bin's
    query and the page closes."""

    MODE = "data"
    HELP_TITLE = "The map of the problems"
    ACTIONS = (
        Action("map.back", "escape", "Back", "To the list of problems."),
        Action("map.filter", "slash", "Filter", "Count only the problems that a query matches.",
               "diode-engine data map {filter} --across={across} --down={down} --store={store}"),
        Action("map.across", "x", "Across", "Another size from left to right."),
        Action("map.down", "d", "Down", "Another size from bottom to top."),
        Action("map.thinnest", "t", "Thinnest", "The emptiest bin between measured ones."),
        Action("map.list", "enter", "Problems", "List the problems of the bin.",
               "diode-engine data problems {bin} --store={store}"),
    )  # fmt: skip
    DEFAULT_CSS = """
    SpaceMapScreen {
        #map-title { height: 1; padding: 0 1; text-style: bold; }
        #map-says { height: 1; padding: 0 1; color: $text-muted; }
        #map-cell { height: 1; padding: 0 1; }
        HeatMap { padding: 0 1; }
    }
    """

    def __init__(self, session: Session, query: str, narrow: Callable[[str], None]) -> None:
        super().__init__(session)
        self._query = query
        self._narrow = narrow
        self._across, self._down = "n", "m"
        self._map: SizeMap | None = None
        self._cursor = (0, 0)
        self._known: dict[str, list[str]] = {}

    def body(self) -> ComposeResult:
        yield FilterBox("op:mm dtype:bf16 gpu:h200", suggestions("data", self._known))
        yield Static(id="map-title", markup=False)
        yield Static(id="map-says", markup=False)
        yield HeatMap()
        yield Static(id="map-cell", markup=False)

    def body_mounted(self) -> None:
        self.query_one(FilterBox).put(self._query)
        self.query_one(HeatMap).focus()

    def reader(self) -> Callable[[Store], tuple[SizeMap, dict[str, list[str]]]]:
        query, across, down = self._query, self._across, self._down

        def read(store: Store) -> tuple[SizeMap, dict[str, list[str]]]:
            from diode_engine.store.run_query import known_values

            return size_map(store, query, across, down), known_values(store)

        return read

    def values(self) -> Mapping[str, object]:
        return {
            "filter": tuple(self._query.split()),
            "across": self._across,
            "down": self._down,
            "bin": None if self._map is None else tuple(self._bin().split()),
        }

    def show(self, snapshot: tuple[SizeMap, dict[str, list[str]]]) -> None:
        found, known = snapshot
        self._known.update(known)
        self.query_one(FilterBox).complain(None)
        before, self._map = self._map, found
        matching = f" · filter: {self._query}" if self._query else ""
        self.query_one("#map-title", Static).update(
            f"{found.problems:,} problems by {found.down.upper()} and {found.across.upper()}"
            f"{matching}"
        )
        if not found.rows:
            self.query_one("#map-says", Static).update("No problem matches the filter.")
            self.query_one("#map-cell", Static).update("")
        else:
            none, few = found.gaps
            self.query_one("#map-says", Static).update(
                f"Of the bins between measured ones {none:,} are empty, {few:,} have fewer than "
                f"{FEW} problems."
            )
        same = before is not None and (before.rows, before.columns) == (found.rows, found.columns)
        self.query_one(HeatMap).show(
            Map(
                found.counts,
                [_size(first) for first, _ in found.rows],
                [_size(first) for first, _ in found.columns],
                found.down.upper(),
                found.across.upper(),
            ),
            None if same or not found.rows else found.thinnest,
        )

    def fail(self, sentence: str) -> None:
        self.query_one(FilterBox).complain(sentence)

    def on_heat_map_pointed(self, event: HeatMap.Pointed) -> None:
        found = self._map
        if found is None or not found.rows:
            return
        self._cursor = event.row, event.column
        count = found.counts[event.row][event.column]
        self.query_one("#map-cell", Static).update(
            f"{_range(found.down, found.rows[event.row])}, "
            f"{_range(found.across, found.columns[event.column])}: "
            f"{text.quantity(count, 'problems')}"
        )

    def on_heat_map_chosen(self, event: HeatMap.Chosen) -> None:
        self._cursor = event.row, event.column
        self.action_list()

    def _bin(self) -> str:
        """Return the query of the bin under the cursor, within the filter."""
        if self._map is None or not self._map.rows:
            return self._query
        return f"{self._query} {self._map.query(*self._cursor)}".strip()

    # Actions

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def on_filter_box_submitted(self, event: FilterBox.Submitted) -> None:
        self._query = event.text
        self.query_one(HeatMap).focus()
        self.reload()

    def action_across(self) -> None:
        self._across = _next(self._across, self._down)
        self.reload()

    def action_down(self) -> None:
        self._down = _next(self._down, self._across)
        self.reload()

    def action_thinnest(self) -> None:
        if self._map is not None and self._map.rows:
            self.query_one(HeatMap).point(*self._map.thinnest)

    def action_list(self) -> None:
        self.dismiss()
        self._narrow(self._bin())


def _next(axis: str, other: str) -> str:
    """Return the next axis that is not the other one."""
    free = [name for name in AXES if name != other]
    return free[(free.index(axis) + 1) % len(free)]


def _size(number: int) -> str:
    for unit, size in (("G", 2**30), ("M", 2**20), ("k", 2**10)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def _range(axis: str, ends: tuple[int, int]) -> str:
    first, last = ends
    return f"{axis.upper()} {first:,}" if first == last else f"{axis.upper()} {first:,}–{last:,}"
