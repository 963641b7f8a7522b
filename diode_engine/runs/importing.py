"""An import of a dataset file as a run: it is seen while it works, and how it ended."""

from __future__ import annotations

import time
from contextlib import nullcontext
from os import PathLike
from typing import TYPE_CHECKING

from diode_engine.runs.job import Heartbeat, begin, is_awaited
from diode_engine.store import Imported, RunState
from diode_engine.store.transfer import import_table_of, read_import

if TYPE_CHECKING:
    from diode_engine.store import Store

# All rows are written in one transaction, of which nobody sees anything before its end: what is
# told of it is what it is expected to take, at the pace of two cores of a shared machine.
_ROWS_A_SECOND = 60_000
_READ = 0.2  # of an import is reading the file, about


def import_as_run(store: Store, path: str | PathLike[str]) -> Imported:
    """`import_dataset` as a run of kind import: the queued one that this process was started
    for, else a new one where the file was not imported before. Raises what `import_dataset`
    does."""
    spec = {"file": str(path)}
    run = begin(store, "import", spec) if is_awaited(store, "import") else None
    state, message = RunState.FAILED, None
    try:
        with nullcontext() if run is None else Heartbeat(store, run) as heartbeat:
            if run is not None:
                store.update_run(run, progress={"doing": "reading the file", "fraction": 0.0})
            given = read_import(path)
            if heartbeat is not None:
                heartbeat.check()
        if run is None and not store.has_key(given.key):
            run = begin(store, "import", given.spec)
        if run is not None:
            rows = len(given.table)
            store.update_run(
                run,
                progress={
                    "doing": f"writing {rows:,} timings",
                    "fraction": _READ,
                    "since": time.time(),
                    "seconds_expected": round(0.5 + rows / _ROWS_A_SECOND, 1),
                },
            )
        done = import_table_of(store, given, run=run)
        state, message = RunState.DONE, _says(done)
        return done
    except KeyboardInterrupt:
        state, message = RunState.CANCELLED, "stopped by the user"
        raise
    except Exception as error:
        message = str(error)
        raise
    finally:
        if run is not None:
            store.finish_run(run, state, message)


def _says(done: Imported) -> str:
    if not done.timings:
        return f"all {done.there:,} timings were there before, by run {done.run}"
    before = f"; {done.there:,} were there before" if done.there else ""
    return f"{done.timings:,} timings{before}"
