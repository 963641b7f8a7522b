"""The store as the dashboard sees it: read in short transactions, whatever its state."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from diode_app.data.background import in_thread, run_command
from diode_engine import paths
from diode_engine.errors import (
    SchemaTooNewError,
    SchemaTooOldError,
    StoreError,
    StoreLockedError,
    StoreMissingError,
)
from diode_engine.location import Location

if TYPE_CHECKING:  # SQLAlchemy comes with it: imported in a thread, when it is first needed
    from diode_engine.runs import Status
    from diode_engine.store import Store
    from diode_engine.store.backends import Watch

T = TypeVar("T")
WAIT_SECONDS = 0.02  # what is not written after that is shown as waiting


class Condition(StrEnum):
    """The state of the store."""

    OPENING = "opening"
    READY = "ready"
    MISSING = "missing"
    LOCKED = "locked"
    OLD = "older schema"
    NEW = "newer schema"
    BROKEN = "unreadable"


@dataclass(frozen=True)
class Look:
    """The store at one moment. `version` changes with every write; `why` is a sentence where the
    condition is neither READY nor OPENING; `live` are the runs that have not ended, the last one
    first; `runs` is the number of the last run. `registry` changes with the user's registry of
    models."""

    condition: Condition
    why: str | None = None
    version: tuple[int, int] = (0, 0)
    runs: int = 0
    live: tuple[Status, ...] = ()
    registry: int = 0

    @property
    def ready(self) -> bool:
        return self.condition is Condition.READY


class StoreAccess:
    """Reads of the store at `location`, and all that the dashboard writes: the store, and by
    `change` and `command` models and files. Everything is awaited and done in a thread or a
    process.

    It opens the store when it is first asked, and again when the file was replaced or could not
    be opened before; it needs no closing.
    """

    def __init__(self, location: Location, *, read_only: bool = False) -> None:
        self.location = location
        self.read_only = read_only
        self.last = Look(Condition.OPENING)
        self.writing = 0  # writes that are not done yet
        self.waiting = 0  # of these, those that wait for the store, or take long
        self.tell_waiting: Callable[[], object] = lambda: None  # called when `waiting` has changed
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._file = 0
        self._watch: Watch | None = None

    async def read(self, work: Callable[[Store], T]) -> T:
        """Return the result of `work` on the store, open for reading. Raises StoreError."""
        return await in_thread(lambda: work(self._reader()), "read")

    async def read_if_ready(self, work: Callable[[Store | None], T]) -> T:
        """Return the result of `work` on the store, or on None where it cannot be read now."""
        return await (
            self.read(work) if self.last.ready else in_thread(partial(work, None), "read")
        )

    async def write(self, work: Callable[[Store], T]) -> T:
        """Return the result of `work` on the store, open for writing. Raises StoreError, also where
        the dashboard is read-only or there is no store yet (see `create`)."""

        def done() -> T:
            from diode_engine.store import Store
            from diode_engine.store.backends import backend_of

            backend_of(self.location).revision()  # raises where there is no store
            with Store.open(self.location) as store:
                return work(store)

        return await self._shown_as_waiting(done, "write")

    async def create(self) -> None:
        """Make the store, or upgrades one of an older schema after a backup. Raises StoreError."""

        def done() -> None:
            from diode_engine.store import Store

            Store.open(self.location).close()

        await self._shown_as_waiting(done, "create")

    async def _shown_as_waiting(self, work: Callable[[], T], name: str) -> T:
        """Do what `change` does, and count the work among the `waiting` once it has taken
        WAIT_SECONDS."""
        counted = 0

        def count(change: int) -> None:
            nonlocal counted
            counted += change
            self.waiting += change
            self.tell_waiting()

        timer = asyncio.get_running_loop().call_later(WAIT_SECONDS, count, 1)
        self.writing += 1
        try:
            return await self.change(work, name)
        finally:
            self.writing -= 1
            timer.cancel()
            if counted:
                count(-1)

    async def change(self, work: Callable[[], T], name: str) -> T:
        """Return the result of `work`, which writes models or files, in a thread of this name.
        Raises StoreError where the dashboard is read-only."""
        self.must_be_writable()
        result = await in_thread(work, name)
        self.last = replace(self.last, version=(-1, 0))  # a page that is come back to reads again
        return result

    async def command(self, words: Sequence[str]) -> str:
        """Return what a headless command that changes something writes to stdout (see
        `run_command`). Raises StoreError where the dashboard is read-only."""
        self.must_be_writable()
        return await run_command(words)

    async def start_import(self, files: Sequence[Path]) -> int:
        """Start an import of dataset files, into a store that is made first where there is none;
        returns the number of its run. Raises StoreError and RunError."""
        await self.create()

        def start(store: Store) -> int:
            from diode_engine.runs import start_import

            return start_import(store, files).id

        return await self.write(start)

    def must_be_writable(self) -> None:
        """Raises StoreError where the dashboard was started with --read-only. Everything that
        writes calls it; an action that asks the person something calls it before that."""
        if self.read_only:
            raise StoreError(
                "This dashboard was started with --read-only; start it without to change things."
            )

    async def look(self) -> Look:
        """Return the state of the store, found cheaply; it is kept as `last`. A store that cannot
        be read is a condition, not an error. Do not call it again before it is done."""
        self.last = await in_thread(self._look, "look")
        return self.last

    def _look(self) -> Look:
        look = self._look_at_store()
        registry = registry_version(paths.data_dir() / "models")
        return look if look.registry == registry else replace(look, registry=registry)

    def _look_at_store(self) -> Look:
        from diode_engine.store.backends import backend_of

        try:
            if self._watch is None:
                self._watch = backend_of(self.location).watch()
            version = self._watch.version()
            if version[0] != self._file:
                self._close_store()
            store = self._reader()
            self._file = version[0]
            return self._runs(store, version)
        except StoreError as error:
            condition = _condition(error)
            if condition is not Condition.LOCKED:
                self._close_store()
            elif self.last.condition is Condition.MISSING:
                return self.last  # it is just being made
            elif self.last.live:  # what was known stays on the screen
                return replace(self.last, condition=condition, why=str(error))
            return Look(condition, str(error))

    def _runs(self, store: Store, version: tuple[int, int]) -> Look:
        """Return the runs that have not ended. They are read again only if something was written or
        one is alive: the store does not show whether a run's process is alive."""
        from diode_engine.runs import find
        from diode_engine.store.run_query import runs

        last = self.last
        if last.ready and last.version == version and not last.live:
            return last
        newest = runs(store, limit=1)
        live = tuple(find(store, "state:queued,running,cancelling"))
        return Look(Condition.READY, None, version, newest[0].id if newest else 0, live)

    def _reader(self) -> Store:
        from diode_engine.store import Store

        with self._lock:
            if self._store is None:
                self._store = Store.open(self.location, read_only=True)
            return self._store

    def _close_store(self) -> None:
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()


def _condition(error: StoreError) -> Condition:
    kinds: tuple[tuple[type[StoreError], Condition], ...] = (
        (StoreMissingError, Condition.MISSING),
        (StoreLockedError, Condition.LOCKED),
        (SchemaTooOldError, Condition.OLD),
        (SchemaTooNewError, Condition.NEW),
    )
    return next((c for kind, c in kinds if isinstance(error, kind)), Condition.BROKEN)


def registry_version(root: Path) -> int:
    """Return a number that differs after each change: a new or removed model, an alias, a tag or a
    note (a hardware's file of those is replaced, which changes its folder). What cannot be read is
    left out."""
    return hash(
        tuple(_folders(str(root), 2))
    )  # hardware, name: a version is a folder in the latter


def _folders(folder: str, depth: int) -> Iterator[tuple[str, int]]:
    try:
        yield folder, os.stat(folder).st_mtime_ns  # noqa: PTH116  # no Path: hundreds of folders
        entries = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return
    if depth:
        for entry in entries:
            yield from _folders(entry, depth - 1)
