"""A table in pages, which the store sorts, filters and cuts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import DataTable, Static
from textual.widgets.data_table import CellDoesNotExist

from diode_app import text
from diode_app.actions import Action, Actions
from diode_app.data.pages import MAX_ROWS, Page, PageQuery, as_csv, as_json, as_text
from diode_app.data.threads import in_thread
from diode_app.keys import ASKING
from diode_app.session import Session
from diode_app.widgets.badge import table_badge
from diode_app.widgets.filter_box import FilterBox, Suggest
from diode_app.widgets.grid import Grid
from diode_app.widgets.modals import Confirm, ErrorDialog, PickOne, Prompt
from diode_app.widgets.path_completion import complete_path
from diode_app.widgets.reading import Latest
from diode_engine.atomic import write_whole
from diode_engine.errors import DiodeError

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from diode_engine.store import Store

_LEAST = 12  # columns of a cell that is wrapped, before a column is left out
Read = Callable[["Store", PageQuery], Page]


@dataclass(frozen=True)
class TableColumn:
    """`key` is the cell's name in a row and, where `sortable`, what the reader sorts by. `state`
    cells hold a run's state as `text.state` writes it; cells with a `sign` are coloured by it.
    Where there is no room for all columns, those with the highest `rank` are left out first; one of
    rank 0 never is."""

    key: str
    label: str
    sortable: bool = True
    right: bool = False
    state: bool = False
    sign: Callable[[str], Text] | None = None
    rank: int = 0


class PagedTable(Actions, Vertical):
    """Shows one page of what `read(store, query)` returns. The reader runs in a thread, must be
    quick, and raises a DiodeError where the filter is not valid.

    `reload` reads again and keeps the cursor where it is. Posts `PagedTable.Chosen` (Enter or a
    click) and `PagedTable.Pointed` (the cursor is on it) with the row's key.
    """

    DEFAULT_CSS = """
    PagedTable {
        height: 1fr;
        DataTable { height: 1fr; background: $surface; }
        .table--foot { height: 1; color: $text-muted; padding: 0 1; }
    }
    """
    HELP_TITLE = "In a table"
    ACTIONS = (
        Action("table.filter", "slash", "Filter", "Show only the rows that a query matches."),
        Action("table.all-rows", "escape", "All rows", "Take the filter away."),
        Action("table.sort", "s", "Sort", "Choose the column to sort by."),
        Action("table.reverse", "o", "Reverse", "Turn the order round.", footer=False),
        Action("table.next-page", "right_square_bracket", "Next page", "The next rows."),
        Action("table.previous-page", "left_square_bracket", "Page before", "The rows before."),
        Action("table.export", "e", "Export", "Write all rows that the filter matches as CSV or "
               "JSON."),
    )  # fmt: skip

    class Chosen(Message):
        def __init__(self, table: PagedTable, key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> PagedTable:
            return self.table

    class Pointed(Chosen):
        pass

    def __init__(
        self,
        session: Session,
        columns: Sequence[TableColumn],
        read: Read | None,
        *,
        what: str,
        sort: str | None = None,
        descending: bool = False,
        filter_hint: str = "",
        suggest: Suggest | None = None,
        wraps: bool = False,
        id: str | None = None,
    ) -> None:
        """`what` the rows are, in the plural; it also names the exported file. `read` is None in a
        subclass with its own `fetch`. Where it `wraps`, cells that have no room take several
        lines; else columns are left out."""
        super().__init__(id=id)
        self._session = session
        self._columns = tuple(columns)
        self._shown = self._columns  # those that there is room for
        self._widest: dict[str, int] = {}  # the widest cell or heading so far, by column
        self._read = read
        self._what = what
        self._filter_hint = filter_hint
        self._suggest = suggest
        self._wraps = wraps
        self._reading: Latest[tuple[PageQuery, Page]] = Latest(self, self._show, self._fail)
        self.query_now = PageQuery(sort=sort, descending=descending, rows=session.settings.rows)
        self.page = Page()
        self._answered: PageQuery | None = None
        self._widths: list[int] = []
        self._room: list[int] = []  # of each column, where cells are wrapped
        self._shown_page = 0

    # What it consists of

    def compose(self) -> ComposeResult:
        history = self._session.filter_history.setdefault(self._what, [])
        yield FilterBox(self._filter_hint, self._suggest, history)
        yield Grid(cursor_type="row", zebra_stripes=True)
        yield Static(classes="table--foot", markup=False)

    def on_mount(self) -> None:
        self._make_columns()
        # Colours are in the cells.
        self.app.theme_changed_signal.subscribe(self, lambda _: self._lay_out())

    @property
    def what(self) -> str:
        """What the rows are, in the plural."""
        return self._what

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """All columns, also those for which there is no room."""
        return self._columns

    @property
    def grid(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    def focus_rows(self) -> None:
        self.grid.focus()

    def set_columns(self, columns: Sequence[TableColumn]) -> None:
        if tuple(columns) != self._columns:
            self._columns = self._shown = tuple(columns)
            self._room = []
            self._widest.clear()
            self._lay_out()

    def on_resize(self) -> None:
        self._widest.clear()
        if self._narrow(self.page):
            self._lay_out()
        self.call_after_refresh(self._fit)

    def _narrow(self, page: Page) -> bool:
        """Whether other columns fit than before with this page."""
        for column in self._columns:
            cells = max((cell_len(row.cells.get(column.key, "")) for row in page.rows), default=0)
            width = max(self._heading(column).cell_len, cells)
            self._widest[column.key] = max(self._widest.get(column.key, 0), width)
        padding = 2 * self.grid.cell_padding
        widths = [self._widest[column.key] + padding for column in self._columns]
        if not self.size.width:
            return False  # in a tab that is not shown
        before = self._shown, self._room
        room = self.size.width - self.grid.styles.scrollbar_size_vertical
        if self._wraps:
            least = [min(width, _LEAST + padding) for width in widths]
            self._shown = fitting(self._columns, least, room)
            shown = [self._widest[column.key] for column in self._shown]
            self._room = shared(shown, room - padding * len(shown))
        else:
            self._shown = fitting(self._columns, widths, room)
        return (self._shown, self._room) != before

    def _lay_out(self) -> None:
        at, scroll = self.pointed, self.grid.scroll_y
        self._make_columns()
        self._fill(self.page)
        self._point_at(at, scroll)
        self._write_foot()

    def _make_columns(self) -> None:
        self._widths = [0] * len(self._shown)
        self.grid.clear(columns=True)
        given: Sequence[int | None] = self._room or [None] * len(self._shown)
        for column, width in zip(self._shown, given, strict=True):
            self.grid.add_column(self._heading(column), key=column.key, width=width)

    def _heading(self, column: TableColumn) -> Text:
        mark = ""
        if column.key == self.query_now.sort:
            mark = " ▼" if self.query_now.descending else " ▲"
        return Text(column.label + mark, justify="right" if column.right else "left")

    # Reading

    def reload(self) -> None:
        self._reading.do(partial(self._fetch, self.query_now))

    async def _fetch(self, query: PageQuery) -> tuple[PageQuery, Page]:
        return query, await self.fetch(query)

    async def fetch(self, query: PageQuery) -> Page:
        """The page that is asked for. Raises DiodeError where the filter has a mistake."""
        read = self._read
        assert read is not None
        return await self._session.store.read(lambda store: read(store, query))

    def ask(self, query: PageQuery) -> None:
        """Shows the result of this query from now on."""
        before, self.query_now = self.query_now, replace(query, rows=min(query.rows, MAX_ROWS))
        self.query_one(FilterBox).put(query.filter)
        if query.filter != before.filter:
            self.refresh_bindings()
        self.reload()

    @property
    def is_behind(self) -> bool:
        """Whether the rows are not yet those that were asked for last; keys wait for these."""
        return self._reading.busy and self._answered is not self.query_now

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
        for column in self._shown:
            self.grid.columns[_key(column)].label = self._heading(column)
        changed = page != self.page or query.page != self._shown_page
        self._fill(page)
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
        hidden = len(self._columns) - len(self._shown)
        more = f" · {text.counted(hidden, 'more columns')} where it is wider" if hidden else ""
        self.query_one(".table--foot", Static).update(
            f"{shown}{text.counted(self.page.total, self._what)}{matching}{more}"
        )

    def _fail(self, sentence: str) -> None:
        self._answered = self.query_now
        if self.query_now.filter:
            self.query_one(FilterBox).complain(sentence)
        else:
            self.query_one(".table--foot", Static).update(f"✗ {sentence}")

    def _fill(self, page: Page) -> None:
        grid = self.grid
        if self._narrow(page):
            at, scroll = self.pointed, grid.scroll_y
            self._make_columns()
            self._fill(page)
            self._point_at(at, scroll)
            return
        keys = [row.key for row in page.rows]
        cells = [[self._cell(column, row.cells) for column in self._shown] for row in page.rows]
        heights = [self._height(shown) for shown in cells]
        same = keys == [key.value for key in grid.rows]
        if same and heights == [row.height for row in grid.ordered_rows]:
            # Only what changed is painted.
            for was, row, shown in zip(self.page.rows, page.rows, cells, strict=True):
                for column, cell in zip(self._shown, shown, strict=True):
                    if was.cells.get(column.key) != row.cells.get(column.key):
                        grid.update_cell(row.key, column.key, cell, update_width=True)
        else:
            at, scroll = self.pointed, grid.scroll_y
            grid.clear()
            for key, shown, height in zip(keys, cells, heights, strict=True):
                grid.add_row(*shown, key=key, height=height)
            self._point_at(at, scroll)
        # The grid measures only when it is idle, and goes on showing lines of before that; nor does
        # it measure a heading that has changed.
        for place, column in enumerate(self._shown):
            widths = [self._heading(column).cell_len, *(shown[place].cell_len for shown in cells)]
            self._widths[place] = max(self._widths[place], *widths)
        self.page = page
        self._fit()

    def _fit(self) -> None:
        """Sets the widths of the columns. A number must not be cut off: the column at the edge is
        hidden if it has numbers and does not fit."""
        if self._wraps:
            return  # they have theirs already
        grid = self.grid
        room = grid.scrollable_content_region.width
        widths = list(self._widths)
        left = 0
        for place, column in enumerate(self._shown):
            right = left + widths[place] + 2 * grid.cell_padding
            if left < room < right:
                if column.right and place and not grid.scroll_x:
                    widths[place - 1] += room - left
                break
            left = right
        for measured, width in zip(grid.ordered_columns, widths, strict=True):
            if measured.content_width != width:
                measured.content_width = width
                grid._clear_caches()
                grid._require_update_dimensions = True
                grid.refresh()

    def _cell(self, column: TableColumn, cells: Mapping[str, str]) -> Text:
        value = cells.get(column.key, "")
        if column.state:
            return table_badge(self.app, value)
        if column.sign is not None:
            return column.sign(value)
        justify: JustifyMethod = "right" if column.right else "left"
        return Text(value, justify=justify, no_wrap=not self._wraps)

    def _height(self, cells: Sequence[Text]) -> int:
        """The lines of the row with these cells."""
        if not self._room:
            return 1
        console = self.app.console
        pairs = zip(cells, self._room, strict=True)
        return max(len(cell.wrap(console, room)) if cell.cell_len > room else 1
                   for cell, room in pairs)  # fmt: skip

    # The cursor

    @property
    def pointed(self) -> str | None:
        """The key of the row under the cursor."""
        grid = self.grid
        if not grid.row_count:
            return None
        try:
            return grid.coordinate_to_cell_key(grid.cursor_coordinate).row_key.value
        except CellDoesNotExist:
            return None

    def _point_at(self, key: str | None, scroll: float) -> None:
        keys = [row.value for row in self.grid.rows]
        if key in keys:
            self.grid.move_cursor(row=keys.index(key), scroll=False)
            self.grid.scroll_to(y=scroll, animate=False)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if event.row_key.value is not None:
            self.post_message(self.Chosen(self, event.row_key.value))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        self.refresh_bindings()  # not with every row the same can be done
        if event.row_key.value is not None:
            self.post_message(self.Pointed(self, event.row_key.value))

    # Filter, order, pages

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def action_all_rows(self) -> None:
        self.query_one(FilterBox).action_leave()

    def on_filter_box_submitted(self, event: FilterBox.Submitted) -> None:
        event.stop()
        self.ask(replace(self.query_now, filter=event.text, page=0))
        self.focus_rows()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        event.stop()
        self.sort_by(str(event.column_key.value))

    def sort_by(self, key: str) -> None:
        """Sorts by this column; if the table is sorted by it already, in the other direction."""
        if key not in {column.key for column in self._columns if column.sortable}:
            return
        query = self.query_now
        turned = query.sort == key and not query.descending
        self.ask(replace(query, sort=key, descending=turned, page=0))

    def action_sort(self) -> None:
        columns = [column for column in self._columns if column.sortable]

        async def pick() -> None:
            chosen = await self.app.push_screen_wait(
                PickOne(
                    "Sort by which column? Once more by the same turns the order round.",
                    [(column.key, self._heading(column).plain) for column in columns],
                    self.query_now.sort,
                )
            )
            if chosen is not None:
                self.sort_by(chosen)

        if columns:
            self.run_worker(pick(), group=ASKING, exit_on_error=False)

    def action_reverse(self) -> None:
        self.ask(replace(self.query_now, descending=not self.query_now.descending, page=0))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "all_rows":
            return bool(self.query_now.filter)
        if action == "next_page":
            return self.query_now.page + 1 < self.pages
        if action == "previous_page":
            return self.query_now.page > 0
        return True

    def action_next_page(self) -> None:
        if self.query_now.page + 1 < self.pages:
            self.ask(replace(self.query_now, page=self.query_now.page + 1))

    def action_previous_page(self) -> None:
        if self.query_now.page:
            self.ask(replace(self.query_now, page=self.query_now.page - 1))

    # Copy and export

    def copy(self) -> None:
        """Copies the rows of this page, with all columns, as text."""
        columns = [column for column in self._columns if column.label]
        rows = [[row.cells.get(column.key, "") for column in columns] for row in self.page.rows]
        self.app.copy_to_clipboard(as_text([column.label for column in columns], rows))
        are = "is" if len(rows) == 1 else "are"
        copied = f"{text.counted(len(rows), self._what)} {are} copied as text."
        self.notify(copied, markup=False)

    def action_export(self) -> None:
        self.run_worker(self._export(), group=ASKING, exit_on_error=False)

    async def _export(self) -> None:
        try:
            self._session.store.must_be_writable()
        except DiodeError as error:
            await self.app.push_screen_wait(ErrorDialog(str(error)))
            return
        given = await self.app.push_screen_wait(
            Prompt(
                f"Write {text.counted(self.page.total, self._what)} to (.csv or .json)",
                str(Path.cwd() / f"{self._what.replace(' ', '-')}.csv"),
                check=_check_target,
                suggest=complete_path,
            )
        )
        if given is None:
            return
        target = Path(given).expanduser()
        if target.exists() and not await self.app.push_screen_wait(
            Confirm(f"{target} exists already. Replace it?", yes="Replace it")
        ):
            return
        try:
            count = await self._write(target)
        except (DiodeError, OSError) as error:
            await self.app.push_screen_wait(ErrorDialog(f"{target} was not written: {error}"))
            return
        are = "is" if count == 1 else "are"
        self.notify(f"{text.counted(count, self._what)} {are} in {target}.", markup=False)

    async def _write(self, target: Path) -> int:
        query = replace(self.query_now, page=0, rows=MAX_ROWS)
        records: list[Mapping[str, Any]] = []
        while rows := (await self.fetch(query)).rows:
            records.extend(row.record for row in rows)
            query = replace(query, page=query.page + 1)
        text = as_json(records) if target.suffix == ".json" else as_csv(records)
        await in_thread(lambda: write_whole(target, text), "export")
        return len(records)


def fitting(
    columns: Sequence[TableColumn], widths: Sequence[int], room: int
) -> tuple[TableColumn, ...]:
    """The columns that fit, in their order; those with the highest rank go first, the last of
    several of one rank."""
    left = list(zip(columns, widths, strict=True))
    while sum(width for _, width in left) > room:
        rank = max(column.rank for column, _ in left)
        if rank == 0:
            break
        del left[max(place for place, (column, _) in enumerate(left) if column.rank == rank)]
    return tuple(column for column, _ in left)


def shared(wanted: Sequence[int], room: int) -> list[int]:
    """The widths of columns that want so much: all of it, where there is room; else the widest
    ones share what the others leave."""
    given = list(wanted)
    open_places = sorted(range(len(given)), key=lambda place: given[place])
    for done, place in enumerate(open_places):
        fair = max(1, room) // (len(open_places) - done)
        given[place] = max(1, min(given[place], fair))
        room -= given[place]
    return given


def _key(column: TableColumn) -> Any:
    from textual.widgets.data_table import ColumnKey

    return ColumnKey(column.key)


def _check_target(given: str) -> str | None:
    path = Path(given).expanduser()
    if path.suffix not in (".csv", ".json"):
        return "The name must end in .csv or .json."
    if not path.parent.is_dir():
        return f"There is no folder {path.parent}."
    return None
