"""The store: every timing, in one SQLite file or on a PostgreSQL server, with the run that it came
from.

`Store` opens it (and migrates it first); `transfer` reads and writes dataset files.
"""

from diode_engine.store.runs import Process, Run, RunState
from diode_engine.store.store import Imported, Store, StoreStats
from diode_engine.store.transfer import (
    Group,
    dataset_key,
    export_dataset,
    import_dataset,
    read_dataset,
    read_groups,
    write_dataset,
)

__all__ = [
    "Group",
    "Imported",
    "Process",
    "Run",
    "RunState",
    "Store",
    "StoreStats",
    "dataset_key",
    "export_dataset",
    "import_dataset",
    "read_dataset",
    "read_groups",
    "write_dataset",
]
