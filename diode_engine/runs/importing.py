"""An import of a dataset file as a run, so that it can be seen while it works and when it has
ended."""

from __future__ import annotations

import time
from os import PathLike
from typing import TYPE_CHECKING

from diode_engine.runs.job import Job, is_awaited
from diode_engine.store import Imported
from diode_engine.store.transfer import ToImport, import_table_of, read_import

if TYPE_CHECKING:
    from diode_engine.store import Store

# All rows are written in one transaction, so nobody can see how far it is. The progress is computed
# from the time that it is expected to take, at the speed of two cores of a shared machine.
_ROWS_PER_SECOND = 60_000
_READ = 0.2  # about the share of an import's time that reading the file takes


def import_as_run(store: Store, path: str | PathLike[str]) -> Imported:
    """`import_dataset` as a run of kind import: the queued run that this process was started for,
    if there is one. Otherwise it is a new run, or none where the file was imported before. Raises
    what `import_dataset` raises."""
    if is_awaited(store, "import"):
        with Job(store, "import", {"file": str(path)}) as job:
            job.tell({"doing": "reading the file", "fraction": 0.0})
            given = read_import(path)
            job.check()
            return _written(store, given, job)
    given = read_import(path)
    if store.has_key(given.key):
        return import_table_of(store, given)
    with Job(store, "import", given.spec) as job:
        return _written(store, given, job)


def _written(store: Store, given: ToImport, job: Job) -> Imported:
    rows = len(given.table)
    expected = round(0.5 + rows / _ROWS_PER_SECOND, 1)
    job.tell({"doing": f"writing {rows:,} timings", "fraction": _READ, "since": time.time(),
              "seconds_expected": expected})  # fmt: skip
    done = import_table_of(store, given, run=job.id)
    before = f"; {done.there:,} were there before" if done.there else ""
    job.message = f"{done.timings:,} timings{before}"
    if not done.timings:
        job.message = f"all {done.there:,} timings were there before, by run {done.run}"
    return done
