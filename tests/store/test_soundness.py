"""A check finds what was changed behind Diode's back, and says "sound" of nothing else."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.errors import StoreError
from diode_engine.location import Location, ServerUrl, location_of
from diode_engine.store import (
    Store,
    bulk,
    checksums,
    export_dataset,
    problem_counts,
    query,
    run_query,
    schema,
    soundness,
)
from tests.postgresql_server import PostgresServer
from tests.store.conftest import load_migration, make_table, one_product


def fill(where: str | Path, make_table: Callable[..., TimingTable]) -> None:
    """Two runs that have timed the same problems, one of them in two pieces, and a third that has
    a result."""
    with Store.open(where) as store:
        first, second, third = (store.start_run("collect", {"by": i}) for i in range(3))
        store.add(first, make_table(20, 10))
        store.add(second, make_table(20, 6))
        store.add(first, make_table(5, 10))
        store.set_result(third, {"efficiency": 0.9})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    where = tmp_path_factory.mktemp("made") / "diode.db"
    fill(where, make_table)
    return where


@pytest.fixture(scope="module")
def made_on_server(postgres_server):
    """The name of the database that has the same."""
    postgres_server.execute("CREATE DATABASE made")
    url = postgres_server.url("made").replace("@", f":{postgres_server.password}@")
    fill(url, make_table)
    yield "made"
    postgres_server.execute("DROP DATABASE made WITH (FORCE)")


@pytest.fixture
def path(made, tmp_path):
    """A store of a test's own."""
    return Path(shutil.copy(made, tmp_path))


@pytest.fixture(params=["file", "server"])
def where(request):
    """The same, of both kinds."""
    if request.param == "file":
        yield request.getfixturevalue("path")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    template = request.getfixturevalue("made_on_server")
    server.execute(f"CREATE DATABASE changed TEMPLATE {template}")
    yield location_of(server.url("changed"))
    server.execute("DROP DATABASE changed WITH (FORCE)")


def execute(where: Location, *statements: str) -> None:
    """Without what the database itself would refuse."""
    if isinstance(where, ServerUrl):
        import psycopg

        with psycopg.connect(host=where.host, port=where.port, user=where.user,
                             dbname=where.database) as there:  # fmt: skip
            there.execute("SET session_replication_role = replica")  # no references
            for statement in statements:
                translated = statement.replace("= x'", "= '\\x")
                assert there.execute(translated.encode()).rowcount, statement
        return
    with closing(sqlite3.connect(where)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            assert connection.execute(statement).rowcount, statement


def test_what_diode_writes_is_sound(path):
    assert soundness.check(path) == soundness.Soundness(schema.HEAD, schema.HEAD, ())
    Store.open(path.with_name("empty.db")).close()
    assert soundness.check(path.with_name("empty.db")).problems == ()


# Statements, and what the check says of the store after them.
CHANGED_BEHIND_ITS_BACK = [
    ("DELETE FROM timings WHERE candidate % 2 = 1",
     r"Problems with timings of a run .* deleted: 40 \(the first: problem 1\)"),
    ("DELETE FROM timings WHERE sweep = 3",
     r"Problems with timings of a run .* deleted: 1 \(the first: problem 3\)"),
    ("DELETE FROM timings WHERE sweep = 3; DELETE FROM sweeps WHERE id = 3",
     "Problems with a summary"),
    ("UPDATE timings SET min_us = median_us WHERE sweep = 3 AND candidate = 2",
     "Problems with timings of a run .* deleted: 1 "),
    ("UPDATE timings SET spread_us = spread_us * 2 WHERE sweep = 3 AND candidate = 2",
     "Problems with timings of a run .* deleted: 1 "),
    ("UPDATE timings SET min_us = -1 WHERE sweep = 3 AND candidate = 2",
     "Timings with a time, a spread or a count that cannot be: 2"),
    ("UPDATE timings SET candidate = 9 WHERE sweep = 33 AND candidate = 2",
     "Problems with timings of a run .* deleted: 1 "),
    ("UPDATE sweeps SET problem = 4, run = 3 WHERE id = 3",
     "Problems with a summary that is not what their timings say: 2"),
    ("UPDATE sweeps SET run = 3 WHERE id = 3",
     r"Runs with other counts than timings: 2 \(the first: run 1\)"),
    ('UPDATE problems SET "M" = "M" + 1 WHERE id = 5',
     r"Problems that do not fit their keys.*: 1 \(the first: number 5\)"),
    ("UPDATE problems SET op = 'm' WHERE id = 5", "Problems that do not fit .*: 1"),
    ("""UPDATE candidates SET kwargs = replace(kwargs, 'warps":2', 'warps":4') WHERE id = 3""",
     "Candidates that do not fit .*: 1"),
    ("UPDATE candidates SET kwargs = '[' WHERE id = 3", "Candidates that do not fit .*: 1"),
    ("UPDATE environments SET name = 'NVIDIA H100'", "Environments that do not fit .*: 1"),
    ("UPDATE summaries SET best_us = best_us * 1.001 WHERE problem = 7",
     r"Problems with a summary .*: 1 \(the first: problem 7\)"),
    ("DELETE FROM summaries WHERE problem = 7", "Problems with a summary .*: 1"),
    ("UPDATE tallies SET timings = timings + 1 WHERE run = 2 AND failure = 0",
     r"Runs with other counts than timings: 1 \(the first: run 2\)"),
    ("DELETE FROM tallies WHERE run = 2", "Runs with other counts than timings: 1"),
    ("UPDATE failures SET reason = 'timeoux' WHERE reason = 'timeout'",
     "reasons of failure .*'timeoux'"),
    ("UPDATE runs SET state = 'dont' WHERE id = 2", "Runs that cannot be read: 1"),
    ("UPDATE runs SET spec = '{' WHERE id = 2", "Runs that cannot be read: 1"),
    ("UPDATE runs SET spec = '[]'", "Runs that .*: 3"),
    ("UPDATE results SET document = x'00'", r"Runs with a result .*: 1 \(the first: run 3\)"),
    ("DELETE FROM candidates WHERE id = 1",
     "45 rows of timings refer to candidates that are not there"),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "said"), CHANGED_BEHIND_ITS_BACK)
def test_what_was_changed_behind_its_back_is_found(where, statements, said):
    execute(where, *statements.split("; "))
    found = " ".join(soundness.check(where).problems)
    assert re.search(said, found), found


USES: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read(),
    "export": lambda store: export_dataset(store, "out.packed.zst"),
    "stats": lambda store: store.stats(),
    "page": lambda store: query.problems(store),
    "candidates": lambda store: query.candidates(store, 3, 1),
    "statistics": lambda store: problem_counts.statistics(store),
    "runs": lambda store: run_query.runs(store),
    "contents": lambda store: run_query.run_contents(store, 1),
    "result": lambda store: store.result(3),
}
IN_TIMINGS = [
    "DELETE FROM candidates WHERE id = 1",
    "DELETE FROM problems WHERE id = 3",
    "DELETE FROM sweeps",
    "DELETE FROM sweeps WHERE id = 3",
    "DELETE FROM sweeps WHERE id = (SELECT max(id) FROM sweeps)",
    "DELETE FROM environments",
    "DELETE FROM failures",
    "UPDATE timings SET candidate = 1 << 31 WHERE sweep = 3 AND candidate = 2",
    "UPDATE sweeps SET problem = 1 << 31 WHERE id = 3",
    "UPDATE timings SET failure = 1 << 31 WHERE failure IS NOT NULL AND sweep = 3",
    "UPDATE candidates SET kwargs = '7'",
    """UPDATE candidates SET kwargs = '{"a": {}}'""",
    "UPDATE problems SET dtype = 'bfloat'",
    "UPDATE timings SET repeats = -1 WHERE sweep = 3",
]
ELSEWHERE = [
    "UPDATE runs SET state = ''",
    "UPDATE runs SET started = 1e300",
    "UPDATE runs SET command = '7'",
    "UPDATE results SET document = x''",
]


@pytest.mark.parametrize("damage", IN_TIMINGS + ELSEWHERE)
def test_whatever_is_asked_of_a_damaged_store_is_answered_or_refused(
    where, damage, tmp_path, monkeypatch
):
    """An answer is given only where the damage is elsewhere; whatever is refused is a sentence."""
    if "1 << 31" in damage and not isinstance(where, Path):
        pytest.skip("a reference on a server has 32 bits")
    monkeypatch.chdir(tmp_path)
    with Store.open(where) as store:
        sound = {name: use(store) for name, use in USES.items() if name != "read"}
        rows = len(store.read())
    execute(where, damage)
    assert soundness.check(where).problems
    refused = []
    with Store.open(where, read_only=True) as store:
        for name, use in USES.items():
            try:
                answer: Any = use(store)
            except StoreError:
                refused.append(name)
            else:
                assert len(answer) == rows if name == "read" else type(answer) is type(sound[name])
    assert ("read" in refused) is (damage in IN_TIMINGS)
    assert "export" in refused  # whatever is damaged


def test_a_checksum_follows_from_the_timings_alone(tmp_path):
    """Written at once or in pieces, and by the migration, it is the same."""
    table = make_table(4, 10)
    sums = []
    for name, pieces in (("once", [slice(0, 40)]), ("pieces", [slice(0, 7), slice(7, 40)])):
        with Store.open(tmp_path / f"{name}.db") as store:
            run = store.start_run("collect", {})
            for piece in pieces:
                store.add(run, table.take(np.arange(40)[piece]))
            with store.writes() as connection:
                query = sa.select(schema.sweeps.c.problem, schema.sweeps.c.checksum)
                sums.append([tuple(row) for row in connection.execute(query)])
                connection.execute(sa.update(schema.sweeps).values(checksum=0))
                migration = load_migration("0004_checksums")
                migration.write_checksums(connection.connection.driver_connection)
                sums.append([tuple(row) for row in connection.execute(query)])
    assert sums[0] == sums[1] == sums[2] == sums[3]
    assert len({value for _, value in sums[0]}) == 4
    assert all(0 < value < 10 * 2**31 for _, value in sums[0])


def test_equal_times_have_equal_numbers_and_others_do_not():
    def number(spread_us: float) -> int:
        row = np.array([(1, 1, 0, 2.0, 2.0, spread_us, 30, 0)], bulk.TIMING_ROW)
        return int(checksums.of_timings(row)[0])

    assert number(0.0) == number(-0.0)
    assert len({number(us) for us in (float("nan"), 0.0, 1.0, np.nextafter(1.0, 2))}) == 4


def test_a_store_that_is_damaged_can_still_be_written_to(path):
    execute(path, "UPDATE runs SET state = 'dont' WHERE id = 2")
    with Store.open(path) as store:
        run = store.start_run("collect", {})
        store.add(run, one_product(Timing(min_us=1.0)))
    assert len(soundness.check(path).problems) == 1
