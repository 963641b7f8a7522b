"""Draws one page of a table: the columns that there is room for, their widths, and the cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from textual.widget import Widget
from textual.widgets.data_table import CellDoesNotExist, ColumnKey

from diode_app.data.pages import Page
from diode_app.widgets.badge import table_badge
from diode_app.widgets.grid import Grid
from diode_app.widgets.table_columns import TableColumn, fitting, shared

if TYPE_CHECKING:
    from rich.console import JustifyMethod

_MIN_WRAPPED_WIDTH = 12  # of a column whose cells are wrapped; then columns are left out


class PageGrid(Grid):
    """Where there is no room for all columns, some are left out (see `fitting`); where it `wraps`,
    cells take several lines before that. The cursor stays on its row when the page or the columns
    change. `sorted_by` is the key of the column whose heading has the arrow, and whether the order
    is descending. The room is that of the parent widget."""

    def __init__(
        self, columns: Sequence[TableColumn], sorted_by: tuple[str | None, bool], *, wraps: bool
    ) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True)
        self.all_columns = tuple(columns)
        self.sorted_by = sorted_by
        self._wraps = wraps
        self._page = Page()
        self._shown = self.all_columns  # those that there is room for
        self._widest: dict[str, int] = {}  # the widest cell or heading so far, by column
        self._widths: list[int] = []  # of the shown columns
        self._wrapped: list[int] = []  # the widths of the shown columns, where cells are wrapped

    def on_mount(self) -> None:
        self._make_columns()

    @property
    def left_out(self) -> int:
        """How many columns there is no room for."""
        return len(self.all_columns) - len(self._shown)

    def set_columns(self, columns: Sequence[TableColumn]) -> None:
        if tuple(columns) != self.all_columns:
            self.all_columns = self._shown = tuple(columns)
            self._wrapped = []
            self._widest.clear()
            self.lay_out()

    def heading(self, column: TableColumn) -> Text:
        key, descending = self.sorted_by
        mark = (" ▼" if descending else " ▲") if column.key == key else ""
        return Text(column.label + mark, justify="right" if column.right else "left")

    # Columns

    def resized(self) -> None:
        """The room has changed."""
        self._widest.clear()
        if self._narrow(self._page):
            self.lay_out()
        self.call_after_refresh(self._fit)

    def lay_out(self) -> None:
        """Makes all columns and rows anew."""
        at, scroll = self.pointed, self.scroll_y
        self._make_columns()
        self.show_page(self._page)
        self._point_at(at, scroll)

    def _narrow(self, page: Page) -> bool:
        """Finds the columns that fit with this page; whether they are others than before."""
        for column in self.all_columns:
            cells = max((cell_len(row.cells.get(column.key, "")) for row in page.rows), default=0)
            width = max(self.heading(column).cell_len, cells)
            self._widest[column.key] = max(self._widest.get(column.key, 0), width)
        assert isinstance(self.parent, Widget)
        across = self.parent.size.width
        if not across:
            return False  # in a tab that is not shown
        before = self._shown, self._wrapped
        padding = 2 * self.cell_padding
        widths = [self._widest[column.key] + padding for column in self.all_columns]
        room = across - self.styles.scrollbar_size_vertical
        if self._wraps:
            least = [min(width, _MIN_WRAPPED_WIDTH + padding) for width in widths]
            self._shown = fitting(self.all_columns, least, room)
            shown = [self._widest[column.key] for column in self._shown]
            self._wrapped = shared(shown, room - padding * len(shown))
        else:
            self._shown = fitting(self.all_columns, widths, room)
        return (self._shown, self._wrapped) != before

    def _make_columns(self) -> None:
        self._widths = [0] * len(self._shown)
        self.clear(columns=True)
        given: Sequence[int | None] = self._wrapped or [None] * len(self._shown)
        for column, width in zip(self._shown, given, strict=True):
            self.add_column(self.heading(column), key=column.key, width=width)

    def _fit(self) -> None:
        """Sets the widths of the columns. A number must not be cut off: the column at the edge is
        hidden if it has numbers and does not fit."""
        if self._wraps:
            return  # they have their widths already
        room = self.scrollable_content_region.width
        widths = list(self._widths)
        left = 0
        for place, column in enumerate(self._shown):
            right = left + widths[place] + 2 * self.cell_padding
            if left < room < right:
                if column.right and place and not self.scroll_x:
                    widths[place - 1] += room - left
                break
            left = right
        for measured, width in zip(self.ordered_columns, widths, strict=True):
            if measured.content_width != width:
                measured.content_width = width
                self._clear_caches()
                self._require_update_dimensions = True
                self.refresh()

    # Rows

    def show_headings(self) -> None:
        """Shows the headings, after `sorted_by` has changed."""
        for column in self._shown:
            self.columns[ColumnKey(column.key)].label = self.heading(column)

    def show_page(self, page: Page) -> None:
        """Shows the rows of this page; where they are the same as before, only changed cells are
        painted."""
        if self._narrow(page):
            at, scroll = self.pointed, self.scroll_y
            self._make_columns()
            self.show_page(page)
            self._point_at(at, scroll)
            return
        keys = [row.key for row in page.rows]
        cells = [[self._cell(column, row.cells) for column in self._shown] for row in page.rows]
        heights = [self._height(shown) for shown in cells]
        same = keys == [key.value for key in self.rows]
        if same and heights == [row.height for row in self.ordered_rows]:
            for was, row, shown in zip(self._page.rows, page.rows, cells, strict=True):
                for column, cell in zip(self._shown, shown, strict=True):
                    if was.cells.get(column.key) != row.cells.get(column.key):
                        self.update_cell(row.key, column.key, cell, update_width=True)
        else:
            at, scroll = self.pointed, self.scroll_y
            self.clear()
            for key, shown, height in zip(keys, cells, heights, strict=True):
                self.add_row(*shown, key=key, height=height)
            self._point_at(at, scroll)
        # Textual measures columns only when it is idle, and shows the old lines until then; and it
        # does not measure a heading that has changed.
        for place, column in enumerate(self._shown):
            widths = [self.heading(column).cell_len, *(shown[place].cell_len for shown in cells)]
            self._widths[place] = max(self._widths[place], *widths)
        self._page = page
        self._fit()

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
        if not self._wrapped:
            return 1
        console = self.app.console
        pairs = zip(cells, self._wrapped, strict=True)
        return max(len(cell.wrap(console, room)) if cell.cell_len > room else 1
                   for cell, room in pairs)  # fmt: skip

    # The cursor

    @property
    def pointed(self) -> str | None:
        """The key of the row under the cursor."""
        if not self.row_count:
            return None
        try:
            return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value
        except CellDoesNotExist:
            return None

    def _point_at(self, key: str | None, scroll: float) -> None:
        keys = [row.value for row in self.rows]
        if key in keys:
            self.move_cursor(row=keys.index(key), scroll=False)
            self.scroll_to(y=scroll, animate=False)
