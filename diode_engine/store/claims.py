"""Claims on numbers, by which processes that use the same store divide work among themselves. The
others see a claim while its process lives."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from diode_engine import paths
from diode_engine.errors import StoreError
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.store.server import ServerBackend


class NumberClaims(Protocol):
    """The claims of one process, on numbers under 2⁶⁰. They end with the process, however it
    ends."""

    def take(self, number: int) -> bool:
        """Claims the number; False where another process has it. Raises StoreError."""

    def give_back(self, number: int) -> None:
        """Ends a claim."""

    def close(self) -> None:
        """Ends all claims."""


def claims_of(store: Location) -> NumberClaims:
    """The claims of this process in a store. Raises StoreError where no claims can be made."""
    if isinstance(store, Path):
        return FileClaims(paths.beside(store, "-claims"))
    from diode_engine.store.backend import backend_of

    backend: Any = backend_of(store)
    return ServerClaims(backend)


class FileClaims:
    """Locks on single bytes of a file, each at the number's offset, which other processes on this
    machine see. The locks belong to the process: its own threads do not exclude each other."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise StoreError(
                f"{path}, by which processes with the same store divide their work, "
                f"cannot be written: {error.strerror or error}."
            ) from error

    def take(self, number: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except BlockingIOError:
            return False
        return True

    def give_back(self, number: int) -> None:
        if not self._file.closed:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def close(self) -> None:
        self._file.close()


class ServerClaims:
    """PostgreSQL's advisory locks of a connection, which processes on all machines see. A lost
    connection loses its locks; the next connection takes them again."""

    def __init__(self, server: ServerBackend) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._connection: Any = server.connect()

    def take(self, number: int) -> bool:
        with self._lock:
            if number in self._held:
                return True
            if self._ask("SELECT pg_try_advisory_lock(%s)", number):
                self._held.add(number)
            return number in self._held

    def give_back(self, number: int) -> None:
        with self._lock:
            if number in self._held and self._connection is not None:
                self._held.discard(number)
                self._ask("SELECT pg_advisory_unlock(%s)", number)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _ask(self, statement: str, number: int) -> bool:
        with self._server.sentences():
            if self._connection.closed:
                self._connection = self._server.connect()
                for held in self._held:
                    self._connection.execute("SELECT pg_try_advisory_lock(%s)", (held,))
            row = self._connection.execute(statement, (number,)).fetchone()
            return bool(row[0])
