"""The key of a table of timings, made of its rows."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.core.content_key import content_key
from diode_engine.core.table import COLUMNS, TimingTable


def dataset_key(table: TimingTable) -> str:
    """32 hex digits, made of the table's rows. The same rows have the same key in every file, and
    in every order."""
    digest = hashlib.sha256()
    columns: list[npt.NDArray[Any]] = []
    for name in ("problem", "candidate", "environment"):
        records, index = getattr(table, f"{name}s"), getattr(table, name)
        keys = {i: records[i].key for i in np.unique(index).tolist()}
        place = {key: n for n, key in enumerate(sorted(set(keys.values())))}
        digest.update(json.dumps(list(place)).encode())
        rank = np.zeros(len(records), dtype="<i8")
        rank[list(keys)] = [place[key] for key in keys.values()]
        columns.append(rank[index])
    measured = [getattr(table, name) for name in COLUMNS[3:]]
    if table.kernel is not None:
        measured += list(table.kernel.T)
    for column in measured:
        if column.dtype == np.float64:  # hashed as bits; NaN has several forms, so take one of them
            columns.append(np.where(np.isnan(column), np.nan, column).astype("<f8").view("<i8"))
        else:
            columns.append(column.astype("<i8"))
    order = np.lexsort(columns)
    for column in columns:
        digest.update(column[order].tobytes())
    return content_key("dataset", {"sha256": digest.hexdigest()})
