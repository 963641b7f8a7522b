"""An import of a dataset file as a run, so that it can be seen while it works and when it has
ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any

from diode_engine.runs.job import Job, is_awaited
from diode_engine.runs.status import look
from diode_engine.store import Imported
from diode_engine.store.staging import discard, unfinished_imports
from diode_engine.store.transfer import ToImport, import_table_of, read_import

if TYPE_CHECKING:
    from diode_engine.store import Store

_READ = 0.2  # about the share of an import's time that reading the file takes
_TELL_SECONDS = 0.5  # between two reports of how far it is


def import_as_run(
    store: Store, path: str | PathLike[str], report: Callable[[int, int], None] | None = None
) -> Imported:
    """`import_dataset` as a run of kind import: the queued run that this process was started for,
    if there is one. Otherwise it is a new run, or none where the file was imported before. `report`
    gets how many timings are written, and of how many. Raises what `import_dataset` raises."""
    if is_awaited(store, "import"):
        with Job(store, "import", {"file": str(path)}) as job:
            job.tell({"doing": "reading the file", "fraction": 0.0})
            given = read_import(path)
            job.check()
            return _write(store, given, job, report)
    given = read_import(path)
    if store.has_key(given.key):
        return import_table_of(store, given)
    with Job(store, "import", given.spec) as job:
        return _write(store, given, job, report)


def _write(
    store: Store, given: ToImport, job: Job, report: Callable[[int, int], None] | None
) -> Imported:
    for run in unfinished_imports(store):  # what imports have left that were killed
        if look(store, run).state.ended:
            discard(store, run)
    began = time.monotonic()

    def tell(total: int, done: int) -> None:
        job.check()
        if report is not None:
            report(done, total)
        fraction = _READ + (1 - _READ) * done / max(total, 1)
        progress: dict[str, Any] = {"doing": f"writing {total:,} timings", "fraction": fraction}
        if done:
            seconds = time.monotonic() - began
            progress |= {"rate": done / seconds, "seconds_left": seconds * (total - done) / done}
        job.tell(progress, every=_TELL_SECONDS if done else 0.0)

    tell(len(given.table), 0)
    done = import_table_of(store, given, run=job.id, progress=tell)
    before = f"; {done.there:,} were there before" if done.there else ""
    job.message = f"{done.timings:,} timings{before}"
    if done.there and not done.timings:
        job.message = f"all {done.there:,} timings were there before, by run {done.run}"
    return done
