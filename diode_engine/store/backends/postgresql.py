"""A store in a database on a PostgreSQL server.

Several processes may write at once. A transaction that gives ids to new rows, or that reads what it
changes (timings, and what is derived from them), waits for its turn with an advisory lock. At the
end of each write those who watch the store are notified.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar

import psycopg
import sqlalchemy as sa
from psycopg import sql

from diode_engine.errors import StoreError, StoreLockedError, StoreMissingError
from diode_engine.location import ServerUrl
from diode_engine.store import schema
from diode_engine.store.backends.backend import BUSY_SECONDS, Backend, Row, no_answer, no_answer_in
from diode_engine.store.schema import APPLICATION_ID

CHANNEL = "diode"  # of the notifications at the end of each write
# The comment on Alembic's table, by which a store is recognised: other programs use Alembic too.
_MARK = "The schema of a Diode store"
# Options of a connection. A server whose machine is gone is noticed after a minute, not hours.
_CONNECT = {
    "connect_timeout": 10, "application_name": "diode",
    "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}  # fmt: skip
# cursor_tuple_fraction: all rows of a cursor are read, so plans must not be made for the first few
# rows. jit: compiling a query's expressions takes longer than Diode's queries.
_SETTINGS = (
    f"SET lock_timeout = '{BUSY_SECONDS:.0f}s'; SET cursor_tuple_fraction = 1; SET jit = off"
)
_IN_SCHEMA = " AND c.relnamespace = to_regnamespace(current_schema())"
_TABLES = (
    "SELECT c.relname, obj_description(c.oid, 'pg_class') FROM pg_class c"
    f" WHERE c.relkind IN ('r', 'p'){_IN_SCHEMA}"
)
_SIZE = (
    f"SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relkind = 'r'{_IN_SCHEMA}"
)
_MAY_WRITE = (
    "SELECT NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off'"
    " AND has_table_privilege('timings', 'INSERT') AND has_table_privilege('runs', 'UPDATE')"
)
# A number that tells a store from one that was made later in the same database.
_WHICH = "SELECT 'alembic_version'::regclass::oid::bigint"

# What a refused connection means: a pattern of the server's sentence, the error, and what it says.
_REFUSED: tuple[tuple[str, type[StoreError], str], ...] = (
    (
        r'database ".*" does not exist',
        StoreMissingError,
        "The server of {at} has no database {at.database}; make it there (`createdb "
        "--encoding=UTF8 {at.database}`), or give another one.",
    ),
    (
        r"password|authentication|role .* does not exist|pg_hba",
        StoreError,
        "The server of {at} does not let this role in ({said}); give the right user in the URL, "
        "and the password in ~/.pgpass or PGPASSWORD.",
    ),
    (
        r"starting up|shutting down|too many (clients|connections)|slots",
        StoreLockedError,
        "The server of {at} takes no connection now ({said}); try again later.",
    ),
    (
        "",
        StoreError,
        "The server of {at} cannot be reached ({said}); start it, or give another store.",
    ),
)
# The same of a failed statement, by a pattern of the beginning of its SQLSTATE.
_FAILED: tuple[tuple[str, type[StoreError], str], ...] = (
    (
        "42501",
        StoreError,
        "This role may not do that in the store {at} ({said}); have its owner grant the right, or "
        "give another store.",
    ),
    (
        "25006",
        StoreError,
        "The store {at} may not be written to from here, as the server or this role only reads; "
        "give the URL of the server that is written to, or another store.",
    ),
    (
        "55P03",
        StoreLockedError,
        f"The store {{at}} stayed locked by another process for {BUSY_SECONDS:.0f} s; try again "
        "when that process is done.",
    ),
    (
        "40001|40P01",
        StoreLockedError,
        "The store {at} was written to by another process at the same time; try again.",
    ),
    (
        "53100|53200",
        StoreError,
        "The server of {at} has no room left ({said}); make some there.",
    ),
    ("22", StoreError, "A value does not fit in the store {at}: {said}."),
    (
        "08|57P",
        StoreError,
        "The connection to the server of {at} was lost ({said}), and what was being written is not "
        "in the store; try again when the server is there.",
    ),
    ("", StoreError, "The store {at} could not be read or written: {said}."),
)

_FETCH = "FETCH 50 FROM answer"  # few rows, since a value may have megabytes


class PostgresBackend(Backend):
    """The store at a URL."""

    driver_errors = psycopg.Error
    # Such a transaction sees the store as it was when it began.
    reader_options: ClassVar = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    enforces_references = False

    location: ServerUrl

    def __init__(self, location: ServerUrl) -> None:
        self.location = location

    def engine(self, *, read_only: bool = False) -> sa.Engine:
        return sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: self.connect(autocommit=False),
            pool_pre_ping=True,  # a dashboard must survive a restart of the server
        )

    @contextmanager
    def migrating(self, driver: Any, revision: str | None) -> Iterator[None]:
        yield
        mark = sql.SQL("COMMENT ON TABLE alembic_version IS {}").format(sql.Literal(_MARK))
        driver.execute(mark)

    def prepare(self) -> str | None:
        with self._connected() as connection:
            return self.revision_of(connection)

    def revision(self) -> str:
        found = self.prepare()
        if found is None:
            raise StoreMissingError(
                f"There is no store in the database {self.location}; import or collect timings "
                "first."
            )
        return found

    def revision_of(self, driver: psycopg.Connection[Any]) -> str | None:
        tables = dict(driver.execute(_TABLES).fetchall())
        if not tables:
            return None
        if tables.get("alembic_version") != _MARK:
            raise StoreError(
                f"The database {self.location} holds tables of another program; name an "
                "empty database or schema (?options=-csearch_path%3DNAME at the URL's end)."
            )
        return self.read_revision(driver)

    def is_writable(self) -> bool:
        """Whether the role may write timings; true for a database without tables. Raises StoreError
        where the server cannot be reached."""
        with self._connected() as connection:
            if self.revision_of(connection) is None:
                return True
            row = connection.execute(_MAY_WRITE).fetchone()
            return row is not None and bool(row[0])

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        with self.explain_errors(), closing(self.connect()) as connection:
            yield connection

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """Return a psycopg connection, which waits BUSY_SECONDS for a lock. Raises StoreError where
        there can be none."""
        at = self.location
        given: dict[str, Any] = {
            "host": at.host or None, "port": at.port, "user": at.user, "password": at.password,
            "dbname": at.database, **_CONNECT, **dict(at.options),
        }  # fmt: skip
        try:
            connection = psycopg.connect(
                autocommit=True, **{name: v for name, v in given.items() if v is not None}
            )
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            said = re.sub(r"^connection failed: |^connection to server .*? failed: ", "", said)
            said = re.sub(r"^connection to server .*? failed: (FATAL: +)?", "", said)
            # Without psycopg's error as the cause: it may hold the password.
            raise self._error(_REFUSED, said, said) from None
        if connection.info.parameter_status("server_encoding") != "UTF8":
            connection.close()
            raise StoreError(
                f"The database {at} does not hold every text; make it with the encoding UTF8."
            )
        connection.execute(_SETTINGS)
        connection.autocommit = autocommit
        return connection

    def explain(self, error: BaseException | None) -> StoreError:
        state = getattr(error, "sqlstate", None) or ""
        if not state and isinstance(error, psycopg.DataError):
            state = "22"
        if not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            state = "08"
        return self._error(_FAILED, state, " ".join(str(error).partition("\n")[0].split()))

    def _error(
        self, table: tuple[tuple[str, type[StoreError], str], ...], told: str, said: str
    ) -> StoreError:
        """Return the error of the first row whose pattern is found in `told`."""
        find = re.search if table is _REFUSED else re.match
        kind, sentence = next(row[1:] for row in table if find(row[0], told))
        return kind(sentence.format(at=self.location, said=said.rstrip(".")))

    def take_turn(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({APPLICATION_ID}, 0)")

    def notify(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")

    def answer(
        self, statement: str, *, rows: int, seconds: float, shorten: Callable[[Any], Row]
    ) -> tuple[list[str], list[Row]]:
        self.revision()
        end = time.monotonic() + seconds
        with self._connected() as connection:
            connection.execute("SET default_transaction_read_only = on")
            connection.autocommit = False
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            # A cursor is made of a query alone, and what is prepared is one statement alone.
            declared = f"DECLARE answer NO SCROLL CURSOR FOR {statement}".encode()
            try:
                _limit_time(connection, end)
                cursor = connection.execute(declared, prepare=True)
                found: list[Row] = []
                while True:
                    _limit_time(connection, end)
                    cursor = connection.execute(_FETCH)
                    batch = [shorten(row) for row in cursor.fetchmany(rows - len(found))]
                    found += batch
                    if not batch or len(found) == rows:
                        return [column.name for column in cursor.description or ()], found
            except psycopg.errors.QueryCanceled as error:
                raise no_answer_in(seconds) from error
            except psycopg.DatabaseError as error:
                if not re.match("2|42|0A|54", error.sqlstate or ""):
                    raise
                raise no_answer(str(error).partition("\n")[0]) from error

    def size_bytes(self, connection: sa.Connection) -> int:
        """Return the bytes that the tables and their indexes take on the server's disk."""
        return int(connection.scalar(sa.text(_SIZE)) or 0)

    def vacuum(self) -> tuple[int, int]:
        with self._connected() as driver:
            before = driver.execute(_SIZE).fetchone()
            for name in schema.metadata.tables:
                driver.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(name)))
            after = driver.execute(_SIZE).fetchone()
        assert before is not None
        assert after is not None
        return int(before[0]), int(after[0])

    def watch(self) -> ServerWatch:
        return ServerWatch(self)

    def claims(self) -> ServerClaims:
        return ServerClaims(self)


class ServerWatch:
    """Receives the notifications at the end of each write. A lost connection counts as a write."""

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self._connection: Any = None
        self._store = 0
        self._changes = 0

    def version(self) -> tuple[int, int]:
        with self._backend.explain_errors():
            try:
                if self._connection is None:
                    self._listen()
                # The server sends pending notifications with the answer to any statement.
                self._connection.execute("SELECT")
            except BaseException:
                self.close()
                raise
        return self._store, self._changes

    def _listen(self) -> None:
        self._connection = self._backend.connect()
        self._connection.add_notify_handler(self._count)
        self._connection.execute(f"LISTEN {CHANNEL}")
        self._backend.revision()  # raises StoreMissingError where there is no store
        self._changes += 1
        (self._store,) = self._connection.execute(_WHICH).fetchone()

    def _count(self, _: object) -> None:
        self._changes += 1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ServerClaims:
    """PostgreSQL's advisory locks of a connection, which processes on all machines see. A lost
    connection loses its locks; the next connection takes them again."""

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._connection: Any = backend.connect()

    def take(self, number: int) -> bool:
        with self._lock:
            if number not in self._held and self._ask("pg_try_advisory_lock", number):
                self._held.add(number)
            return number in self._held

    def give_back(self, number: int) -> None:
        with self._lock:
            if number in self._held and self._connection is not None:
                self._held.discard(number)
                self._ask("pg_advisory_unlock", number)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _ask(self, function: str, number: int) -> bool:
        with self._backend.explain_errors():
            if self._connection.closed:
                self._connection = self._backend.connect()
                for held in self._held:
                    self._connection.execute("SELECT pg_try_advisory_lock(%s)", (held,))
            row = self._connection.execute(f"SELECT {function}(%s)", (number,)).fetchone()
            return bool(row[0])


def _limit_time(connection: psycopg.Connection[Any], end: float) -> None:
    """Have the server end the next statement at this moment of the monotonic clock."""
    left = max(1, round(1000 * (end - time.monotonic())))
    connection.execute(f"SET statement_timeout = {left}".encode())
