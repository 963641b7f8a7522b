"""A table's cells are drawn as Textual draws them."""

from __future__ import annotations

import pytest
from rich.text import Text
from textual.app import App, ComposeResult
from textual.widgets import DataTable

from diode_app.widgets.grid import Grid

pytestmark = pytest.mark.asyncio

_CELLS = (
    Text("plain", no_wrap=True),
    Text("", no_wrap=True),
    Text("12.5 ", justify="right", no_wrap=True),
    Text("left", justify="left", no_wrap=True),
    Text("● done", style="green", no_wrap=True),
    Text("7 done", style="green", justify="right", no_wrap=True),
    Text("宽 characters 宽", no_wrap=True),
    Text("two\nlines", no_wrap=True),
    Text.assemble(("two", "red"), " styles"),
)


class _Table(App[None]):
    def compose(self) -> ComposeResult:
        yield Grid(cursor_type="row", zebra_stripes=True)

    def on_mount(self) -> None:
        grid = self.query_one(Grid)
        grid.add_columns(*map(str, range(len(_CELLS))))
        for _ in range(3):
            grid.add_row(*_CELLS)


@pytest.mark.parametrize("width", [None, 4, 30])
@pytest.mark.parametrize("is_in_focus", [False, True])
async def test_the_cells_are_those_of_textual(monkeypatch, width, is_in_focus):
    app = _Table()
    async with app.run_test(size=(300, 40)) as pilot:
        grid = app.query_one(Grid)
        grid.move_cursor(row=1)
        if not is_in_focus:
            app.screen.set_focus(None)
        if width is not None:
            for column in grid.ordered_columns:
                column.auto_width, column.width = False, width
        await pilot.pause()
        grid._clear_caches()
        ours = [grid.render_line(y) for y in range(4)]
        monkeypatch.setattr(Grid, "_render_cell", DataTable._render_cell)
        grid._clear_caches()
        assert ours == [grid.render_line(y) for y in range(4)]
        assert "12.5" in ours[1].text or width == 4
