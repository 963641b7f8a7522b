"""Imports timings from dataset files into a store, and exports them from a store into a file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from diode_engine.core.table import TimingTable
from diode_engine.errors import DatasetError, NothingError
from diode_engine.store.datasets.format import VERSION, suffix_of
from diode_engine.store.datasets.key import dataset_key
from diode_engine.store.datasets.reading import read_dataset, read_file
from diode_engine.store.datasets.writing import write_dataset
from diode_engine.store.soundness import require_sound
from diode_engine.store.store import Imported, Store


def import_dataset(store: Store, path: str | PathLike[str]) -> Imported:
    """Adds the file's timings as one run of kind import, all or nothing. Timings that the store has
    already, from any file or run, are not added again (see Store.import_table)."""
    return import_table_of(store, read_import(path))


@dataclass(frozen=True)
class ToImport:
    """The content of a file, ready to be imported."""

    table: TimingTable
    key: str  # of the timings (see `dataset_key`)
    spec: Mapping[str, Any]  # of the run that imports them
    left_out: int  # how many timings of the file Diode cannot use


def read_import(path: str | PathLike[str]) -> ToImport:
    """The content of a file. Raises DatasetError as `read_dataset` does, and where the file has
    nothing that Diode can use."""
    table, _, left_out = read_file(Path(path), times_required=True)
    if left_out and not len(table):
        raise DatasetError(f"{path}: None of its {left_out} timings is one that Diode can use.")
    spec = {"file": str(path), "timings": len(table), "version": VERSION}
    return ToImport(table, dataset_key(table), spec, left_out)


def import_table_of(store: Store, given: ToImport, **options: Any) -> Imported:
    """Adds what was read from a file, with Store.import_table's `options`."""
    done = store.import_table(given.table, key=given.key, spec=given.spec, **options)
    return replace(done, left_out=given.left_out)


def read_datasets(paths: Sequence[str | PathLike[str]], query: str = "") -> TimingTable:
    """The timings of a file, or of several (then equal ones once), on the problems that a filter
    query finds. Raises DatasetError, QueryError where the query has a mistake, and NothingError
    where it finds none."""
    if len(paths) == 1 and not query:
        return read_dataset(paths[0])
    with (
        tempfile.TemporaryDirectory(prefix="diode-datasets-") as folder,
        Store.open(Path(folder, "all.db")) as store,
    ):
        for path in paths:
            import_dataset(store, path)
        table = store.read(query)
    if query and not len(table):
        raise NothingError(f"The query {query!r} finds no problem in these files.")
    return table


def export_dataset(
    store: Store,
    path: str | PathLike[str],
    *,
    hardware: str | None = None,
    damaged: bool = False,
) -> int:
    """Writes the timings that Store.read selects into a file, and returns their number. With
    `damaged`, what can be read of a damaged store is written, to a new file only. Raises
    DatasetError as `write_dataset` does, and StoreError where the store is damaged."""
    suffix_of(Path(path))
    if not damaged:
        require_sound(store.location, "nothing was exported")
    elif Path(path).exists():
        raise DatasetError(f"{path} is there; name a new file for the timings of a damaged store.")
    table = store.read(hardware=hardware, kernels=True)
    write_dataset(table, path)
    return len(table)
