"""diode-engine db and completion."""

import json
from pathlib import Path

import pytest
import zstandard

from diode_engine.store import Store
from diode_engine.store.schema import HEAD
from tests.cli.conftest import execute

EARLIER = Path(__file__).parents[1] / "store" / "earlier"


def test_a_backup_is_a_store_with_the_same_timings(run, store, tmp_path):
    copy = tmp_path / "copy.db"
    with Store.open(store) as opened:  # others may have it open
        ran = run("db", "backup", copy, "--store", store, "--json")
        there = len(opened.read())
    assert ran.json()["bytes"] == copy.stat().st_size
    assert not list(tmp_path.glob("copy.db-*"))
    with Store.open(copy, read_only=True) as opened:
        assert len(opened.read()) == there == 48
    run("db", "backup", copy, "--store", store).says(1, "there already", "pass --replace")
    assert run("db", "backup", copy, "--store", store, "--replace").code == 0


def test_check_finds_timings_that_were_deleted_and_problems_that_were_changed(run, store):
    sound = run("db", "check", "--store", store, "--json")
    assert (sound.code, sound.json()["sound"]) == (0, True)
    execute(
        store,
        "DELETE FROM timings WHERE candidate % 2",
        "UPDATE problems SET M = M + 1 WHERE id = 1",
    )
    broken = run("db", "check", "--store", store, "--json")
    problems = json.loads(broken.out)["problems"]
    assert (broken.code, json.loads(broken.out)["sound"]) == (1, False)
    assert any("deleted: 12" in said for said in problems)
    assert any("do not fit their keys" in said for said in problems)


def test_a_newer_schema_wants_a_newer_diode_and_no_upgrade(run, store):
    execute(store, "UPDATE alembic_version SET version_num = '9999'")
    before = store.read_bytes()
    for words in ("db check", "db upgrade", "data stats", "data import none.json"):
        ran = run(*words.split(), "--store", store)
        ran.says(1, "written by a newer Diode", "update Diode")
        assert "db upgrade" not in ran.err
    assert store.read_bytes() == before
    assert not list(store.parent.glob("*.bak"))


@pytest.mark.parametrize("words", ["upgrade", "check", "vacuum", "query VALUES(1)"])
def test_another_programs_file_is_left_alone(run, tmp_path, words):
    foreign = tmp_path / "foreign.db"
    execute(foreign, "CREATE TABLE theirs (x)")
    before = foreign.read_bytes()
    run("db", *words.split(), "--store", foreign).says(1, "another program")
    assert foreign.read_bytes() == before


def test_an_earlier_store_is_upgraded_and_kept(run, tmp_path):
    old = tmp_path / "old.db"
    packed = (EARLIER / "schema-0001.db.zst").read_bytes()
    old.write_bytes(zstandard.ZstdDecompressor().decompressobj().decompress(packed))
    checked = run("db", "check", "--store", old)
    assert checked.code == 0
    assert "0001" in checked.out
    assert "db upgrade" in checked.err
    done = run("db", "upgrade", "--store", old, "--json").json()
    assert (done["before"], done["now"]) == ("0001", HEAD)
    assert (tmp_path / "old.db.schema-0001.bak").is_file()
    assert "the newest one" in run("db", "upgrade", "--store", old).out


def test_vacuum_gives_the_space_back(run, store):
    execute(
        store,
        "CREATE TABLE much (x)",
        "INSERT INTO much VALUES (zeroblob(500000))",
        "DROP TABLE much",
    )
    done = run("db", "vacuum", "--store", store, "--json").json()
    assert done["after"] < done["before"]
    assert done["after"] == store.stat().st_size
    assert run("db", "check", "--store", store).code == 0


def test_a_statement_is_answered_as_text_json_and_csv(run, store):
    sql = "SELECT op, count(*) AS problems FROM problems GROUP BY op"
    assert run("db", "query", sql, "--store", store).out.split() == [
        "op", "problems", "──", "────────", "mm", "12",
    ]  # fmt: skip
    assert run("db", "query", sql, "--json", "--store", store).json() == [
        {"op": "mm", "problems": 12}
    ]
    assert run("db", "query", sql, "--csv", "--store", store).out == "op,problems\nmm,12\n"


def test_the_limits_of_a_query_are_said(run, store):
    run("db", "query", "DELETE FROM timings", "--store", store).says(1, "it begins with DELETE")
    sql = "SELECT id FROM problems ORDER BY id"
    few = run("db", "query", sql, "--rows", "3", "--csv", "--store", store)
    assert (few.code, few.out) == (0, "id\n1\n2\n3\n")
    assert "more than 3 rows" in few.err
    run("db", "query", "SELECT id FROM problems WHERE 1 = 0", "--store", store).says(0, "no rows")


def test_without_a_statement_the_tables_are_listed(run, store):
    listed = run("db", "query", "--store", store).out
    assert "timings: one timing of a candidate" in listed
    assert "    sweep (integer, of sweeps.id)" in listed
    columns = run("db", "query", "--json", "--store", store).json()
    assert {"table": "problems", "name": "M", "type": "integer", "refers_to": ""} in columns
