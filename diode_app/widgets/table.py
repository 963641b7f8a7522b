"""A table in pages, which the store sorts, filters and cuts; also in front of a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from diode_app import text
from diode_app.actions import Action, Actions
from diode_app.data.answers import group_of, group_rows
from diode_app.data.tables import (
    MAX_ROWS,
    Column,
    Page,
    PageQuery,
    Row,
    as_csv,
    as_json,
    as_text,
    page_in_memory,
)
from diode_app.keys import ASKING
from diode_app.session import Session
from diode_app.widgets.bars import KeyBar
from diode_app.widgets.files import save_as
from diode_app.widgets.filter_box import FilterBox, Suggest
from diode_app.widgets.modals import Dialog, PickOne
from diode_app.widgets.page_grid import PageGrid
from diode_app.widgets.styling import set_text
from diode_app.widgets.work import Latest

if TYPE_CHECKING:
    from diode_engine.store import Store


Read = Callable[["Store", PageQuery], Page]


class PagedTable(Actions, Vertical):
    """Shows one page of what `read(store, query)` returns. The reader runs in a thread, must be
    quick, and raises a DiodeError where the filter is not valid. Without a reader, it shows the
    rows of `show_rows`: it sorts them by the values in their records and filters them by words, and
    without a sort they keep the order in which they were given.

    `reload` reads again and keeps the cursor where it is. Posts `PagedTable.Chosen` (Enter or a
    click) and `PagedTable.Pointed` (the cursor is on it) with the row's key.
    """

    DEFAULT_CSS = """
    PagedTable {
        height: 1fr;
        PageGrid { height: 1fr; }
        .table--foot { height: 1; color: $text-muted; padding: 0 1; }
    }
    """
    HELP_TITLE = "In a table"
    ACTIONS = (
        Action("table.filter", "slash", "Filter", "Show only the rows that a query matches."),
        Action("table.all-rows", "escape", "All rows", "Remove the filter."),
        Action("table.sort", "s", "Sort", "Choose the column to sort by."),
        Action("table.reverse", "o", "Reverse", "Reverse the order.", footer=False),
        Action("table.next-page", "right_square_bracket", "Next page", "The next rows.",
               does="turn(1)"),
        Action("table.previous-page", "left_square_bracket", "Page before", "The rows before.",
               does="turn(-1)"),
        Action("table.count", "number_sign", "Count", "Count all rows that the filter matches by "
               "their value of a column, with the medians of the other columns; Enter lists the "
               "rows of one value.", footer=False),
        Action("table.export", "e", "Export", "Write all rows that the filter matches as CSV or "
               "JSON.", writes=True),
    )  # fmt: skip

    @dataclass
    class Chosen(Message):
        table: PagedTable
        key: str

    class Pointed(Chosen):
        pass

    def __init__(
        self,
        session: Session,
        columns: Sequence[Column],
        read: Read | None = None,
        *,
        what: str,
        sort: str | None = None,
        descending: bool = False,
        filter_hint: str = "words that a row has; -word for those without it",
        suggest: Suggest | None = None,
        rows: Sequence[Row] = (),
        wraps: bool = False,
        id: str | None = None,
    ) -> None:
        """`what` the rows are, in the plural; it also names the exported file. Where it `wraps`,
        cells that have no room take several lines; else columns are left out."""
        super().__init__(id=id)
        self._session = session
        self.grid = PageGrid(columns, (sort, descending), wraps=wraps)
        self._read = read
        self._rows = tuple(rows)  # without a reader
        self.what = what
        self._filter_hint = filter_hint
        self._suggest = suggest
        self._reading: Latest[tuple[PageQuery, Page]] = Latest(self, self._show, self._fail)
        self.query_now = PageQuery(sort=sort, descending=descending, rows=session.settings.rows)
        self.page = Page()
        self._asked: PageQuery | None = None
        self._answered: PageQuery | None = None
        self._shown_page = 0

    # What it consists of

    def compose(self) -> ComposeResult:
        history = self._session.filter_history.setdefault(self.what, [])
        yield FilterBox(self._filter_hint, self._suggest, history)
        yield self.grid
        yield Static(classes="table--foot", markup=False)

    def on_mount(self) -> None:
        # The colours of the theme are in the cells.
        self.app.theme_changed_signal.subscribe(self, lambda _: self.grid.show_page(self.page))
        self.watch(self.grid, "left_out", self._write_foot)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, also those for which there is no room."""
        return self.grid.all_columns

    @property
    def pointed(self) -> str | None:
        """The key of the row under the cursor."""
        return self.grid.pointed

    @property
    def pointed_row(self) -> Row | None:
        """The row under the cursor."""
        return next((row for row in self.page.rows if row.key == self.pointed), None)

    def focus_rows(self) -> None:
        self.grid.focus()

    def set_columns(self, columns: Sequence[Column]) -> None:
        self.grid.set_columns(columns)

    # Reading

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows from now on."""
        self._rows = tuple(rows)
        self.reload()

    def reload(self) -> None:
        again, self._asked = self._asked is self.query_now, self.query_now
        self._reading.do(partial(self._fetch, self.query_now), again=again)

    async def _fetch(self, query: PageQuery) -> tuple[PageQuery, Page]:
        return query, await self.fetch(query)

    async def fetch(self, query: PageQuery) -> Page:
        """Return the page that is asked for. Raises DiodeError where the filter has a mistake."""
        read = self._read
        if read is None:
            return page_in_memory(self._rows, query)
        return await self._session.store.read(lambda store: read(store, query))

    def ask(self, query: PageQuery) -> None:
        """Show the result of this query from now on."""
        before, self.query_now = self.query_now, replace(query, rows=min(query.rows, MAX_ROWS))
        self.grid.sorted_by = query.sort, query.descending
        self.query_one(FilterBox).put(query.filter)
        if query.filter != before.filter:
            self.refresh_bindings()
        self.reload()

    @property
    def is_behind(self) -> bool:
        """Whether the rows asked for last, or the screen's first ones, are missing: keys wait."""
        reading = getattr(self.screen, "reading", self._reading)
        is_reading = self._reading.busy or (self._answered is None and reading.busy)
        return is_reading and self._answered is not self.query_now

    @property
    def pages(self) -> int:
        return max(1, -(-self.page.total // self.query_now.rows))

    def _show(self, found: tuple[PageQuery, Page]) -> None:
        query, page = found
        self._answered = query
        self.query_one(FilterBox).complain(None)
        if not page.rows and query.page and page.total:  # rows have gone since
            self.ask(replace(query, page=0))
            return
        changed = page != self.page or query.page != self._shown_page
        self.page = page
        self.grid.show_page(page)
        if changed:  # what can be done with a row, and which pages there are
            self._shown_page = query.page
            self.refresh_bindings()
        self._write_foot()

    def _write_foot(self) -> None:
        query = self._answered
        if query is None:
            return  # nothing is read yet
        shown = f"page {query.page + 1} of {self.pages} · " if self.pages > 1 else ""
        matching = f" · filter: {query.filter}" if query.filter else ""
        hidden = self.grid.left_out
        more = f" · {text.quantity(hidden, 'more columns')}: → ←" if hidden else ""
        self._say(f"{shown}{text.quantity(self.page.total, self.what)}{matching}{more}")

    def _say(self, sentence: str) -> None:
        set_text(self.query_one(".table--foot", Static), sentence, resizes=False)

    def _fail(self, sentence: str) -> None:
        self._answered = self.query_now
        if self.query_now.filter:
            self.query_one(FilterBox).complain(sentence)
        else:
            self._say(f"✗ {sentence}")

    # The cursor

    def on_page_grid_chosen(self, event: PageGrid.Chosen) -> None:
        event.stop()
        self.post_message(self.Chosen(self, event.key))

    def on_page_grid_pointed(self, event: PageGrid.Pointed) -> None:
        event.stop()
        self.refresh_bindings()  # what can be done depends on the row
        self.post_message(self.Pointed(self, event.key))

    # Filter, order, pages

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def action_all_rows(self) -> None:
        self.query_one(FilterBox).action_leave()

    def on_filter_box_submitted(self, event: FilterBox.Submitted) -> None:
        event.stop()
        self.ask(replace(self.query_now, filter=event.text, page=0))
        self.focus_rows()

    def on_page_grid_heading_chosen(self, event: PageGrid.HeadingChosen) -> None:
        event.stop()
        self.sort_by(event.key)

    def sort_by(self, key: str) -> None:
        """Sort by this column; if the table is sorted by it already, in the other direction."""
        if key not in {column.key for column in self.columns if column.sortable}:
            return
        query = self.query_now
        turned = query.sort == key and not query.descending
        self.ask(replace(query, sort=key, descending=turned, page=0))

    async def _pick_column(
        self, question: str, columns: Sequence[Column], now: str | None = None
    ) -> Column | None:
        """Ask for one of the columns; None where there is none, or the person leaves."""
        if not columns:
            return None
        choices = [(column.key, self.grid.heading(column)) for column in columns]
        key = await self.app.push_screen_wait(PickOne(question, choices, now))
        return next((column for column in columns if column.key == key), None)

    @work(group=ASKING, exit_on_error=False)
    async def action_sort(self) -> None:
        columns = [column for column in self.columns if column.sortable]
        question = "Sort by which column? The same column again reverses the order."
        column = await self._pick_column(question, columns, self.query_now.sort)
        if column is not None:
            self.sort_by(column.key)

    def action_reverse(self) -> None:
        self.ask(replace(self.query_now, descending=not self.query_now.descending, page=0))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "all_rows":
            return bool(self.query_now.filter)
        if action == "turn" and isinstance(pages := parameters[0], int):
            return self.query_now.page + pages in range(self.pages)
        return super().check_action(action, parameters)

    def action_turn(self, pages: int) -> None:
        """Go forwards, or back, by this number of pages."""
        self.ask(replace(self.query_now, page=self.query_now.page + pages))

    # Groups

    @work(group=ASKING, exit_on_error=False)
    async def action_count(self) -> None:
        columns = [column for column in self.columns if column.label and self.page.rows]
        question = f"Count the {self.what} by which column?"
        if (column := await self._pick_column(question, columns)) is not None:
            self._show_groups(column, await self._all_rows())

    def _show_groups(self, by: Column, rows: Sequence[Row]) -> None:
        app = self.app
        columns, groups = group_rows(rows, by, self.columns)
        table = PagedTable(self._session, columns, what="groups", rows=groups)

        def list_group(value: str) -> None:
            found = [row for row in rows if group_of(row, by) == value]
            listed = PagedTable(self._session, self.columns, what=self.what, rows=found)
            app.push_screen(TableDialog(f"{by.label}: {value}", listed, choose))

        def choose(key: str) -> None:
            while app.screen.is_modal:
                app.pop_screen()
            place = [row.key for row in rows].index(key)
            self.run_worker(self._choose_row(place), exit_on_error=False)

        title = f"{text.quantity(len(rows), self.what)} by {by.label}"
        app.push_screen(TableDialog(title, table, list_group))

    async def _choose_row(self, place: int) -> None:
        """Choose the row of this place among all that the filter matches, with the cursor on it."""
        page, row = divmod(place, self.query_now.rows)
        self.query_now = replace(self.query_now, page=page)
        self._show(await self._fetch(self.query_now))
        self.grid.point(row)
        self.grid.action_choose_row()

    # Copy and export

    def copy(self) -> None:
        """Copy the rows of this page, with all columns, as text."""
        columns = [column for column in self.columns if column.label]
        rows = [[row.cells.get(column.key, "") for column in columns] for row in self.page.rows]
        self.app.copy_to_clipboard(as_text([column.label for column in columns], rows))
        are = "is" if len(rows) == 1 else "are"
        copied = f"{text.quantity(len(rows), self.what)} {are} copied as text."
        self.notify(copied, markup=False)

    @work(group=ASKING, exit_on_error=False)
    async def action_export(self) -> None:
        count = 0

        async def make_text(target: Path) -> str:
            nonlocal count
            records = [row.record for row in await self._all_rows()]
            count = len(records)
            return as_json(records) if target.suffix == ".json" else as_csv(records)

        question = f"Write {text.quantity(self.page.total, self.what)} to (.csv or .json)"
        name = f"{self.what.replace(' ', '-')}.csv"
        target = await save_as(self, question, name, (".csv", ".json"), make_text)
        if target is not None:
            are = "is" if count == 1 else "are"
            self.notify(f"{text.quantity(count, self.what)} {are} in {target}.", markup=False)

    async def _all_rows(self) -> list[Row]:
        """Return all rows that the filter matches."""
        query = replace(self.query_now, page=0, rows=MAX_ROWS)
        found: list[Row] = []
        while rows := (await self.fetch(query)).rows:
            found.extend(rows)
            query = replace(query, page=query.page + 1)
        return found


class TableDialog(Dialog[None]):
    """Shows a table until it is left. `choose` is called with the key of a row that is chosen."""

    DEFAULT_CSS = """
    TableDialog { .box { width: 90%; height: 85%; grid-rows: 1 1fr; grid-gutter: 0; } }
    """
    HELP_TITLE = "A table"

    def __init__(self, title: str, table: PagedTable, choose: Callable[[str], object]) -> None:
        super().__init__(title)
        self._table = table
        self._choose = choose

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield KeyBar()

    def content(self) -> ComposeResult:
        yield self._table

    def on_mount(self) -> None:
        self._table.reload()
        self._table.focus_rows()

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        event.stop()
        self._choose(event.key)
