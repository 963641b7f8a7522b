"""Opening: fresh, at once by several, foreign, newer, older, read-only."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
import zstandard

from diode_engine.errors import StoreError, StoreLockedError, StoreMissingError
from diode_engine.store import Store, migrations, schema, soundness
from diode_engine.store.backends import backend_of, sqlite, sqlite_connection
from diode_engine.store.backends.backend import Backend
from diode_engine.store.schema import HEAD
from tests.store.conftest import as_rows, make_table


@pytest.fixture(autouse=True)
def _migrated(monkeypatch):
    """Each new store is made by the migrations, as in a user's process."""
    monkeypatch.setattr(sqlite.SqliteBackend, "migrate", Backend.migrate)


@pytest.fixture
def path(tmp_path):
    """A closed store with one run and its timings."""
    where = tmp_path / "diode.db"
    with Store.open(where) as store:
        store.add(store.start_run("collect", {}), make_table())
    return where


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def execute(path: Path, *statements: str) -> list:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def test_the_migrations_lead_to_the_schema_of_the_code(tmp_path):
    migrated = tmp_path / "migrated.db"
    Store.open(migrated).close()
    created = tmp_path / "created.db"
    engine = sa.create_engine(f"sqlite:///{created}")
    schema.metadata.create_all(engine)
    engine.dispose()
    query = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'alembic%' ORDER BY name"
    ours = [row for row in execute(migrated, query) if "alembic" not in row[0]]

    def plain(rows):
        # Alembic writes the constraints of a table in another order, and quotes the names of one
        # that it has made anew.
        return [
            (name, sorted(line.strip(" \t,)") for line in _plain(sql or "").splitlines()))
            for name, sql in rows
        ]

    def _plain(sql):
        return sql.replace('"', "").replace(") STRICT", ")\nSTRICT")

    assert plain(ours) == plain(execute(created, query))
    assert execute(migrated, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("content", [b"no database at all, only some text" * 50, None])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "other.db"
    if content is None:
        execute(path, "CREATE TABLE alembic_version (version_num TEXT)")
    else:
        path.write_bytes(content)
    before = digest(path)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"other\.db is (not a Diode store|an SQLite file)"):
            Store.open(path, read_only=read_only)
    assert digest(path) == before


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        Store.open(tmp_path / "file" / "diode.db")


def test_a_store_with_a_strange_name_opens(tmp_path):
    path = tmp_path / "100% a?b#c" / "d.db"
    Store.open(path).close()
    assert path.is_file()


# A reader that may not write the folder


@pytest.fixture
def unwritable(monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))


@pytest.mark.usefixtures("unwritable")
def test_it_reads_what_the_owner_writes_and_goes_on_reading(path):
    with Store.open(path, read_only=True) as reader:
        there = as_rows(reader.read())
        for first in (100, 2000, 3000):  # enough for the file to become another one
            table = make_table(40, 50, first=first)
            there += as_rows(table)
            with Store.open(path) as owner:
                owner.add(1, table)
                assert as_rows(reader.read()) == there  # by the owner's WAL
            assert as_rows(reader.read()) == there  # and without
        assert soundness.check(path).problems == ()


@pytest.mark.usefixtures("unwritable")
def test_what_it_reads_while_the_owner_writes_it_does_not_believe(path):
    with Store.open(path, read_only=True) as reader:

        def half(fails: Exception | None) -> None:
            with reader.reads() as connection:
                connection.execute(sa.select(schema.timings)).fetchone()
                with Store.open(path) as owner:
                    owner.add(1, make_table(40, 50, first=len(reader.runs()) * 100))
                if fails:
                    raise fails

        for fails in (
            None,
            sqlite3.DatabaseError("database disk image is malformed"),
            IndexError(),
        ):
            with pytest.raises(StoreLockedError, match="written to while it was read"):
                half(fails)
        with Store.open(path) as owner, reader.reads() as connection:  # by its WAL: protected
            owner.add(1, make_table(40, 50, first=900))
            connection.execute(sa.select(schema.timings)).fetchall()
        assert len(reader.read()) == len(make_table()) + 4 * 2000


@pytest.mark.usefixtures("unwritable")
def test_a_wal_that_goes_just_when_it_is_opened(path, monkeypatch):
    """The owner closes the store between a reader's look for the WAL and its opening it."""
    owner = Store.open(path)
    owner.add(1, make_table(first=50))
    connect = sqlite_connection._connect

    def late(where, mode):
        owner.close()
        return connect(where, mode)

    monkeypatch.setattr(sqlite_connection, "_connect", late)
    with Store.open(path, read_only=True) as reader:
        assert len(reader.read()) == 2 * len(make_table())


_DIES = """
import os, signal, sqlite3, sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = DELETE")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE timings SET repeats = 7")
connection.execute("UPDATE problems SET M = 7")
os.kill(os.getpid(), signal.SIGKILL)
"""


def half_written(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _DIES, str(path)], check=False)
    assert path.with_name("diode.db-journal").stat().st_size > 0


def test_a_reader_undoes_what_a_killed_process_began(path):
    half_written(path)
    with Store.open(path, read_only=True) as store:
        assert as_rows(store.read()) == as_rows(make_table())
    assert soundness.check(path).problems == ()


@pytest.mark.usefixtures("unwritable")
def test_a_reader_without_rights_does_not_read_what_a_killed_process_began(path):
    half_written(path)
    with pytest.raises(StoreError, match="left half written by a process that ended too soon"):
        Store.open(path, read_only=True)
    with Store.open(path) as store:  # its owner
        assert len(store.read()) == len(make_table())
    with Store.open(path, read_only=True) as store:
        assert len(store.read()) == len(make_table())


_READS = """
import os, sys
from pathlib import Path
from diode_engine.store import Store
from diode_engine.store.backends import backend_of

path, other = map(Path, sys.argv[1:])
Store.open(other).close()
with Store.open(other, read_only=True) as store:  # all modules are there now
    store.read()
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
assert not os.access(path.parent, os.W_OK)
with Store.open(path, read_only=True) as store:
    watches, seen = backend_of(path).watch(), None
    for _ in sys.stdin:
        before, seen = seen, watches.version()
        print(len(store.read()), seen != before, flush=True)
"""


def test_another_user_reads_what_the_owner_writes(tmp_path):
    """With the rights of the system, not with pretended ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "diode.db"
        with Store.open(path) as owner:
            owner.start_run("collect", {})
        Path(folder).chmod(0o555)
        child = subprocess.Popen(
            [sys.executable, "-c", _READS, str(path), str(tmp_path / "other.db")], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

        def reads() -> str:
            child.stdin.write("\n")
            child.stdin.flush()
            return child.stdout.readline().strip()

        assert reads() == "0 True"
        for n in (1, 2):
            Path(folder).chmod(0o755)
            with Store.open(path) as owner:
                owner.add(1, make_table(40, 50, first=n * 100))
            Path(folder).chmod(0o555)
            assert (reads(), reads()) == (f"{n * 2000} True", f"{n * 2000} False")
        child.communicate()
        Path(folder).chmod(0o755)
        assert child.returncode == 0


def test_a_folder_is_no_store(path):
    with pytest.raises(StoreError, match=r"cannot be opened: it, its folder, .*-wal"):
        Store.open(path.parent)


def test_a_store_that_is_cut_short_is_damaged(path):
    path.write_bytes(path.read_bytes()[:8192])
    for read_only in (True, False):
        with pytest.raises(StoreError, match=r"damaged .*; give another path, put a backup"):
            Store.open(path, read_only=read_only)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_whose_schema_is_damaged(path, read_only):
    """SQLite names the table in its message, which then is no valid UTF-8."""
    data = path.read_bytes()
    assert data.count(b"CREATE TABLE sweeps") + data.count(b'CREATE TABLE "sweeps"') == 1
    data = data.replace(b"tablesweepssweeps", b"tables\xa5eepss\xa5eeps")
    path.write_bytes(data.replace(b'CREATE TABLE "sweeps"', b'CREATE XABLE "sweeps"'))
    with pytest.raises(StoreError, match="not a Diode store, or it is damaged"):
        Store.open(path, read_only=read_only)
    with pytest.raises(StoreError, match="not a Diode store, or it is damaged"):
        soundness.check(path)


# Migrating


@pytest.fixture
def next_migration(tmp_path, monkeypatch):
    """Makes the code one migration newer, whose body is given."""

    def install(body: str) -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(migrations.migrations_folder(), folder)
        (folder / "versions" / "test.py").write_text(
            "import sqlalchemy as sa\nfrom alembic import op\n"
            f"revision = 'test'\ndown_revision = '{HEAD}'\n"
            f"def upgrade():\n{body}"
        )
        monkeypatch.setattr(migrations, "migrations_folder", lambda: folder)
        monkeypatch.setattr(schema, "HEAD", "test")

    return install


# Makes `runs` anew, which the sweeps refer to.
_REBUILD = """
    with op.batch_alter_table("runs", recreate="always") as runs:
        runs.add_column(sa.Column("user", sa.Text))
"""


def test_a_migration_makes_a_backup_first_and_loses_no_rows(path, next_migration):
    next_migration(_REBUILD)
    with pytest.raises(StoreError, match="open it once for writing"):
        Store.open(path, read_only=True)
    with Store.open(path) as store:
        assert as_rows(store.read()) == as_rows(make_table())
        assert len(store.runs()) == 1
    assert execute(path, "SELECT note FROM runs") == [(None,)]
    (made,) = execute(path, "SELECT sql FROM sqlite_master WHERE name = 'runs'")[0]
    assert made.rstrip().endswith("STRICT")
    backup = path.with_name(f"diode.db.schema-{HEAD}.bak")
    assert execute(backup, "SELECT version_num FROM alembic_version") == [(HEAD,)]
    assert execute(backup, "SELECT count(*) FROM timings") == [(len(make_table()),)]
    Store.open(path).close()
    assert len(list(path.parent.glob("*.bak"))) == 1


def test_a_backup_replaces_no_other(path, next_migration):
    other = path.with_name(f"diode.db.schema-{HEAD}.bak")
    other.write_text("mine")
    next_migration(_REBUILD)
    Store.open(path).close()
    assert other.read_text() == "mine"
    assert path.with_name(f"diode.db.schema-{HEAD}-2.bak").is_file()


@pytest.mark.parametrize(
    ("body", "raised"),
    [
        ("    op.create_table('half', sa.Column('a', sa.Integer))\n    1 / 0\n", ZeroDivisionError),
        (
            "    op.create_table('half', sa.Column('a', sa.Integer))\n"
            "    op.execute('DELETE FROM runs')\n",
            StoreError,
        ),
    ],
)
def test_a_migration_that_fails_changes_nothing(path, next_migration, body, raised):
    next_migration(body)
    with pytest.raises(raised):
        Store.open(path)
    names = [name for (name,) in execute(path, "SELECT name FROM sqlite_master")]
    assert "half" not in names
    assert execute(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]
    assert execute(path, "SELECT count(*) FROM runs") == [(1,)]
    assert not list(path.parent.glob("*.bak"))


EARLIER = sorted((Path(__file__).parent / "earlier").glob("*.db.zst"))


@pytest.mark.parametrize("packed", EARLIER, ids=lambda packed: packed.name.split(".")[0])
def test_a_store_of_an_earlier_schema_loses_nothing(tmp_path, packed):
    path = tmp_path / "diode.db"
    path.write_bytes(zstandard.ZstdDecompressor().decompress(packed.read_bytes()))
    names = execute(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    rows = {name: execute(path, f"SELECT * FROM {name}") for (name,) in names}
    del rows["alembic_version"]
    Store.open(path).close()
    for name, before in rows.items():
        columns = len(before[0])
        after = execute(path, f"SELECT * FROM {name}")
        assert [row[:columns] for row in after] == before, name
        if name != "sweeps":  # to which a checksum was added
            added = {"{}"} if name == "problems" else {None}
            assert {value for row in after for value in row[columns:]} <= added, name
    assert len(rows["timings"]) == 26
    assert soundness.check(path).problems == ()
    with Store.open(path) as store:
        states = [run.state for run in store.runs()]
        assert states == ["done", "done", "running", "failed"]
        assert len(store.read()) == store.stats().timings == 26


def test_every_earlier_schema_has_a_store_to_upgrade():
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(migrations.migrations_folder())).walk_revisions()
    earlier = {script.revision for script in scripts} - {HEAD}
    assert {packed.name.split(".")[0] for packed in EARLIER} == {f"schema-{r}" for r in earlier}


# Several processes


def test_opening_a_fresh_store_waits_for_who_is_writing_to_it(tmp_path, monkeypatch):
    path = tmp_path / "diode.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waits = []

        def sleep(seconds):
            waits.append(seconds)
            other.execute("ROLLBACK")

        monkeypatch.setattr(sqlite.time, "sleep", sleep)
        Store.open(path).close()
    assert len(waits) == 1


def test_who_comes_second_to_a_migration_finds_it_done(path, next_migration):
    next_migration(_REBUILD)
    Store.open(path).close()
    backend_of(path).migrate()
    assert len(list(path.parent.glob("*.bak"))) == 1


# Watching


def test_a_store_that_goes_and_comes_back(path):
    watcher = backend_of(path).watch()
    before = watcher.version()
    away = path.rename(path.with_name("away"))
    with pytest.raises(StoreMissingError, match="There is no store at"):
        watcher.version()
    Store.open(path).close()
    assert watcher.version() != before
    away.replace(path)
    assert watcher.version()[0] == before[0]
    watcher.close()


# The write-ahead log, which does not stay on the disk, also while others have the store open


def test_a_large_log_goes_when_its_writer_does(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "LARGE_WAL", 50_000)
    path = tmp_path / "diode.db"
    log = tmp_path / "diode.db-wal"
    Store.open(path).close()
    with Store.open(path, read_only=True) as watched:  # as a dashboard has it
        assert watched.stats().timings == 0
        with Store.open(path) as store:
            store.import_table(make_table(60, 20), key="x", spec={})
            assert log.stat().st_size > 50_000
        assert log.stat().st_size == 0
        assert watched.stats().problems == 60


def test_a_reader_in_a_transaction_holds_nobody_up_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "LARGE_WAL", 50_000)
    monkeypatch.setattr(sqlite, "_WAL_SECONDS", 0.01)
    path = tmp_path / "diode.db"
    Store.open(path).close()
    with Store.open(path, read_only=True) as watched, watched.reads() as reading:
        reading.exec_driver_sql("SELECT count(*) FROM timings").fetchone()
        with Store.open(path) as store:
            store.import_table(make_table(60, 20), key="x", spec={})
        assert reading.exec_driver_sql("SELECT count(*) FROM timings").scalar() == 0
    with Store.open(path) as store:
        assert store.stats().problems == 60
