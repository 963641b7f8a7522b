"""The databases that a store can be in: a module for each, with its subclass of `Backend`, and a
line in `backend_of`."""

from __future__ import annotations

from pathlib import Path

from diode_engine.errors import StoreError
from diode_engine.location import Location
from diode_engine.store.backends.backend import Backend, NumberClaims, Watch
from diode_engine.store.backends.sqlite import SqliteBackend

__all__ = ["Backend", "NumberClaims", "Watch", "backend_of"]


def backend_of(location: Location) -> Backend:
    """Return the backend of a store at this location. Raises StoreError where it is on a server,
    and the package for that is not installed."""
    if isinstance(location, Path):
        return SqliteBackend(location)
    try:
        from diode_engine.store.backends.postgresql import PostgresBackend
    except ImportError as error:  # psycopg, or the libpq that it looks for
        raise StoreError(
            f"A store on PostgreSQL needs psycopg, which is not installed ({error}): install "
            "diode-engine with its extra postgres (pip install 'diode-engine[postgres]')."
        ) from error
    return PostgresBackend(location)
