"""The store: every timing, with the run that it came from, in one SQLite file or on a PostgreSQL
server.

`Store` opens it, and migrates it where its schema is old. `datasets` reads and writes files of
timings; `transfer` imports them into a store, and exports a store into them.
"""

from diode_engine.store.datasets.key import dataset_key
from diode_engine.store.datasets.reading import Group, read_dataset, read_groups
from diode_engine.store.datasets.writing import write_dataset
from diode_engine.store.runs import Process, Run, RunState
from diode_engine.store.store import Imported, Store, StoreStats
from diode_engine.store.transfer import export_dataset, import_dataset

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
