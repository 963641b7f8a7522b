"""Writes a dataset file, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine.atomic import FileKind, write_whole
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import KERNEL_FACTS, Failure
from diode_engine.documents import Malformed, check_json_counts, check_ratio
from diode_engine.errors import DatasetError, explain_os_error
from diode_engine.store.datasets import parsing
from diode_engine.store.datasets.format import (
    COLUMNS,
    FORMAT,
    PACKED,
    PACKED_VERSION,
    TIMES,
    VERSION,
    suffix_of,
)
from diode_engine.store.datasets.packed import pack


def write_dataset(table: TimingTable, path: str | PathLike[str]) -> None:
    """Writes the table's rows, in their order; an existing file is replaced when the new one is
    complete.

    The suffix (one of SUFFIXES) decides the form; the packed form rounds times to nanoseconds.
    Raises DatasetError where the path has another suffix, the file cannot be written, or it would
    be too large to be read again.
    """
    where = Path(path)
    suffix = suffix_of(where)
    document = _document(table, packed=suffix == PACKED)
    try:
        if suffix.startswith(".json"):
            data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        else:
            import msgpack

            data = msgpack.packb(document)
    except (OverflowError, ValueError) as error:
        raise DatasetError(f"{where} cannot carry a value of this table: {error}.") from error
    written = data
    if suffix.endswith(".zst"):
        import zstandard

        # Packed data is small, so a higher level is affordable; it saves a few bits a timing.
        level = 19 if suffix == PACKED else 12
        written = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)
    try:
        _check_readable(document, table, data, suffix)
        check_ratio(len(data), len(written))
    except Malformed as error:
        raise DatasetError(
            f"{where} could not be read again; write the timings as several datasets. {error}"
        ) from None
    with explain_os_error(DatasetError, f"{where} cannot be written"):
        write_whole(where, written, kind=FileKind.DATASET)


def _document(table: TimingTable, *, packed: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": PACKED_VERSION if packed else VERSION,
        "environments": [environment.to_dict() for environment in table.environments],
        "problems": [problem.to_dict() for problem in table.problems],
        "candidates": [candidate.to_dict() for candidate in table.candidates],
        "timings": pack(table) if packed else _groups(table),
    }


def _groups(table: TimingTable) -> list[dict[str, Any]]:
    """One group for each run of adjacent rows with the same problem and environment. A column
    without any known value is left out."""
    if not len(table):
        return []
    changes = (np.diff(table.problem) != 0) | (np.diff(table.environment) != 0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(table)]
    problem, environment = table.problem.tolist(), table.environment.tolist()
    reasons = [None, *(None if r is Failure.NOT_TIMED else str(r) for r in FAILURES)]
    columns: dict[str, list[Any]] = {"candidate": table.candidate.tolist()}
    for name in (*TIMES, "spread_us"):
        values = getattr(table, name)
        columns[name] = _known(values, ~np.isnan(values))
    columns["repeats"] = _known(table.repeats, table.repeats != 0)
    columns["failure"] = [reasons[code] for code in table.failure.tolist()]
    if table.kernel is not None:
        for name, facts in zip(KERNEL_FACTS, table.kernel.T, strict=True):
            columns[name] = _known(facts, facts >= 0)
    groups = []
    for start, end in pairwise(cuts):
        group: dict[str, Any] = {"problem": problem[start], "environment": environment[start]}
        for name, column in columns.items():
            part = column[start:end]
            if name == "candidate" or any(x is not None for x in part):
                group[name] = part
        groups.append(group)
    return groups


def _known(values: np.ndarray, known: np.ndarray) -> list[Any]:
    """[n] the values, with None where they are not known; most of them are."""
    found: list[Any] = values.tolist()
    for row in np.flatnonzero(~known).tolist():
        found[row] = None
    return found


def _check_readable(
    document: Mapping[str, Any], table: TimingTable, data: bytes, suffix: str
) -> None:
    """Raises Malformed where the document is too large to be read again. `data` is the document as
    it is written, before compression."""
    parsing.limits().check_bytes(len(data))
    parsing.check_rows(len(table))
    for name in ("environments", "problems", "candidates"):
        parsing.check_records(document[name], name)
    if suffix.startswith(".json"):
        check_json_counts(data, parsing.limits())
    elif suffix != PACKED:
        groups = document["timings"]
        records = len(table.problems) + 2 * len(table.candidates) + 2 * len(table.environments)
        containers = sum(map(len, groups)) + records
        columns = len(COLUMNS) + (0 if table.kernel is None else len(KERNEL_FACTS))
        parsing.limits().check_counts(containers, containers + len(table) * columns)
