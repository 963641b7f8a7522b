"""The table: its headings, its order, its pages."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from textual.app import App
from textual.widgets import OptionList

from diode_app.data.store_access import StoreAccess
from diode_app.data.tables import Column, Page, PageQuery, Row, page_in_memory
from diode_app.session import Session
from diode_app.settings import Settings
from diode_app.widgets.bars import KeyBar
from diode_app.widgets.modals import PickOne
from diode_app.widgets.table import PagedTable
from diode_engine import registry
from tests.app.judged import judge
from tests.app.registered import register_model
from tests.app.trained import make_training
from tests.app.waiting import lines_of, press, running, settled, text_of
from tests.training.conftest import make_timings

COLUMNS = [Column(key, key.upper(), right=True) for key in ("n", "eff", "wide")]


class TableApp(App[None]):
    keys = SimpleNamespace(held=None)

    def __init__(self, folder, rows=3, columns=COLUMNS, cell="0.459", settings=None):
        super().__init__()
        session = Session(StoreAccess(folder / "none.db"), settings or Settings(), None)
        self.table = PagedTable(session, columns, what="things")
        self._rows = [
            Row(str(i), {c.key: cell for c in columns}, {c.key: i for c in columns})
            for i in range(rows)
        ]

    def compose(self):
        yield self.table
        yield KeyBar()

    def on_mount(self):
        self.table.show_rows(self._rows)
        self.table.focus_rows()


async def test_a_sorted_column_shows_its_arrow_whatever_its_width(tmp_path):
    async with running(TableApp(tmp_path, cell="1"), (80, 12)) as (app, pilot):
        for column in COLUMNS:
            app.table.sort_by(column.key)
            await settled(pilot)
            assert f"{column.label} ▲" in lines_of(app)[0]
        app.table.action_reverse()
        await settled(pilot)
        assert f"{column.label} ▼" in lines_of(app)[0]


async def test_a_cell_is_whole_or_not_there(tmp_path):
    columns = [Column(f"k{i}", f"k{i}", right=True) for i in range(12)]
    async with running(TableApp(tmp_path, columns=columns), (39, 12)) as (app, pilot):
        for width in range(40, 60):
            await pilot.resize_terminal(width, 12)
            await settled(pilot)
            assert set(lines_of(app)[1].split()) == {"0.459"}, width


async def test_the_column_to_sort_by_is_picked(tmp_path):
    async with running(TableApp(tmp_path), (80, 24), "s") as (app, pilot):
        assert isinstance(app.screen, PickOne)
        await press(pilot, "down", "enter")
        assert app.table.query_now.sort == "eff"
        await press(pilot, "s")
        assert app.screen.query_one(OptionList).highlighted == 1  # the one it is sorted by
        await press(pilot, "enter")
        assert app.table.query_now.sort == "eff"
        assert app.table.query_now.descending  # once more turns it round


async def test_the_footer_says_how_to_go_through_the_pages(tmp_path):
    three_pages = TableApp(tmp_path, rows=25, settings=Settings(rows=10))
    async with running(three_pages, (120, 24)) as (app, pilot):

        def keys():
            return str(app.screen.query_one(KeyBar).content)

        assert "] Next page" in keys()
        assert "[ Page before" not in keys()
        await press(pilot, "right_square_bracket")
        assert "] Next page" in keys()
        assert "[ Page before" in keys()
        await press(pilot, "right_square_bracket")
        assert "] Next page" not in keys()


async def test_columns_narrow_away_in_every_table_of_a_small_terminal(make_app, store, tmp_path):
    model = register_model(tmp_path, "plain", sure=True, default=True)
    register_model(tmp_path, "stages", stage=0.1)
    store.import_table(make_timings(80), key="x", spec={"file": "gemm"})
    judge(store, model)
    async with running(make_app(), (80, 24)) as (app, pilot):
        for keys in ("M", "V", "3", "4", "D", "RH", "W"):
            await press(pilot, *keys)
            for table in app.screen.query(PagedTable):
                if table.region:
                    assert table.grid.max_scroll_x == 0, (keys, table.what)
                    left_out = len(table.columns) - len(table.grid.columns)
                    if left_out:
                        words = f"{left_out} more column{'s' if left_out > 1 else ''}: → ←"
                        assert words in text_of(app), (keys, table.what)
        await press(pilot, "D", "enter")
        assert app.screen.query_one("#problem-candidates", PagedTable).grid.max_scroll_x == 0


async def test_columns_without_room_are_reached_sideways(make_app, store):
    store.import_table(make_timings(20), key="x", spec={})
    async with running(make_app(), (80, 24), "D") as (app, pilot):
        grid = app.screen.query_one(PagedTable).grid
        first = grid.columns
        seen = set(first)
        for _ in grid.all_columns:
            await press(pilot, "right")
            assert grid.columns[0].key == "problem"  # which row it is stays visible
            seen |= set(grid.columns)
        assert seen == set(grid.all_columns)
        assert grid.columns[-1].key == "timings"
        assert f"{grid.left_out} more columns: → ←" in text_of(app)
        await press(pilot, *["left"] * len(grid.all_columns))
        assert grid.columns == first


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_is_compared_is_wrapped_and_not_clipped(make_app, store, size):
    queries = [f"op:mm dtype:bf16 m<={2**i} n<={2**i} k%8=0 -layout:row/col" for i in (4, 9, 14)]
    for query in queries:
        make_training(store, "trees", 0.9, {"query": query})
    async with running(make_app(), size, "R") as (app, pilot):
        await press(pilot, "space", "down", "space", "down", "v")
        table = app.screen.query_one(PagedTable)
        assert table.grid.virtual_size.width <= table.grid.size.width
        shown = _cells(table)
        for run, query in zip((1, 2, 3), queries, strict=True):
            column = [cells[str(run)] for cells in shown]
            assert query in column
        await pilot.resize_terminal(220, 40)
        await settled(pilot)
        assert any(queries[0] in line for line in lines_of(app))  # on one line where there is room


def _cells(table) -> list[dict[str, str]]:
    """The texts of the cells that are drawn, the lines of a cell together."""
    rows = (table.grid.cells_of(row) for row in range(table.grid.row_count))
    return [{column: text for column, (text, _) in row.items()} for row in rows]


@pytest.mark.usefixtures("nothing_shipped")
async def test_two_models_are_compared_whole_at_80_columns(make_app, store, tmp_path, monkeypatch):
    for name in ("plain", "stages"):
        register_model(tmp_path, name)
    left = {"data": "collect 1, collect 2, import of a file with a long name, of October"}
    right = {"data": "collect 1, collect 2, import of a file with a long name, of November"}
    sides = iter((left, right))
    monkeypatch.setattr(
        registry,
        "side_by_side",
        lambda _: {**next(sides), "problems": 4, "hardware": "NVIDIA H200"},
    )
    async with running(make_app(), (80, 24), "M", "c", "enter") as (app, _pilot):
        commands = [("Back", "diode-engine models compare plain@1 stages@1")]
        assert app.screen.headless_commands() == commands
        table = app.screen.query_one(PagedTable)
        assert table.grid.virtual_size.width <= table.grid.size.width
        shown = {cells["fact"]: cells for cells in _cells(table)}
        assert list(shown["data"].values()) == ["data", left["data"], right["data"]]


# Rows that are held in memory, in pages


ROWS = tuple(
    Row(name, {"name": name, "us": str(us or "")}, {"name": name, "us": us})
    for name, us in (("mm Tall", 3.0), ("mm flat", None), ("bmm tall", 1.0), ("addmm", 2.0))
)


def keys(page: Page) -> list[str]:
    return [row.key for row in page.rows]


def test_a_page_of_all_in_the_given_order():
    page = page_in_memory(ROWS, PageQuery(page=1, rows=3))
    assert keys(page) == ["addmm"]
    assert page.total == 4


@pytest.mark.parametrize(
    ("words", "found"),
    [("tall", ["mm Tall", "bmm tall"]), ("TALL -bmm", ["mm Tall"]), ("tall flat", []), ("-", [])],
)
def test_words_filter(words, found):
    page = page_in_memory(ROWS, PageQuery(filter=words))
    assert keys(page) == found
    assert page.total == len(found)


@pytest.mark.parametrize("descending", [False, True])
def test_sorted_by_values_and_what_has_none_comes_last(descending):
    known = ["bmm tall", "addmm", "mm Tall"]
    page = page_in_memory(ROWS, PageQuery(sort="us", descending=descending))
    assert keys(page) == [*(reversed(known) if descending else known), "mm flat"]
