"""The page SQL, and counting the rows of any table."""

from __future__ import annotations

import csv

from textual.widgets import Input, TextArea

from diode_app.data.answers import answer_table, group_rows
from diode_app.data.tables import Column, Row
from diode_app.links import Link, link_to
from diode_app.screens.data import DataScreen
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.run import RunScreen
from diode_app.screens.sql import SqlScreen, chart
from diode_app.settings import load
from diode_app.widgets.modals import PickOne
from diode_app.widgets.plot import Plot
from diode_app.widgets.table import PagedTable, TableDialog
from diode_engine.store import Store
from diode_engine.store.console import Answer
from tests.app.waiting import enter, looked, press, running, settled, text_of
from tests.training.conftest import make_timings


async def ask(pilot, statement: str) -> PagedTable:
    """Puts a statement into the page, and waits for its answer."""
    pilot.app.screen.query_one(TextArea).load_text(statement)
    await press(pilot, "ctrl+g")
    return pilot.app.screen.query_one("#sql-table", PagedTable)


async def test_an_answer_is_a_table_to_sort_plot_and_export(make_app, filled, tmp_path):
    async with running(make_app(), (120, 40), "Q") as (app, pilot):
        table = await ask(pilot, "SELECT id, m AS size, op FROM problems ORDER BY id")
        assert [column.label for column in table.columns] == ["id", "size", "op"]
        assert "12 rows in" in text_of(app)
        assert app.focused is table.grid  # letters are the page's keys
        table.sort_by("size")
        table.sort_by("size")
        await settled(pilot)
        sizes = [row.record["size"] for row in table.page.rows]
        assert sizes == sorted(sizes, reverse=True)
        await press(pilot, "v")
        (drawn,) = app.screen.query_one(Plot).charts
        assert (drawn.x_label, [line.name for line in drawn.lines]) == ("id", ["size"])
        await press(pilot, "v", "e")
        await enter(pilot, str(tmp_path / "sizes.csv"))
        with (tmp_path / "sizes.csv").open() as file:
            assert [int(row["size"]) for row in csv.DictReader(file)] == sizes


async def test_a_mistake_and_a_write_are_said_and_the_statement_stays(make_app, filled):
    async with running(make_app(), (120, 40), "Q") as (app, pilot):
        for statement, said in (
            ("SELECT none FROM problems", "no such column: none"),
            ("DELETE FROM timings", "it begins with DELETE; only a query"),
        ):
            await ask(pilot, statement)
            assert said in text_of(app)
            assert app.screen.query_text == statement
        assert len(filled.read()) > 0


async def test_capital_letters_are_text_in_the_statement_and_escape_leaves_it(make_app, filled):
    async with running(make_app(), (120, 40), "Q") as (app, pilot):
        await press(pilot, "n", "ctrl+a", *"SELECT", "q")
        assert isinstance(app.screen, SqlScreen)
        assert "SELECTq" in app.screen.query_one(TextArea).text
        await press(pilot, "escape")
        assert isinstance(app.screen, SqlScreen)
        await press(pilot, "R")
        assert app.current_mode == "runs"


async def test_enter_puts_a_column_into_the_statement(make_app, filled):
    async with running(make_app(), (80, 24), "Q") as (app, pilot):
        assert "best_us" not in [w.id for w in app.screen.query("#sql-schema") if w.region]
        await press(pilot, "t")
        assert "PROBLEMS" in text_of(app)
        app.screen.query_one(TextArea).load_text("")
        await press(pilot, "down", "down", "down", "enter")
        assert app.screen.query_text == "op"
        assert isinstance(app.focused, TextArea)


async def test_enter_on_a_row_opens_its_run_or_its_problem(make_app, filled):
    async with running(make_app(), (120, 40), "Q") as (app, pilot):
        await ask(pilot, "SELECT problem FROM summaries ORDER BY problem LIMIT 1")
        await press(pilot, "enter")
        assert isinstance(app.screen, DataScreen)
        assert app.screen.table.query_now.filter == "id:1"
        await press(pilot, "Q")
        await ask(pilot, "SELECT id AS run FROM runs")
        await press(pilot, "enter")
        assert isinstance(app.screen, RunScreen)


async def test_a_statement_is_saved_found_and_linked_to(make_app, filled, tmp_path):
    statement = "SELECT count(*) AS many\nFROM problems"
    async with running(make_app(), (120, 40), "Q") as (app, pilot):
        await ask(pilot, statement)
        assert link_to(app.screen) == Link("sql", filter=statement)
        await press(pilot, "b")
        await enter(pilot, "how many")
        assert load(tmp_path / "dashboard.toml").filters == {"how many": f"sql {statement}"}
        await ask(pilot, other := "SELECT 1 WHERE 1 = 0")
        await press(pilot, "H", "colon")
        app.screen.query_one(Input).value = "how many"
        await press(pilot, "down", "enter")
        assert app.screen.query_text == statement
        assert "1 row in" in text_of(app)
        await press(pilot, "p")  # the one before
        assert app.screen.query_text == other


def test_columns_of_texts_and_numbers_are_told_apart():
    answer = Answer(("name", "us"), (("a", 1.5), ("b", None)))
    columns, rows = answer_table(answer)
    assert [column.right for column in columns] == [False, True]
    assert [row.cells["us"] for row in rows] == ["1.5", "–"]
    (drawn,) = chart(columns, rows)
    assert (drawn.x_label, [line.ys for line in drawn.lines]) == ("row", [[1.5]])
    assert chart(*answer_table(Answer(("name",), (("a",),)))) == []
    assert answer_table(Answer(("none",), ()))[1] == []


def test_groups_are_counted_with_medians_the_most_frequent_first():
    columns = (
        Column("id", "id", right=True), Column("op", "op"), Column("us", "time", right=True),
    )  # fmt: skip
    rows = [
        Row(op + us, {"op": op, "us": us})
        for op, us in (("mm", "1,000"), ("bmm", "5"), ("mm", "3.5"), ("", "–"), ("mm", "−9 %"))
    ]
    shown, groups = group_rows(rows, columns[1], columns)
    assert [column.label for column in shown] == ["op", "rows", "share", "median time"]
    assert [(r.record["value"], r.record["rows"], r.record["median us"]) for r in groups] == [
        ("mm", 3, 3.5), ("bmm", 1, 5.0), ("–", 1, None),
    ]  # fmt: skip


async def test_any_table_is_counted_by_a_column(make_app, filled):
    async with running(make_app(), (120, 40), "D", "number_sign") as (app, pilot):
        assert isinstance(app.screen, PickOne)
        await press(pilot, *["down"] * 6, "enter")
        assert isinstance(app.screen, TableDialog)
        shown = text_of(app)
        assert "12 problems by dtype" in shown
        assert "bf16 12 100" in shown
        assert "median best" in shown
        await press(pilot, "enter")
        assert "dtype: bf16" in text_of(app)
        assert "12 problems" in text_of(app)
        await press(pilot, "down", "enter")
        assert isinstance(app.screen, ProblemScreen)
        wanted = app.screen.values()["key"]
        await press(pilot, "escape")
        assert isinstance(app.screen, DataScreen)
        assert app.screen.table.pointed.startswith(f"{wanted}/")
        assert app.screen.table.grid.cursor_row == 1


async def test_a_statement_that_found_no_store_is_answered_when_there_is_one(make_app, path):
    async with running(make_app(), (120, 40), "Q") as (app, pilot):
        await press(pilot, "ctrl+g")
        with Store.open(path) as store:
            store.import_table(make_timings(12), key="x", spec={})
        await looked(pilot)
        assert "no store" not in text_of(app)
        assert "1 row in" in text_of(app)
