"""A store on a PostgreSQL server: opening it, what the server may refuse, and no password shown."""

from __future__ import annotations

import logging
import socket
import traceback
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from diode_engine.errors import (
    SchemaTooNewError,
    SchemaTooOldError,
    StoreError,
    StoreLockedError,
    StoreMissingError,
)
from diode_engine.location import ServerUrl, location_of
from diode_engine.store import Store, schema, soundness
from diode_engine.store.backends import backend_of, postgresql
from tests.store.conftest import as_rows, make_table


def name_of(database: str) -> str:
    return ServerUrl.parse(database).database


@pytest.fixture
def execute(postgres, database):
    return lambda statement: postgres.execute(statement, name_of(database))


# Opening


def test_the_migrations_lead_to_the_schema_of_the_code(postgres):
    columns = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name"
        " FROM information_schema.columns WHERE table_schema = 'public'"
        " AND table_name <> 'alembic_version' ORDER BY table_name, ordinal_position"
    )
    constraints = (
        "SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace AND conname NOT LIKE 'alembic%'"
        " ORDER BY 1, 2, 3"
    )
    indexes = (
        "SELECT tablename, regexp_replace(indexdef, '^.* USING', '') FROM pg_indexes"
        " WHERE schemaname = 'public' AND indexname NOT LIKE 'alembic%' ORDER BY 1, 2"
    )
    found = []
    for name in ("migrated", "created"):
        postgres.execute(f"CREATE DATABASE {name}")
        if name == "migrated":
            Store.open(postgres.url(name)).close()
        else:
            engine = backend_of(location_of(postgres.url(name))).engine(read_only=False)
            schema.metadata.create_all(engine)
            engine.dispose()
        found.append([postgres.execute(each, name) for each in (columns, constraints, indexes)])
        postgres.execute(f"DROP DATABASE {name}")
    assert found[0] == found[1]
    assert len(found[0][0]) > 80


def test_another_programs_database_is_refused_and_left_alone(database, execute):
    execute("CREATE TABLE alembic_version (version_num text)")
    for read_only in (False, True):
        with pytest.raises(StoreError, match="tables of another program"):
            Store.open(database, read_only=read_only)
    tables = execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert tables == [("alembic_version",)]


def test_a_schema_of_its_own_in_another_programs_database(database, execute):
    execute("CREATE TABLE theirs (a int)")
    execute("CREATE SCHEMA ours")
    with Store.open(f"{database}?options=-csearch_path%3Dours") as store:
        store.add(store.start_run("collect", {}), make_table())
        assert store.stats().timings == len(make_table())
    assert soundness.check(store.location).problems == ()


def test_a_store_of_an_earlier_schema_loses_nothing(database, execute):
    with Store.open(database) as store:
        store.add(store.start_run("collect", {}), make_table())
    execute('ALTER TABLE runs DROP COLUMN "user"')
    execute("DROP TABLE kernels")
    execute("ALTER TABLE problems DROP COLUMN attributes")
    execute("UPDATE alembic_version SET version_num = '0004'")
    with Store.open(database) as store:
        assert as_rows(store.read()) == as_rows(make_table())
    assert soundness.check(location_of(database)).problems == ()


@pytest.mark.parametrize(
    ("revision", "raised"), [("9999", SchemaTooNewError), ("0003", SchemaTooOldError)]
)
def test_another_schema_is_told(database, execute, revision, raised):
    Store.open(database).close()
    execute(f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(raised, match=revision):
        Store.open(database, read_only=True)


def test_a_migration_that_fails_changes_nothing(database, execute, monkeypatch):
    monkeypatch.setattr(postgresql.sql, "Literal", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Store.open(database)
    assert execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


# What the server refuses


@pytest.fixture
def role(postgres, database):
    """A role of its own, without rights, and the URL that it comes by."""
    name = f"role_{name_of(database)}"
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{postgres.password}'")
    yield name, database.replace("//diode@", f"//{name}@")
    postgres.execute(f"DROP OWNED BY {name}", name_of(database))
    postgres.execute(f"DROP ROLE {name}")


def test_a_role_that_may_only_read(role, database, execute):
    name, url = role
    with pytest.raises(StoreError, match=r"This role may not do that .*permission denied"):
        Store.open(url)
    with Store.open(database) as store:
        store.add(store.start_run("collect", {}), make_table())
    with (
        pytest.raises(StoreError, match=r"This role may not do that .*permission denied"),
        Store.open(url, read_only=True) as store,
    ):
        store.read()
    execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
    with Store.open(url, read_only=True) as store:
        assert len(store.read()) == len(make_table())
    with (
        Store.open(url) as store,
        pytest.raises(StoreError, match="have its owner grant the right"),
    ):
        store.start_run("collect", {})
    assert not backend_of(location_of(url)).is_writable()
    assert backend_of(location_of(database)).is_writable()


def test_a_server_that_only_reads(database, execute):
    Store.open(database).close()
    execute(f"ALTER DATABASE {name_of(database)} SET default_transaction_read_only = on")
    with (
        Store.open(database) as store,
        pytest.raises(StoreError, match="may not be written to from here"),
    ):
        store.start_run("collect", {})
    assert not backend_of(location_of(database)).is_writable()


def test_a_wrong_password_is_a_sentence(postgres, database, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "nonsense")
    with pytest.raises(StoreError, match=r"does not let this role in .*password authent"):
        Store.open(database)
    monkeypatch.delenv("PGPASSWORD")
    with pytest.raises(StoreError, match=r"does not let this role in .*no password"):
        Store.open(database)
    given = database.replace("diode@", f"diode:{postgres.password}@")
    with Store.open(given) as store:
        assert str(store.location) == database


def test_a_database_that_is_not_there(postgres):
    with pytest.raises(StoreMissingError, match="has no database missing; make it there"):
        Store.open(postgres.url("missing"))


def test_a_server_that_is_not_there(postgres):
    with socket.socket() as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql+psycopg://ann@127.0.0.1:{taken.getsockname()[1]}/diode"
        with pytest.raises(StoreError, match=r"cannot be reached .*refused") as caught:
            Store.open(url)
    assert str(caught.value).count("127.0.0.1") == 1  # it says it once


def test_a_connection_that_is_lost_is_told_and_made_anew(database, execute):
    with Store.open(database) as store:
        run = store.start_run("collect", {})

        def cut_off() -> None:
            with store.writes() as connection:
                connection.execute(sa.update(schema.runs).values(message="half"))
                (pid,) = connection.execute(sa.text("SELECT pg_backend_pid()")).one()
                execute(f"SELECT pg_terminate_backend({pid}, 10000)")
                connection.execute(sa.select(schema.runs))

        with pytest.raises(StoreError, match=r"was lost .*is not in the store; try again"):
            cut_off()
        assert store.run(run).message is None
        store.add(run, make_table())


def test_who_waits_too_long_is_told(database):
    with Store.open(database) as first, Store.open(database) as second:

        def waits() -> None:
            with second.writes() as connection:
                connection.exec_driver_sql("SET LOCAL lock_timeout = '20ms'")
                second._backend.take_turn(connection)

        with (
            first.writes(in_turn=True),
            pytest.raises(StoreLockedError, match="stayed locked by another process"),
        ):
            waits()
        with second.writes(in_turn=True):
            pass


def test_a_heartbeat_does_not_wait_for_an_ingest(database):
    with Store.open(database) as first, Store.open(database) as second:
        run, other = first.start_run("collect", {}), first.start_run("collect", {})
        with first.writes(in_turn=True):
            second.beat(other)
            second.update_run(other, progress={"n": 1})
            assert second.queue_run("x", {}, command=[], directory="", logs=Path("logs")).id
        second.add(run, make_table())


def test_what_postgresql_cannot_hold_is_refused_with_a_sentence(database):
    with Store.open(database) as store:
        run = store.start_run("collect", {})
        with pytest.raises(StoreError, match="does not fit"):
            store.set_note(run, "a\0b")


# Watching and claiming


def test_a_watch_goes_on_after_the_connection_was_lost(database, execute):
    Store.open(database).close()
    watcher = backend_of(location_of(database)).watch()
    before = watcher.version()
    assert watcher.version() == before
    execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            f" WHERE application_name = 'diode' AND datname = '{name_of(database)}'")  # fmt: skip
    with pytest.raises(StoreError, match="was lost"):
        [watcher.version() for _ in range(2)]  # first the server's last words, then the end
    assert watcher.version() != before
    execute("DROP SCHEMA public CASCADE")
    execute("CREATE SCHEMA public")
    watcher.close()
    with pytest.raises(StoreMissingError):
        watcher.version()
    Store.open(database).close()
    assert watcher.version()[0] != before[0]
    watcher.close()


def test_a_lost_connection_takes_its_claims_anew(database, execute):
    Store.open(database).close()
    where = location_of(database)
    with closing(backend_of(where).claims()) as ours, closing(backend_of(where).claims()) as theirs:
        assert ours.take(7)
        (pid,) = ours._connection.execute("SELECT pg_backend_pid()").fetchone()
        execute(f"SELECT pg_terminate_backend({pid}, 10000)")
        with pytest.raises(StoreError, match="was lost"):
            ours.take(8)
        assert ours.take(8)
        assert not theirs.take(7)
        assert not theirs.take(8)


# Passwords


def test_no_password_is_in_what_is_said(postgres, database, caplog):
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t/@:%"
    with_it = "s3cr3t%2F%40%3A%25"
    url = location_of(database.replace("diode@", f"diode:{with_it}@"))
    assert isinstance(url, ServerUrl)
    assert url.password == secret
    said = [str(url), repr(url), f"{url}", str(vars(backend_of(url)))]
    with pytest.raises(StoreError, match="let this role in") as caught:
        Store.open(url)
    assert caught.value.__cause__ is None
    said += [*traceback.format_exception(caught.value), repr(caught.value)]
    url = location_of(database.replace("diode@", f"diode:{postgres.password}@"))
    with Store.open(url) as store:
        said += [repr(store), repr(store._engine), str(store._engine.url), str(store.location)]
        with pytest.raises(StoreError, match="no run 7") as caught:
            store.set_note(7, "x")
        said += traceback.format_exception(caught.value)
    said.append(caplog.text)
    for text in said:
        assert "s3cr3t" not in text
        assert postgres.password not in text
