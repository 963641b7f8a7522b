"""Reads a dataset file: JSON or msgpack, plain, compressed with Zstandard, or packed.

A file is read whole or not at all: whatever is wrong with it is a DatasetError that names the
place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from diode_engine.atomic import FileKind, kind_of
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import KNOWN, Environment, Hardware, find_name
from diode_engine.core.problem import Problem
from diode_engine.core.table import NOT_TIMED, TimingTable
from diode_engine.documents import Malformed, decompressed, read_bytes, shortened, show
from diode_engine.errors import DatasetError, NoSuchDatasetError, RecordError, explain_os_error
from diode_engine.store.datasets import packed, parsing, torch_diode
from diode_engine.store.datasets.format import FORMAT, PACKED_VERSION, TIMES, VERSION, suffix_of
from diode_engine.store.datasets.parsing import items, mapping, parse_json, parse_msgpack
from diode_engine.store.datasets.rows import JoinedRows

_FIELDS = {"format", "version", "environments", "problems", "candidates", "timings"}
_HARDWARE_FIELDS = [field.name for field in fields(Hardware)]
_Record = TypeVar("_Record")
_Records = tuple[tuple[Problem, ...], tuple[Candidate, ...], tuple[Environment, ...]]


@dataclass(frozen=True)
class Group:
    """One group of a file: the rows of one problem in one environment."""

    problem: Problem
    environment: Environment
    rows: slice


def read_dataset(path: str | PathLike[str], *, times_required: bool = True) -> TimingTable:
    """The file's timings, rows in its order.

    With `times_required` False a row may have neither a time nor a failure, as in a file for
    predictions; its failure is then Failure.NOT_TIMED. From a torch-diode file, timings that Diode
    has no problem for are left out (see `torch_diode.read`). Raises DatasetError, with the place in
    the file, where the file is missing, malformed or of an unknown version.
    """
    return read_file(Path(path), times_required).table


def read_groups(path: str | PathLike[str]) -> tuple[TimingTable, tuple[Group, ...]]:
    """The file's timings, as from `read_dataset` with `times_required` False, and the groups that
    the file has them in. Raises DatasetError also where the file has no groups."""
    table, rows, _ = read_file(Path(path), times_required=False)
    if rows is None:
        raise DatasetError(
            f"{path} is packed or torch-diode's, which keeps no groups; import it, and export "
            "it as .json or .msgpack."
        )
    ends = np.cumsum(rows.lengths).tolist()
    return table, tuple(
        Group(table.problems[problem], table.environments[environment], slice(end - n, end))
        for problem, environment, n, end in zip(
            rows.problem, rows.environment, rows.lengths, ends, strict=True
        )
    )


class FileContent(NamedTuple):
    """What a dataset file holds."""

    table: TimingTable
    rows: JoinedRows | None = None  # of a file that groups its rows
    left_out: int = 0  # how many timings were left out


def read_file(where: Path, times_required: bool) -> FileContent:
    """What the file holds; raises what `read_dataset` does."""
    with explain_os_error(DatasetError, f"{where} cannot be read"):
        exists = where.exists()
    if not exists:
        raise NoSuchDatasetError(f"There is no file {where}; check its name.")
    suffix = suffix_of(where)
    try:
        data = read_bytes(where, parsing.limits())
        if suffix.endswith(".zst"):
            data = decompressed(data, parsing.limits())
        document, constant = (
            parse_json(data) if suffix.startswith(".json") else (parse_msgpack(data), None)
        )
        if torch_diode.is_dataset(document):
            table, left_out = torch_diode.read(document)
            return FileContent(table, left_out=left_out)
        if constant is not None:
            raise Malformed(
                f"It holds {constant}, which is no JSON; write null where there is no time."
            )
        version = _version(document)
        environments = _records(document, "environments", _environment)
        problems = _records(document, "problems", Problem.from_dict)
        candidates = _records(document, "candidates", Candidate.from_dict)
        records = problems, candidates, environments
        if version == PACKED_VERSION:
            return FileContent(_packed_table(document["timings"], records))
        return FileContent(*_table(document["timings"], records, times_required))
    except RecursionError:
        raise DatasetError(f"{where}: It is nested too deeply for a dataset.") from None
    except MemoryError:
        raise DatasetError(f"{where} does not fit in this machine's memory; split it.") from None
    except OSError as error:
        raise DatasetError(f"{where} cannot be read: {error.strerror or error}.") from error
    except Malformed as error:
        raise DatasetError(_not_a_dataset(where) or f"{where}: {error}") from error


def _not_a_dataset(where: Path) -> str | None:
    """A sentence where the file is another one of Diode's."""
    kind = kind_of(where)
    if kind is FileKind.SHAPESET:
        return (
            f"{where} is a shapeset, which has problems without timings; `diode-engine "
            f"collect-shapeset {where}` times them, `diode-engine explain --file {where}` lists "
            "what Diode would choose."
        )
    if kind in (None, FileKind.DATASET, FileKind.TEXT, FileKind.OTHER):
        return None
    return f"{where} is {kind}, not a dataset; name a dataset."


def _version(document: Any) -> int:
    mapping(document, "It", _FIELDS, sorted(_FIELDS))
    if document["format"] != FORMAT:
        raise Malformed(f"Its format is {show(document['format'])}; it must be {FORMAT!r}.")
    version = document["version"]
    if type(version) is not int or version not in (VERSION, PACKED_VERSION):
        raise Malformed(
            f"Its version is {show(version)} and this Diode reads {VERSION} and "
            f"{PACKED_VERSION}; update Diode, or write the dataset again."
        )
    return version


def _packed_table(timings: Any, records: _Records) -> TimingTable:
    mapping(timings, "timings", packed.FIELDS, sorted(packed.FIELDS))
    parsing.check_rows(timings["rows"])
    try:
        columns = packed.unpack(timings, len(records[1]))
        table = TimingTable(*records, **columns)
    except RecordError as error:
        raise Malformed(f"timings: {shortened(str(error))}") from None
    if np.any(table.failure == NOT_TIMED):
        raise Malformed("timings: Its rows must have a time or a failure.")
    return table


def _table(timings: Any, records: _Records, times_required: bool) -> tuple[TimingTable, JoinedRows]:
    problems, candidates, environments = records
    rows = JoinedRows(timings, len(problems), len(environments))
    time = {name: rows.times(name, positive=True) for name in TIMES}
    if np.any(swapped := time["min_us"] > time["median_us"]):
        raise Malformed(f"{rows.place(swapped)} has a min_us larger than its median_us.")
    failure = rows.failures()
    timed = ~(np.isnan(time["min_us"]) & np.isnan(time["median_us"]))
    if np.any(both := timed & (failure > 0)):
        raise Malformed(f"{rows.place(both)} has a time and a failure; it can have one only.")
    neither = ~timed & (failure == 0)
    if times_required and np.any(neither):
        raise Malformed(
            f"{rows.place(neither)} has neither a time (min_us or median_us) nor a failure; a "
            "file without times can only be predicted."
        )
    failure[neither] = NOT_TIMED
    table = TimingTable(
        *records,
        problem=np.repeat(np.array(rows.problem, dtype=np.int32), rows.lengths),
        candidate=rows.whole("candidate", len(candidates) - 1, null=None),
        environment=np.repeat(np.array(rows.environment, dtype=np.int32), rows.lengths),
        min_us=time["min_us"],
        median_us=time["median_us"],
        spread_us=rows.times("spread_us", positive=False),
        repeats=rows.whole("repeats", 2**31 - 1, null=0),
        failure=failure,
        kernel=rows.kernel(),
    )
    return table, rows


def _records(
    document: Mapping[str, Any], name: str, make: Callable[[Mapping[str, Any]], _Record]
) -> tuple[_Record, ...]:
    records = []
    parsing.check_records(items(document[name], name), name)
    for i, given in enumerate(document[name]):
        place = f"{name}[{i}]"
        if not isinstance(given, dict):
            raise Malformed(f"{place} is {show(given)}; it must be an object.")
        try:
            records.append(make(given))
            json.dumps(given, ensure_ascii=False).encode()
        except RecordError as error:
            raise Malformed(f"{place}: {shortened(str(error))}") from None
        except UnicodeEncodeError:  # JSON can escape half a surrogate pair
            raise Malformed(f"{place} holds a text that is not valid Unicode.") from None
    return tuple(records)


def _environment(given: Mapping[str, Any]) -> Environment:
    """An environment. Its software may be left out. Its hardware may be a name of KNOWN, or an
    object with such a name; then facts that are missing are KNOWN's. Raises RecordError."""
    software = {"driver": "", "torch": "", "triton": ""}
    hardware = given.get("hardware")
    if isinstance(hardware, str):
        hardware = {"name": hardware}
    if not isinstance(hardware, dict):
        raise RecordError("Its hardware must be a name or an object.")
    name = hardware.get("name")
    missing = [field for field in _HARDWARE_FIELDS if field not in hardware]
    if missing and isinstance(name, str):
        meant = find_name(name, KNOWN)
        if meant is None:
            raise RecordError(
                f"The hardware {show(name)} is not one that Diode knows by name "
                f"({', '.join(KNOWN)}); give its {', '.join(missing)} as well."
            )
        hardware = {**KNOWN[meant].to_dict(), **hardware, "name": meant}
    return Environment.from_dict({**software, **given, "hardware": hardware})
