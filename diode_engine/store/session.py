"""An open store: its transactions, for reading and for writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Self

import sqlalchemy as sa

from diode_engine.errors import DiodeError, RecordError, StoreError
from diode_engine.location import Location, ServerUrl, location_of
from diode_engine.store.backends import Backend, backend_of

_UNFORESEEN = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextmanager
def explain_damage(store: Location) -> Iterator[None]:
    """Turns the errors that damaged rows cause in the block (a missing record, a text that is not
    JSON, an impossible value) into a StoreError that names the store."""
    try:
        yield
    except RecordError as error:
        raise _doubt(store, str(error)) from error
    except (DiodeError, OverflowError, UnicodeEncodeError):  # `explain_errors` handles these
        raise
    except _UNFORESEEN as error:
        raise _doubt(store, f"{type(error).__name__}: {error}.") from error


def _doubt(store: Location, found: str) -> StoreError:
    return StoreError(
        f"The store {store} seems to hold what Diode does not write: `diode-engine db check` looks "
        f"for damage. {found}"
    )


class OpenStore:
    """An open store; a context manager. Several processes may have it open."""

    def __init__(self, backend: Backend, engine: sa.Engine, *, read_only: bool) -> None:
        self.read_only = read_only
        self._backend = backend
        self._engine = engine
        self._reader = engine.execution_options(**backend.reader_options)

    @property
    def location(self) -> Location:
        return self._backend.location

    @classmethod
    def open(cls, location: str | PathLike[str] | ServerUrl, *, read_only: bool = False) -> Self:
        """Opens the store in a file or, at a URL such as postgresql+psycopg://ann@host/diode, on a
        server. Unless `read_only`, it is made where there is none, and migrated where its schema is
        old.

        Raises StoreError where the store is missing (read-only), not Diode's, damaged or out of
        reach, and SchemaTooNewError where a newer Diode wrote it.
        """
        backend = backend_of(location_of(location))
        return cls(backend, backend.open_engine(read_only=read_only), read_only=read_only)

    def close(self) -> None:
        if not self.read_only:
            self._backend.clean_up()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writes(self, *, in_turn: bool = False) -> Iterator[sa.Connection]:
        """A transaction that may write. It is committed at the end of the block, and undone where
        the block raises. Transactions that are `in_turn` run one after the other, so that each sees
        what the earlier ones wrote. Raises StoreError."""
        backend = self._backend
        if self.read_only and not backend.is_writable():
            raise StoreError(
                f"The store {self.location} may not be written to from here; get the right to do "
                "so, or work on a copy (`diode-engine db backup FILE`)."
            )
        if self.read_only:
            raise StoreError(f"The store {self.location} was opened for reading only.")
        with (
            backend.explain_errors(),
            explain_damage(self.location),
            self._engine.begin() as connection,
        ):
            if in_turn:
                backend.take_turn(connection)
            yield connection
            backend.notify(connection)

    @contextmanager
    def reads(self) -> Iterator[sa.Connection]:
        """A transaction that reads: it sees the store as it is now, and nobody has to wait for it.
        Raises StoreLockedError at its end where the store was written to while it was read without
        a lock (see `Backend.unchanged`)."""
        backend = self._backend
        with (
            backend.explain_errors(),
            self._reader.begin() as connection,
            backend.unchanged(connection),
            backend.explain_errors(),
            explain_damage(self.location),
        ):
            yield connection
