"""What differs between a store in a file and one on a server, behind one interface."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from diode_engine.errors import StoreError
from diode_engine.location import Location
from diode_engine.store.file import FileBackend


class Backend(Protocol):
    """See `file.FileBackend` and `server.ServerBackend`."""

    @property
    def location(self) -> Location: ...

    def open_engine(self, *, read_only: bool) -> sa.Engine:
        """The engine on a store of the newest schema; creates or migrates it unless `read_only`.

        Raises StoreMissingError where there is none and SchemaTooOldError where it is of an older
        schema (both: read-only), SchemaTooNewError where a newer Diode wrote it, StoreLockedError
        where it stays locked, and StoreError where it is foreign, damaged or out of reach.
        """

    def revision(self) -> str | None:
        """The schema's revision; None for an empty file. Raises StoreMissingError where there is
        no store, and StoreError where it is foreign or damaged."""

    def is_writable(self) -> bool:
        """Whether it can be opened for writing; false for a file that does not exist."""

    def sentences(self) -> AbstractContextManager[None]:
        """Turns errors of the database's driver and of SQLAlchemy into StoreErrors, whose sentences
        name the store."""

    def unchanged(self, connection: sa.Connection) -> AbstractContextManager[None]:
        """Raises StoreLockedError where the store was written to while the block read it, so that
        the block may have read a mixture of old and new."""

    def reader_options(self) -> dict[str, Any]:
        """Execution options of a transaction that only reads."""

    def take_turn(self, connection: sa.Connection) -> None:
        """Makes transactions run one after the other: waits until no other transaction has the
        turn, and keeps it until the end of this one. That is needed where new rows get ids, or
        where a transaction reads what it changes."""

    def tell(self, connection: sa.Connection) -> None:
        """Notifies those who watch the store, when the transaction is committed."""

    def leave(self) -> None:
        """Cleans up after a session that has written, before its connections are closed."""

    def size_bytes(self, connection: sa.Connection) -> int:
        """The bytes that the store takes on a disk."""

    def vacuum(self) -> tuple[int, int]:
        """Frees the space of what was deleted; returns the size in bytes before and after. Raises
        StoreMissingError, and StoreLockedError where others use the store."""


def backend_of(location: Location) -> Backend:
    """The backend for a store at this location. Raises StoreError where it is on a server, and the
    package for that is not installed."""
    if isinstance(location, Path):
        return FileBackend(location)
    try:
        from diode_engine.store.server import ServerBackend
    except ImportError as error:  # psycopg, or the libpq that it looks for
        raise StoreError(
            f"A store on PostgreSQL needs psycopg, which is not installed ({error}): install "
            "diode-engine with its extra postgres (pip install 'diode-engine[postgres]')."
        ) from error
    return ServerBackend(location)
