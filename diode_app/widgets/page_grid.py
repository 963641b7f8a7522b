"""One page of a table as it is drawn: the columns that there is room for, their widths, and the
cursor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip

from diode_app.data.tables import Column, Page, fit_columns, share_width
from diode_app.widgets.facts import state_style

_MIN_WRAPPED_WIDTH = 12  # of a column whose cells are wrapped; then columns are left out
_PAD = 1  # blanks to the left and to the right of a cell


@dataclass(frozen=True)
class _Cell:
    """A cell's lines, each as wide as its column, and their style."""

    lines: tuple[str, ...]
    style: str = ""


class PageGrid(ScrollView, can_focus=True):
    """Rows under headings, with a cursor on one row. It draws its own lines: Textual's DataTable
    lays out every cell again whenever one changes, which takes three times as long.

    Where there is no room for all columns, some are left out (see `fit_columns`), and Right goes to
    them; where it `wraps`, cells take several lines before that. The cursor stays on its row when
    the page or the columns change. `sorted_by` is the key of the column whose heading has the
    arrow, and whether the order is descending.

    Posts `PageGrid.Pointed` where the cursor comes to another row, `PageGrid.Chosen` on Enter or a
    click on the cursor's row, and `PageGrid.HeadingChosen` on a click on a heading.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"grid--heading", "grid--even", "grid--cursor"}
    DEFAULT_CSS = """
    PageGrid {
        background: $surface; color: $foreground;
        .grid--heading { text-style: bold; background: $panel; color: $foreground; }
        .grid--even { background: $surface-lighten-1 50%; }
        &:dark .grid--even { background: $surface-darken-1 40%; }
        .grid--cursor {
            background: $block-cursor-blurred-background;
            color: $block-cursor-blurred-foreground;
            text-style: $block-cursor-blurred-text-style;
        }
        &:focus { background-tint: $foreground 5%; }
        &:focus .grid--heading { background-tint: $foreground 5%; }
        &:focus .grid--cursor {
            background: $block-cursor-background;
            color: $block-cursor-foreground;
            text-style: $block-cursor-text-style;
        }
        /* Without colours what is chosen is turned round. */
        &:nocolor .grid--heading { text-style: bold underline; }
        &:nocolor .grid--cursor { text-style: reverse; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose_row", "Choose", show=False),
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("left", "shift(-1)", "Columns before", show=False),
        Binding("right", "shift(1)", "Next columns", show=False),
        Binding("pageup", "move_page(-1)", "Page up", show=False),
        Binding("pagedown", "move_page(1)", "Page down", show=False),
        Binding("ctrl+home", "move_to_end(-1)", "First", show=False),
        Binding("ctrl+end", "move_to_end(1)", "Last", show=False),
    ]

    @dataclass
    class Pointed(Message):
        key: str

    class Chosen(Pointed):
        pass

    class HeadingChosen(Pointed):
        pass

    left_out = var(0)  # how many columns there is no room for

    def __init__(
        self, columns: Sequence[Column], sorted_by: tuple[str | None, bool], *, wraps: bool
    ) -> None:
        super().__init__()
        self.all_columns = tuple(columns)
        self.sorted_by = sorted_by
        self.cursor_row = 0
        self.columns = self.all_columns  # those that there is room for
        self._wraps = wraps
        self._shift = 0  # how many columns are passed over, behind the first one
        self._page = Page()
        self._widest: dict[str, int] = {}  # the widest cell or heading so far, by column
        self._widths: list[int] = []  # of `columns`, without the blanks beside the cells
        self._headings: list[str] = []
        self._rows: list[list[_Cell]] = []
        self._tops: list[int] = []  # of the rows' first lines, below the headings
        self._told: str | None = None  # the row that Pointed was posted of last

    # What is on it

    @property
    def row_count(self) -> int:
        return len(self._page.rows)

    @property
    def pointed(self) -> str | None:
        """The key of the row under the cursor."""
        return self._page.rows[self.cursor_row].key if self.row_count else None

    def cells_of(self, row: int) -> dict[str, tuple[str, str]]:
        """Return the text and the style of each cell that is drawn, by column."""
        return {
            column.key: (" ".join(" ".join(cell.lines).split()), cell.style)
            for column, cell in zip(self.columns, self._rows[row], strict=True)
        }

    def heading(self, column: Column) -> str:
        key, descending = self.sorted_by
        return column.label + ((" ▼" if descending else " ▲") if column.key == key else "")

    def set_columns(self, columns: Sequence[Column]) -> None:
        if tuple(columns) != self.all_columns:
            self.all_columns, self._shift = tuple(columns), 0
            self._widest.clear()
            self.show_page(self._page)

    def show_page(self, page: Page) -> None:
        """Show the rows of this page. Lines that stay the same are not painted again."""
        key, before, drawn = self.pointed, (self._headings, self._widths, self._tops), self._rows
        self._page = page
        self._measure()
        self._headings = [
            _aligned(self.heading(column), width, right=column.right)
            for column, width in zip(self.columns, self._widths, strict=True)
        ]
        self._rows = [self._make_cells(row.cells) for row in page.rows]
        heights = [max((len(cell.lines) for cell in row), default=1) for row in self._rows]
        *self._tops, height = accumulate(heights, initial=0)
        keys = [row.key for row in page.rows]
        row = keys.index(key) if key in keys else min(self.cursor_row, max(0, len(keys) - 1))
        has_moved, self.cursor_row = row != self.cursor_row, row
        if before != (self._headings, self._widths, self._tops) or has_moved:
            self.virtual_size = Size(sum(self._widths) + 2 * _PAD * len(self._widths), 1 + height)
            self.refresh()
        else:
            for place, (old, new) in enumerate(zip(drawn, self._rows, strict=True)):
                if old != new:
                    self.refresh_lines(1 + self._tops[place], heights[place])
        self._tell()

    def on_resize(self) -> None:
        self._widest.clear()
        self.show_page(self._page)
        self._scroll_to_cursor()

    def _measure(self) -> None:
        """Find the columns that fit, and their widths."""
        for column in self.all_columns:
            cells = max((cell_len(row.cells.get(column.key, "")) for row in self._page.rows),
                        default=0)  # fmt: skip
            width = max(cell_len(self.heading(column)), cells)
            self._widest[column.key] = max(self._widest.get(column.key, 0), width)
        room = self.outer_size.width - self.styles.scrollbar_size_vertical
        if room <= 0:  # in a tab that is not shown
            room = sum(self._widest.values()) + 2 * _PAD * len(self.all_columns)
        most = _MIN_WRAPPED_WIDTH if self._wraps else max(self._widest.values(), default=0)
        least = [min(self._widest[column.key], most) + 2 * _PAD for column in self.all_columns]
        edge = room + self.styles.scrollbar_size_vertical
        self.columns = fit_columns(self.all_columns, least, room, edge, skip=self._shift)
        self.left_out = len(self.all_columns) - len(self.columns)
        self._widths = [self._widest[column.key] for column in self.columns]
        if self._wraps:
            self._widths = share_width(self._widths, room - 2 * _PAD * len(self._widths))

    def _make_cells(self, cells: Mapping[str, str]) -> list[_Cell]:
        """Return the cells of a row that are drawn."""
        made = []
        for column, width in zip(self.columns, self._widths, strict=False):
            value, style = cells.get(column.key, ""), ""
            if column.state:
                style = state_style(self.app, value)
            elif column.sign is not None:
                value, style = column.sign(value)
            lines = [" ".join(value.split("\n"))]
            if self._wraps and cell_len(value) > width:
                wrapped = Text(value).wrap(self.app.console, max(1, width))
                lines = [line.plain.rstrip() for line in wrapped]
            right = column.right
            made.append(_Cell(tuple(_aligned(line, width, right=right) for line in lines), style))
        return made

    # Drawing

    def render_line(self, y: int) -> Strip:
        width, left = self.size.width, self.scroll_offset.x
        if y == 0:
            style = self.get_component_rich_style("grid--heading")
            segments = [Segment(f"{'':{_PAD}}{text}{'':{_PAD}}", style) for text in self._headings]
            return Strip(segments).crop_extend(left, left + width, style)
        line = y - 1 + self.scroll_offset.y
        row = bisect_right(self._tops, line) - 1
        ground = self.rich_style
        if row < 0 or row >= self.row_count or line >= self.virtual_size.height - 1:
            return Strip.blank(width, ground)
        if row % 2 == 0:
            ground += self.get_component_rich_style("grid--even")
        cursor = Style()
        if row == self.cursor_row:
            cursor = self.get_component_rich_style("grid--cursor")
        empty, segments = ground + cursor, []
        for cell, room in zip(self._rows[row], self._widths, strict=True):
            place = line - self._tops[row]
            text = cell.lines[place] if place < len(cell.lines) else " " * room
            style = empty
            if cell.style:
                style = ground + self.app.console.get_style(cell.style) + cursor
            segments += [
                Segment(" " * _PAD, empty),
                Segment(text, style),
                Segment(" " * _PAD, empty),
            ]
        return Strip(segments).crop_extend(left, left + width, empty)

    # The cursor

    def point(self, row: int) -> None:
        """Put the cursor on the row of this place on the page, or the nearest that exists."""
        row = min(max(row, 0), self.row_count - 1)
        if row >= 0 and row != self.cursor_row:
            before, self.cursor_row = self.cursor_row, row
            for place in (before, row):
                top, bottom = self._lines_of(place)
                self.refresh_lines(1 + top, bottom - top)
            self._scroll_to_cursor()
            self._tell()

    def _lines_of(self, row: int) -> tuple[int, int]:
        following = self._tops[row + 1] if row + 1 < len(self._tops) else None
        return self._tops[row], self.virtual_size.height - 1 if following is None else following

    def _scroll_to_cursor(self) -> None:
        if self.row_count:
            top, bottom = self._lines_of(self.cursor_row)
            region = Region(self.scroll_offset.x, 1 + top, self.size.width, bottom - top)
            self.scroll_to_region(region, spacing=Spacing(top=1), animate=False, force=True)

    def _tell(self) -> None:
        if self.pointed != self._told:
            self._told = self.pointed
            if self._told is not None:
                self.post_message(self.Pointed(self._told))

    def action_move(self, rows: int) -> None:
        self.point(self.cursor_row + rows)

    def action_shift(self, columns: int) -> None:
        """Show columns that were left out, in place of the first ones behind the fixed ones."""
        is_cut = self.virtual_size.width > self.size.width
        more = self.columns[-1:] != self.all_columns[-1:] if self._shift else self.left_out > 0
        most = len(self.all_columns) - 2
        if self._shift > 0 if columns < 0 else (more or is_cut) and self._shift < most:
            self._shift += columns
            self.show_page(self._page)

    def action_move_page(self, pages: int) -> None:
        self.point(self.cursor_row + pages * max(1, self.size.height - 1))

    def action_move_to_end(self, direction: int) -> None:
        self.point(direction * self.row_count)

    def action_choose_row(self) -> None:
        if self.pointed is not None:
            self.post_message(self.Chosen(self.pointed))

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None:
            return
        if at.y == 0:
            x = 0
            for column, width in zip(self.columns, self._widths, strict=False):
                x += width + 2 * _PAD
                if at.x + self.scroll_offset.x < x:
                    self.post_message(self.HeadingChosen(column.key))
                    return
            return
        row = bisect_right(self._tops, at.y - 1 + self.scroll_offset.y) - 1
        if 0 <= row < self.row_count and at.y < self.virtual_size.height:
            if row == self.cursor_row:
                self.action_choose_row()
            self.point(row)


def _aligned(text: str, width: int, *, right: bool) -> str:
    """Return the text in this width, in cells of the terminal."""
    blanks = " " * (width - cell_len(text))
    return set_cell_size(blanks + text if right else text, width)
