"""SQL statements that only read, on both kinds of store."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from diode_engine.errors import StoreError
from diode_engine.location import location_of
from diode_engine.store import Store, console
from diode_engine.store.backends import backend_of
from tests.training.conftest import make_timings

TIMINGS = make_timings(12)
FOREVER = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"


@pytest.fixture
def at(place):
    """A store with timings."""
    with Store.open(place) as store:
        store.import_table(TIMINGS, key="x", spec={"files": ["x"]})
        store.tag(1, "kept")
    return place


def ask(at: str | Path, statement: str, **options: object) -> console.Answer:
    return console.ask(location_of(at), statement, **options)  # type: ignore[arg-type]


def test_an_answer_has_columns_and_rows(at):
    found = ask(at, "SELECT op, count(*) AS problems, sum(2) FROM problems GROUP BY op;")
    assert found == console.Answer(("op", "problems", found.columns[2]), (("mm", 12, 24),))
    assert len(ask(at, "SELECT 1.5 AS a, 2 AS a, NULL AS a").columns) == 3
    assert ask(at, "SELECT 1.5 AS a, 2 AS a, NULL AS a").columns == ("a", "a 2", "a 3")


def test_rows_beyond_the_limit_are_not_read(at):
    cut = ask(at, "SELECT id FROM problems ORDER BY id", rows=5)
    assert (len(cut.rows), cut.more) == (5, True)
    whole = ask(at, "SELECT id FROM problems ORDER BY id", rows=12)
    assert (len(whole.rows), whole.more) == (12, False)


def test_long_values_are_cut(at):
    with Store.open(at) as store:
        store.set_note(1, "x" * 5000)
    ((note,),) = ask(at, "SELECT note FROM runs").rows
    assert note == "x" * console.LONGEST + "… (5,000 characters)"
    blob = "x'00ff'" if isinstance(at, Path) else "'\\x00ff'::bytea"
    assert ask(at, f"SELECT {blob} AS b").rows == (("2 bytes: 00ff",),)


STATEMENTS = [
    "DELETE FROM timings",
    "UPDATE runs SET note = 'x'",
    "INSERT INTO tags VALUES (1, 'x')",
    "DROP TABLE timings",
    "CREATE TABLE mine (x integer)",
    "CREATE TEMP TABLE mine (x integer)",
    "BEGIN",
    "COMMIT",
    "PRAGMA query_only = OFF",
    "ATTACH 'other.db' AS other",
    "VACUUM INTO 'other.db'",
    "VACUUM",
    "SELECT load_extension('other.so')",
    "COPY problems TO PROGRAM 'touch other.db'",
    "WITH n AS (SELECT 1) DELETE FROM timings",
    "WITH gone AS (DELETE FROM timings RETURNING *) SELECT * FROM gone",
    "SELECT * INTO mine FROM problems",
    "SELECT nextval('runs_id_seq')",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT id FROM runs FOR UPDATE",
    "SELECT 1; DELETE FROM timings",
    "SELECT 1; COMMIT; SET default_transaction_read_only = off; COMMIT; DELETE FROM tags",
    "",
    "-- nothing",
    "/* SELECT */ DELETE FROM timings",
    "-- SELECT\nDELETE FROM timings",
    "SELECT ?",
    "SELECT * FROM no_such_table",
    "SELECT '\udcff'",
    "SELECT '\x00'",
    "SELECT (",
]


def contents(at: str | Path) -> object:
    counted = "SELECT (SELECT count(*) FROM timings), (SELECT count(*) FROM tags), note FROM runs"
    return ask(at, counted).rows


@pytest.mark.parametrize(
    "ask_it",
    [
        ask,
        lambda at, statement: backend_of(location_of(at)).answer(
            statement, rows=5, seconds=10, shorten=tuple
        ),
    ],
    ids=["ask", "the database itself"],
)
def test_what_is_no_query_is_refused_and_changes_nothing(at, tmp_path, monkeypatch, ask_it):
    monkeypatch.chdir(tmp_path)
    before = contents(at)
    for statement in STATEMENTS if ask_it is ask else filter(str.isprintable, STATEMENTS):
        with pytest.raises(StoreError, match="The statement is not answered: "):
            ask_it(at, statement)
        assert contents(at) == before, statement
    assert not Path("other.db").exists()


def test_a_statement_that_takes_too_long_is_ended(at):
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"not answered within 0\.3 s"):
        ask(at, FOREVER, seconds=0.3)
    assert time.monotonic() - began < 10


def test_a_large_value_is_refused(tmp_path):
    Store.open(tmp_path / "diode.db").close()
    with pytest.raises(StoreError, match="too big"):
        ask(tmp_path / "diode.db", "SELECT length(zeroblob(900000000))")


def test_every_table_and_column_that_is_listed_is_there(at):
    columns = console.store_columns()
    assert {column.table for column in columns} == set(console.TABLES)
    for column in columns:
        ask(at, f'SELECT "{column.name}" FROM {column.table}', rows=1)
    references = {(c.table, c.name): c.refers_to for c in columns if c.refers_to}
    assert references["timings", "sweep"] == "sweeps.id"
