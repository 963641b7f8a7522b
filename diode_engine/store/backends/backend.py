"""What a database must do to hold a store, and what is the same in all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, Protocol, TypeVar

import sqlalchemy as sa

from diode_engine.errors import SchemaTooOldError, StoreError, StoreMissingError
from diode_engine.location import Location
from diode_engine.store import schema
from diode_engine.store.migrations import alembic_config, refuse_newer

Row = TypeVar("Row")

BUSY_SECONDS = 30.0  # how long a connection waits for a lock


class Watch(Protocol):
    """Watches a location, where there need not be a store yet. Not for two threads at a time."""

    def version(self) -> tuple[int, int]:
        """Return (which store it is, how often it has changed). The pair stays equal as long as
        nothing is written.

        Raises StoreMissingError where there is no store, StoreLockedError where another process
        keeps it locked, and StoreError where it cannot be read.
        """

    def close(self) -> None: ...


class NumberClaims(Protocol):
    """The claims of one process on numbers under 2⁶⁰, by which processes that use the same store
    divide work among themselves. They end with the process, however it ends."""

    def take(self, number: int) -> bool:
        """Claim the number; False where another process has it. Raises StoreError."""

    def give_back(self, number: int) -> None:
        """End a claim."""

    def close(self) -> None:
        """End all claims."""


class Backend(ABC):
    """A store in one kind of database."""

    location: Location
    driver_errors: ClassVar[type[Exception]]  # the base class of the driver's errors
    reader_options: ClassVar[dict[str, Any]]  # execution options of transactions that only read
    # Whether the database itself refuses a row that refers to one that is not there.
    enforces_references: ClassVar[bool]

    def open_engine(self, *, read_only: bool) -> sa.Engine:
        """Return the engine on a store of the newest schema; create or migrate the store unless
        `read_only`.

        Raises StoreMissingError where there is no store and SchemaTooOldError where its schema is
        older (both: read-only), SchemaTooNewError where a newer Diode wrote it, StoreLockedError
        where it stays locked, and StoreError where it is foreign, damaged or out of reach.
        """
        with self.explain_errors():
            revision = self.revision() if read_only else self.prepare()
            if revision != schema.HEAD:
                refuse_newer(self.location, revision)
                if read_only and revision is None:  # as while another process makes it
                    raise StoreMissingError(
                        f"There is no store at {self.location} yet, only an empty file; import or "
                        "collect timings first."
                    )
                if read_only:
                    raise SchemaTooOldError(
                        f"The store {self.location} is of an older schema ({revision}; "
                        f"this Diode reads {schema.HEAD}); open it once for writing, which "
                        "migrates it."
                    )
                self.migrate()
            return self.engine(read_only=read_only)

    def migrate(self) -> None:
        """Migrate the store to the schema HEAD in one transaction."""
        from alembic import command

        config = alembic_config()
        engine = self.migration_engine()
        try:
            with self.explain_errors(), engine.begin() as connection:
                self.take_turn(connection)
                driver: Any = connection.connection.driver_connection
                revision = self.revision_of(driver)  # another process may have been first
                if revision == schema.HEAD:
                    return
                refuse_newer(self.location, revision)
                config.attributes["connection"] = connection
                with self.migrating(driver, revision):
                    command.upgrade(config, "head")
                self.notify(connection)
        finally:
            engine.dispose()

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn errors of the driver and of SQLAlchemy into StoreErrors, whose sentences name the
        store."""
        try:
            yield
        except (sa.exc.DBAPIError, self.driver_errors) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            raise self.explain(cause) from error
        except UnicodeDecodeError as error:  # a message may quote what is damaged
            raise self.explain(error) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise StoreError(
                f"A value does not fit in the store {self.location}: {error}."
            ) from error

    @abstractmethod
    def explain(self, error: BaseException | None) -> StoreError:
        """Return the StoreError that says what an error of the driver means."""

    @abstractmethod
    def engine(self, *, read_only: bool) -> sa.Engine:
        """Return the engine on a store of the newest schema."""

    def migration_engine(self) -> sa.Engine:
        """Return the engine that migrates the store."""
        return self.engine(read_only=False)

    @abstractmethod
    def migrating(self, driver: Any, revision: str | None) -> AbstractContextManager[None]:
        """Surround the migration from this revision, with what has to happen before and after."""

    @abstractmethod
    def revision(self) -> str | None:
        """Return the schema's revision; None for an empty file. Raises StoreMissingError where
        there is no store, and StoreError where it is foreign or damaged."""

    @abstractmethod
    def revision_of(self, driver: Any) -> str | None:
        """Return the schema's revision by an open connection of the driver; None where there is no
        table. Raises StoreError where the tables are another program's."""

    def read_revision(self, driver: Any) -> str:
        """Return the revision in the tables of a store. Raises StoreError where it is missing."""
        row = driver.execute("SELECT version_num FROM alembic_version").fetchone()
        if row is None:
            raise StoreError(
                f"The store {self.location} has lost its schema's version; restore a backup."
            )
        return str(row[0])

    @abstractmethod
    def prepare(self) -> str | None:
        """Make what a new store needs around it. Return the schema's revision; None where there is
        no store yet."""

    @abstractmethod
    def is_writable(self) -> bool:
        """Whether the store can be opened for writing; false for a file that does not exist."""

    def unchanged(self, connection: sa.Connection) -> AbstractContextManager[None]:
        """Raise StoreLockedError where the store was written to while the block read it, so that
        the block may have read a mixture of old and new."""
        return nullcontext()

    def take_turn(self, connection: sa.Connection) -> None:  # noqa: B027
        """Make transactions run one after the other: wait until no other transaction has the turn,
        and keep it until the end of this one. That is needed where new rows get ids, or where a
        transaction reads what it changes."""

    def notify(self, connection: sa.Connection) -> None:  # noqa: B027
        """Notify those who watch the store, when the transaction is committed."""

    def clean_up(self) -> None:  # noqa: B027
        """Clean up after a session that has written, before its connections are closed."""

    def find_damage(self) -> list[str]:
        """Return sentences about damaged pages and about references to rows that are not there. A
        server checks its pages itself."""
        return []

    @abstractmethod
    def answer(
        self, statement: str, *, rows: int, seconds: float, shorten: Callable[[Any], Row]
    ) -> tuple[list[str], list[Row]]:
        """Return the names of the columns, and the first `rows` rows, of the answer to one
        statement, each as `shorten` returns it. It runs on a connection of its own, on which
        nothing can be written. Raises StoreError where it has a mistake, is no query, or is not
        answered after `seconds`."""

    @abstractmethod
    def size_bytes(self, connection: sa.Connection) -> int:
        """Return the bytes that the store takes on a disk."""

    @abstractmethod
    def vacuum(self) -> tuple[int, int]:
        """Free the space of what was deleted in a store that is there; return the size in bytes
        before and after. Raises StoreLockedError where others use the store."""

    @abstractmethod
    def watch(self) -> Watch:
        """Return a watch of the store."""

    @abstractmethod
    def claims(self) -> NumberClaims:
        """Return this process's claims in the store. Raises StoreError where none can be made."""


def no_answer(said: object) -> StoreError:
    """Return the error of a statement that the database does not answer."""
    return StoreError(f"The statement is not answered: {str(said).strip().rstrip('.')}.")


def no_answer_in(seconds: float) -> StoreError:
    """Return the error of a statement that takes longer than it may."""
    return StoreError(
        f"The statement was not answered within {seconds:g} s and was ended; ask for less, or "
        "allow more time (`diode-engine db query --seconds`)."
    )


def dangle(n: int, table: str, parent: str) -> str:
    """Return the sentence about `n` rows of a table whose parents are missing."""
    return f"{n} rows of {table} refer to {parent} that are not there."
