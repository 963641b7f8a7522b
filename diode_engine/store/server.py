"""A store in a database on a PostgreSQL server.

Several processes may write at once. A transaction that gives ids to new rows, or that reads what it
changes (timings, and what is derived from them), waits for its turn with an advisory lock. At the
end of each write those who watch the store are notified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from diode_engine.errors import (
    SchemaTooOldError,
    StoreError,
    StoreLockedError,
    StoreMissingError,
)
from diode_engine.location import ServerUrl
from diode_engine.store import schema
from diode_engine.store.file_connection import BUSY_SECONDS
from diode_engine.store.migrations import alembic_config, refuse_newer
from diode_engine.store.schema import APPLICATION_ID, CHANNEL, HEAD

# The comment on Alembic's table, by which a store is recognised: other programs use Alembic too.
_MARK = "The schema of a Diode store"
_CONNECT_SECONDS = 10
# A server whose machine is gone is noticed after a minute, not after hours.
_ALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_TABLES = (
    "SELECT c.relname, obj_description(c.oid, 'pg_class') FROM pg_class c"
    " WHERE c.relkind IN ('r', 'p') AND c.relnamespace = to_regnamespace(current_schema())"
)
_SIZE = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
    " WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(current_schema())"
)
_MAY_WRITE = (
    "SELECT NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off'"
    " AND has_table_privilege('timings', 'INSERT') AND has_table_privilege('runs', 'UPDATE')"
)


class ServerBackend:
    """The store at a URL, as `OpenStore` and maintenance use it."""

    def __init__(self, location: ServerUrl) -> None:
        self.location = location

    def open_engine(self, *, read_only: bool) -> sa.Engine:
        """The engine on a store of the newest schema; makes the tables or migrates them unless
        `read_only`.

        Raises StoreMissingError where there is no such database or no store in it (read-only),
        SchemaTooOldError where it is of an older schema (read-only), SchemaTooNewError where a
        newer Diode wrote it, and StoreError where the server cannot be reached, refuses the role
        or holds another program's tables.
        """
        revision = self.revision(required=read_only)
        if revision != HEAD:
            refuse_newer(self.location, revision)
            if read_only:
                raise SchemaTooOldError(
                    f"The store {self.location} is of an older schema ({revision}; this Diode "
                    f"reads {HEAD}); open it once for writing, which migrates it."
                )
            self._migrate()
        return self._engine()

    def revision(self, *, required: bool = True) -> str | None:
        """The schema's revision. For a database without tables it is None, or raises
        StoreMissingError where a store is `required`. Raises StoreError for another program's
        tables."""
        with self.sentences(), closing(self.connect()) as connection:
            found = self._revision(connection)
        if found is None and required:
            raise StoreMissingError(
                f"There is no store in the database {self.location}; import or collect timings "
                "first."
            )
        return found

    def _revision(self, connection: psycopg.Connection[Any]) -> str | None:
        tables = dict(connection.execute(_TABLES).fetchall())
        if not tables:
            return None
        if tables.get("alembic_version") != _MARK:
            raise StoreError(
                f"The database {self.location} holds tables of another program; give a database, "
                "or a schema, of its own (?options=-csearch_path%3DNAME at the URL's end)."
            )
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if row is None:
            raise StoreError(
                f"The store {self.location} has lost its schema's version; restore a backup."
            )
        return str(row[0])

    def is_writable(self) -> bool:
        """Whether the role may write timings; true for a database without tables. Raises StoreError
        where the server cannot be reached."""
        with self.sentences(), closing(self.connect()) as connection:
            if self._revision(connection) is None:
                return True
            row = connection.execute(_MAY_WRITE).fetchone()
            return row is not None and bool(row[0])

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """A psycopg connection, which waits BUSY_SECONDS for a lock. Raises StoreError where there
        can be none."""
        at = self.location
        given: dict[str, Any] = {
            "host": at.host or None, "port": at.port, "user": at.user, "password": at.password,
            "dbname": at.database, "connect_timeout": _CONNECT_SECONDS,
            "application_name": "diode", **_ALIVE, **dict(at.options),
        }  # fmt: skip
        try:
            connection = psycopg.connect(
                autocommit=True, **{name: v for name, v in given.items() if v is not None}
            )
        except psycopg.Error as error:
            # Without psycopg's error as the cause: it may hold the password.
            raise self._unreachable(" ".join(str(error).split())) from None
        if connection.info.parameter_status("server_encoding") != "UTF8":
            connection.close()
            raise StoreError(
                f"The database {at} does not hold every text; make it with the encoding UTF8."
            )
        # cursor_tuple_fraction: all rows of a cursor are read, so plans must not be made for the
        # first few rows. jit: compiling a query's expressions takes longer than Diode's queries.
        connection.execute(
            f"SET lock_timeout = '{BUSY_SECONDS:.0f}s'; SET cursor_tuple_fraction = 1;"
            " SET jit = off"
        )
        connection.autocommit = autocommit
        return connection

    def _unreachable(self, said: str) -> StoreError:
        at = self.location
        said = re.sub(r"^connection failed: |^connection to server .*? failed: ", "", said)
        said = re.sub(r"^connection to server .*? failed: (FATAL: +)?", "", said).rstrip(".")
        if re.search(r'database ".*" does not exist', said):
            return StoreMissingError(
                f"The server of {at} has no database {at.database}; make it there (`createdb "
                f"--encoding=UTF8 {at.database}`), or give another one."
            )
        if re.search(r"password|authentication|role .* does not exist|pg_hba", said):
            return StoreError(
                f"The server of {at} does not let this role in ({said}); give the right user in "
                "the URL, and the password in ~/.pgpass or PGPASSWORD."
            )
        if re.search(r"starting up|shutting down|too many (clients|connections)|slots", said):
            return StoreLockedError(
                f"The server of {at} takes no connection now ({said}); try again later."
            )
        return StoreError(
            f"The server of {at} cannot be reached ({said}); start it, or give another store."
        )

    def _engine(self) -> sa.Engine:
        return sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: self.connect(autocommit=False),
            pool_pre_ping=True,  # a dashboard must survive a restart of the server
        )

    def reader_options(self) -> dict[str, Any]:
        """The options of transactions that see the store as it was when they began."""
        return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    def take_turn(self, connection: sa.Connection) -> None:
        """Waits until no other transaction has the turn, and keeps it until the end of this one."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({APPLICATION_ID}, 0)")

    def tell(self, connection: sa.Connection) -> None:
        """Notifies those who watch the store, when the transaction is committed."""
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")

    @contextmanager
    def unchanged(self, connection: sa.Connection) -> Iterator[None]:
        """Nothing to do: what a transaction reads does not change."""
        yield

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """Turns errors of psycopg and SQLAlchemy into StoreErrors, whose sentences name the
        store."""
        try:
            yield
        except (sa.exc.DBAPIError, psycopg.Error) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            raise self._sentence(cause) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise StoreError(f"A value does not fit in the store {self.location}: {error}.") from (
                error
            )

    def _sentence(self, error: BaseException | None) -> StoreError:
        at = self.location
        said = " ".join(str(error).partition("\n")[0].split()).rstrip(".")
        state = getattr(error, "sqlstate", None) or ""
        if state == "42501":
            return StoreError(
                f"This role may not do that in the store {at} ({said}); have its owner grant the "
                "right, or give another store."
            )
        if state == "25006":
            return StoreError(
                f"The store {at} may not be written to from here, as the server or this role only "
                "reads; give the URL of the server that is written to, or another store."
            )
        if state == "55P03":
            return StoreLockedError(
                f"The store {at} stayed locked by another process for {BUSY_SECONDS:.0f} s; "
                "try again when that process is done."
            )
        if state in ("40001", "40P01"):
            return StoreLockedError(
                f"The store {at} was written to by another process at the same time; try again."
            )
        if state in ("53100", "53200"):
            return StoreError(f"The server of {at} has no room left ({said}); make some there.")
        if state.startswith("22") or (not state and isinstance(error, psycopg.DataError)):
            return StoreError(f"A value does not fit in the store {at}: {said}.")
        lost = state.startswith(("08", "57P")) or not state
        if lost and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreError(
                f"The connection to the server of {at} was lost ({said}), and what was being "
                "written is not in the store; try again when the server is there."
            )
        return StoreError(f"The store {at} could not be read or written: {said}.")

    def _migrate(self) -> None:
        """Migrates the tables to the schema HEAD in one transaction."""
        from alembic import command

        config = alembic_config()
        engine = self._engine()
        try:
            with self.sentences(), engine.begin() as connection:
                self.take_turn(connection)
                driver: Any = connection.connection.driver_connection
                revision = self._revision(driver)  # another process may have been first
                if revision == HEAD:
                    return
                refuse_newer(self.location, revision)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                driver.execute(
                    sql.SQL("COMMENT ON TABLE alembic_version IS {}").format(sql.Literal(_MARK))
                )
                self.tell(connection)
        finally:
            engine.dispose()

    def leave(self) -> None:
        """Nothing to do: the server cleans up by itself."""

    def size_bytes(self, connection: sa.Connection) -> int:
        """The bytes that the tables and their indexes take on the server's disk."""
        return int(connection.scalar(sa.text(_SIZE)) or 0)

    def vacuum(self) -> tuple[int, int]:
        """Frees the space of what was deleted; returns the size in bytes before and after."""
        self.revision()
        engine = self._engine()
        try:
            with self.sentences():
                with engine.begin() as connection:
                    before = self.size_bytes(connection)
                with closing(self.connect()) as driver:
                    for name in schema.metadata.tables:
                        driver.execute(
                            sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(name))
                        )
                with engine.begin() as connection:
                    return before, self.size_bytes(connection)
        finally:
            engine.dispose()
