"""A table's rows as packed columns: what a compact dataset file holds.

A column is the little-endian bytes of whole numbers: the lowest bytes of all numbers first, then
all second bytes, and so on (as by the shuffle filter of HDF5). So neighbouring bytes are alike, and
the compressed file is half as large. Times are whole nanoseconds, which is finer than GPUs measure
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.core.table import COLUMNS, FAILURE_CODES, TimingTable
from diode_engine.core.timing import KERNEL_FACTS
from diode_engine.errors import RecordError

FIELDS = {"rows", "failures", "columns"}
_NS = 1000  # in a microsecond
_TIMES = ("min_us", "median_us", "spread_us")
_SIZES = (1, 2, 4, 8)  # bytes of a number

Numbers = npt.NDArray[np.int64]


def pack(table: TimingTable) -> dict[str, Any]:
    """The rows as {"rows", "failures", "columns"}, in their order; docs/dataset-format.md
    describes them."""
    ns = {name: _nanoseconds(getattr(table, name)) for name in _TIMES}
    both = (ns["min_us"] > 0) & (ns["median_us"] > 0)
    ns["median_us"] = np.where(both, ns["median_us"] - ns["min_us"] + 1, ns["median_us"])
    columns: dict[str, Numbers] = {
        **{name: getattr(table, name).astype(np.int64) for name in COLUMNS if name not in _TIMES},
        **ns,
    }
    if table.kernel is not None:
        columns |= dict(zip(KERNEL_FACTS, table.kernel.T.astype(np.int64) + 1, strict=True))
    columns["candidate"] = np.diff(columns["candidate"], prepend=0) % max(1, len(table.candidates))
    return {
        "rows": len(table),
        "failures": list(FAILURE_CODES),
        "columns": {
            name: _planes(columns[name]) for name in (*COLUMNS, *KERNEL_FACTS) if name in columns
        },
    }


def unpack(given: Mapping[str, Any], candidates: int) -> dict[str, Any]:
    """The columns of a TimingTable with this many candidates, from a document with FIELDS. Raises
    RecordError where they are malformed. (TimingTable itself checks the range of the values.)"""
    rows, names, packed = given["rows"], given["failures"], given["columns"]
    if type(rows) is not int or rows < 0:
        raise RecordError(f"Its number of rows is {rows!r}; it must be a whole number from 0 up.")
    if not isinstance(packed, dict) or set(packed) - set(KERNEL_FACTS) != set(COLUMNS):
        raise RecordError(f"Its columns must be {', '.join(COLUMNS)}.")
    with_kernel = not set(packed).isdisjoint(KERNEL_FACTS)
    if with_kernel and not set(KERNEL_FACTS) <= set(packed):
        raise RecordError(f"Its columns must have all of {', '.join(KERNEL_FACTS)}, or none.")
    column = {name: _numbers(name, packed[name], rows) for name in packed}
    column["candidate"] = np.cumsum(column["candidate"]) % max(1, candidates)
    least = column["min_us"]
    both = (least > 0) & (column["median_us"] > 0)
    column["median_us"] = np.where(both, column["median_us"] + least - 1, column["median_us"])
    for name in ("problem", "environment", "repeats", *(KERNEL_FACTS if with_kernel else ())):
        if rows and column[name].max() > np.iinfo(np.int32).max:
            raise RecordError(f"The column {name} holds a number of more than 31 bits.")
    return {
        **{n: column[n].astype(np.int32) for n in COLUMNS if n not in (*_TIMES, "failure")},
        **{name: _microseconds(column[name]) for name in _TIMES},
        "failure": _failures(names)[np.minimum(column["failure"], len(names) + 1)],
        "kernel": np.stack([column[name] - 1 for name in KERNEL_FACTS], axis=1).astype(np.int32)
        if with_kernel
        else None,
    }


def _nanoseconds(us: npt.NDArray[np.float64]) -> Numbers:
    """Whole nanoseconds plus one; 0 for NaN. A time of less than half a nanosecond counts as one
    nanosecond, so that no time becomes 0."""
    ns = np.rint(us * _NS)
    ns[(ns == 0) & (us > 0)] = 1
    return np.where(np.isnan(us), 0, np.nan_to_num(ns) + 1).astype(np.int64)


def _microseconds(numbers: Numbers) -> npt.NDArray[np.float64]:
    """The inverse of `_nanoseconds`."""
    return np.where(numbers == 0, np.nan, (numbers - 1) / _NS)


def _planes(numbers: Numbers) -> dict[str, Any]:
    """A packed column, with as few bytes for a number as the largest one needs."""
    most = int(numbers.max(initial=0))
    size = next(size for size in _SIZES if most < 1 << (8 * size))
    flat = numbers.astype(f"<u{size}").view(np.uint8).reshape(-1, size)
    return {"bytes": size, "data": np.ascontiguousarray(flat.T).tobytes()}


def _numbers(name: str, given: Any, rows: int) -> Numbers:
    """The inverse of `_planes`. Raises RecordError where the column is malformed."""
    if not isinstance(given, dict) or set(given) != {"bytes", "data"}:
        raise RecordError(f"The column {name} must have bytes and data.")
    size, data = given["bytes"], given["data"]
    if type(size) is not int or size not in _SIZES:
        raise RecordError(f"The column {name} has numbers of {size!r} bytes; it can be 1 to 8.")
    if not isinstance(data, bytes) or len(data) != rows * size:
        raise RecordError(f"The column {name} must have {rows} numbers of {size} bytes as data.")
    planes = np.frombuffer(data, np.uint8).reshape(size, rows)
    found = np.ascontiguousarray(planes.T).view(f"<u{size}").reshape(rows)
    if rows and found.max() > np.iinfo(np.int64).max // 4:
        raise RecordError(f"The column {name} holds a number that is out of range.")
    return found.astype(np.int64)


def _failures(names: Any) -> npt.NDArray[np.uint8]:
    """TimingTable's code for each of the file's failures, by its number in the file (0: none). The
    last entry is an impossible code, for numbers that the file does not name."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RecordError("Its failures must be a list of their names.")
    if unknown := [name for name in names if name not in FAILURE_CODES]:
        raise RecordError(f"Its failures name {', '.join(unknown[:3])}, which Diode does not know.")
    return np.array([0, *map(FAILURE_CODES.get, names), len(FAILURE_CODES) + 1], np.uint8)
