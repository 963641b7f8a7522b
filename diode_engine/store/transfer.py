"""Timings to and from files: JSON and msgpack, plain, compressed with Zstandard, or packed.

The format is described in docs/dataset-format.md. A file is read whole or not at all:
whatever is wrong with it is a DatasetError that names the place.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from diode_engine.atomic import write_whole
from diode_engine.core.hardware import KNOWN, Environment, Hardware
from diode_engine.core.problem import (
    KERNEL_FACTS,
    MAX_US,
    Candidate,
    Failure,
    Problem,
    content_key,
)
from diode_engine.core.table import COLUMNS, FAILURES, TimingTable
from diode_engine.documents import check_json_counts, check_ratio
from diode_engine.errors import DatasetError, RecordError
from diode_engine.store import parsing, torch_diode
from diode_engine.store.packed import FIELDS as PACKED_FIELDS
from diode_engine.store.packed import pack, unpack
from diode_engine.store.parsing import (
    Malformed,
    items,
    load,
    mapping,
    parse_json,
    parse_msgpack,
    shortened,
    show,
)
from diode_engine.store.store import Imported, Store

FORMAT = "diode-dataset"
VERSION = 1
PACKED_VERSION = 2  # the same, but for the timings (see `packed`)
PACKED = ".packed.zst"
SUFFIXES = (".json", ".msgpack", ".json.zst", ".msgpack.zst", PACKED)

_FIELDS = {"format", "version", "environments", "problems", "candidates", "timings"}
_TIMES = ("min_us", "median_us")
_COLUMNS = ("candidate", "min_us", "median_us", "spread_us", "repeats", "failure")
_GROUP_FIELDS = {"problem", "environment", *_COLUMNS, *KERNEL_FACTS}
_NUMBER = {int, float, type(None)}
_NOT_TIMED = FAILURES.index(Failure.NOT_TIMED) + 1
_FAILURE_CODES: dict[Any, int] = {None: 0} | {
    str(reason): code for code, reason in enumerate(FAILURES, 1) if code != _NOT_TIMED
}
_HARDWARE_FIELDS = [field.name for field in fields(Hardware)]
_Record = TypeVar("_Record")


@dataclass(frozen=True)
class Group:
    """One group of a file: the rows of one problem in one environment."""

    problem: Problem
    environment: Environment
    rows: slice


def dataset_key(table: TimingTable) -> str:
    """32 hex digits that name this table's rows, in whatever file and order they are."""
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
        if column.dtype == np.float64:  # as bits, of which NaN has several forms
            columns.append(np.where(np.isnan(column), np.nan, column).astype("<f8").view("<i8"))
        else:
            columns.append(column.astype("<i8"))
    order = np.lexsort(columns)
    for column in columns:
        digest.update(column[order].tobytes())
    return content_key("dataset", {"sha256": digest.hexdigest()})


def write_dataset(table: TimingTable, path: str | PathLike[str]) -> None:
    """Writes the table, rows in its order, and replaces the file only when it is complete.

    The suffix (one of SUFFIXES) decides the form; the packed form keeps times to the nanosecond.
    Raises DatasetError where it is another suffix, the file cannot be written, or it would be
    larger than the largest file that is read.
    """
    where = Path(path)
    suffix = _suffix(where)
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

        # what is packed is small, and more effort takes a few bits off every timing
        level = 19 if suffix == PACKED else 12
        written = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)
    try:
        _check_readable(document, table, data, suffix)
        check_ratio(len(data), len(written))
    except Malformed as error:
        raise DatasetError(
            f"{where} could not be read again; write the timings as several datasets. {error}"
        ) from None
    _replace(where, written)


def read_dataset(path: str | PathLike[str], *, times_required: bool = True) -> TimingTable:
    """The file's timings, rows in its order.

    With `times_required` False a row may have neither a time nor a failure, as in a file for
    predictions; its failure is then Failure.NOT_TIMED. Raises DatasetError, with the place, where
    the file is missing, malformed or of an unknown version. Of a file of torch-diode's, what Diode
    does not know is left out (see `torch_diode.read`).
    """
    return _read(Path(path), times_required).table


def read_groups(path: str | PathLike[str]) -> tuple[TimingTable, tuple[Group, ...]]:
    """As `read_dataset` where times are not required, and how the file groups its rows."""
    table, rows, _ = _read(Path(path), times_required=False)
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


def import_dataset(store: Store, path: str | PathLike[str]) -> Imported:
    """Adds the file's timings as one run of kind import, all or nothing. Timings that the store has
    already, from any file or run, are not added again (see Store.import_table)."""
    return import_table_of(store, read_import(path))


@dataclass(frozen=True)
class ToImport:
    """The content of a file: its timings, their key, the run's spec, and how many timings were left
    out."""

    table: TimingTable
    key: str
    spec: Mapping[str, Any]
    left_out: int


def read_import(path: str | PathLike[str]) -> ToImport:
    """The content of a file. Raises DatasetError as `read_dataset` does, and where the file has
    nothing that Diode can use."""
    table, _, left_out = _read(Path(path), times_required=True)
    if left_out and not len(table):
        raise DatasetError(f"{path}: None of its {left_out} timings is one that Diode can use.")
    spec = {"file": str(path), "timings": len(table), "version": VERSION}
    return ToImport(table, dataset_key(table), spec, left_out)


def import_table_of(store: Store, given: ToImport, *, run: int | None = None) -> Imported:
    """Adds what was read from a file (see Store.import_table)."""
    done = store.import_table(given.table, key=given.key, spec=given.spec, run=run)
    return replace(done, left_out=given.left_out)


def read_datasets(paths: Iterable[str | PathLike[str]], query: str = "") -> TimingTable:
    """The timings of several files (equal ones once) of the problems that a filter query finds.
    Raises what `import_dataset` does."""
    with (
        tempfile.TemporaryDirectory(prefix="diode-datasets-") as folder,
        Store.open(Path(folder, "all.db")) as store,
    ):
        for path in paths:
            import_dataset(store, path)
        return store.read(query)


def export_dataset(
    store: Store,
    path: str | PathLike[str],
    *,
    hardware: str | None = None,
    run: int | None = None,
    ok_only: bool = False,
) -> int:
    """Writes what Store.read selects, and returns the number of timings."""
    _suffix(Path(path))
    table = store.read(hardware=hardware, run=run, ok_only=ok_only, kernels=True)
    write_dataset(table, path)
    return len(table)


def _suffix(path: Path) -> str:
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.endswith(suffix):
            return suffix
    raise DatasetError(f"{path} is no dataset by its name; it must end in {', '.join(SUFFIXES)}.")


# Writing


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
    """One group for each stretch of rows with the same problem and environment. A column without
    any known value is left out."""
    if not len(table):
        return []
    changes = (np.diff(table.problem) != 0) | (np.diff(table.environment) != 0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(table)]
    problem, environment = table.problem.tolist(), table.environment.tolist()
    reasons = [None, *(None if r is Failure.NOT_TIMED else str(r) for r in FAILURES)]
    columns: dict[str, list[Any]] = {
        "candidate": table.candidate.tolist(),
        **{
            name: [None if x != x else x for x in getattr(table, name).tolist()]
            for name in (*_TIMES, "spread_us")
        },
        "repeats": [x or None for x in table.repeats.tolist()],
        "failure": [reasons[code] for code in table.failure.tolist()],
    }
    if table.kernel is not None:
        for name, facts in zip(KERNEL_FACTS, table.kernel.T.tolist(), strict=True):
            columns[name] = [None if x < 0 else x for x in facts]
    groups = []
    for start, end in pairwise(cuts):
        group: dict[str, Any] = {"problem": problem[start], "environment": environment[start]}
        for name, column in columns.items():
            part = column[start:end]
            if name == "candidate" or any(x is not None for x in part):
                group[name] = part
        groups.append(group)
    return groups


def _check_readable(
    document: Mapping[str, Any], table: TimingTable, data: bytes, suffix: str
) -> None:
    """Raises Malformed where the document, which is this data, is larger than what is read of a
    file."""
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
        columns = len(_COLUMNS) + (0 if table.kernel is None else len(KERNEL_FACTS))
        parsing.limits().check_counts(containers, containers + len(table) * columns)


def _replace(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise DatasetError(f"{path} cannot be written: {error.strerror or error}.") from error


# Reading


class _Content(NamedTuple):
    table: TimingTable
    rows: _JoinedRows | None = None  # where the file groups them
    left_out: int = 0  # timings


def _read(where: Path, times_required: bool) -> _Content:
    suffix = _suffix(where)
    try:
        data = load(where, compressed=suffix.endswith(".zst"))
        document, constant = (
            parse_json(data) if suffix.startswith(".json") else (parse_msgpack(data), None)
        )
        if torch_diode.is_dataset(document):
            table, left_out = torch_diode.read(document)
            return _Content(table, left_out=left_out)
        if constant is not None:
            raise Malformed(
                f"It holds {constant}, which is no JSON; write null where there is no time."
            )
        if _version(document) == PACKED_VERSION:
            return _Content(_packed_table(document))
        return _Content(*_table(document, times_required))
    except RecursionError:
        raise DatasetError(f"{where}: It is nested too deeply for a dataset.") from None
    except MemoryError:
        raise DatasetError(f"{where} does not fit in this machine's memory; split it.") from None
    except OSError as error:
        raise DatasetError(f"{where} cannot be read: {error.strerror or error}.") from error
    except Malformed as error:
        raise DatasetError(f"{where}: {error}") from error


def _version(document: Any) -> int:
    mapping(document, "It", _FIELDS, _FIELDS)
    if document["format"] != FORMAT:
        raise Malformed(f"Its format is {show(document['format'])}; it must be {FORMAT!r}.")
    version = document["version"]
    if type(version) is not int or version not in (VERSION, PACKED_VERSION):
        raise Malformed(
            f"Its version is {show(version)} and this Diode reads {VERSION} and "
            f"{PACKED_VERSION}; update Diode, or write the dataset again."
        )
    return version


def _packed_table(document: Any) -> TimingTable:
    environments = _records(document, "environments", _environment)
    problems = _records(document, "problems", Problem.from_dict)
    candidates = _records(document, "candidates", Candidate.from_dict)
    timings = document["timings"]
    mapping(timings, "timings", PACKED_FIELDS, PACKED_FIELDS)
    parsing.check_rows(timings["rows"])
    try:
        columns = unpack(timings, len(candidates))
        table = TimingTable(problems, candidates, environments, **columns)
    except RecordError as error:
        raise Malformed(f"timings: {shortened(str(error))}") from None
    if np.any(table.failure == _NOT_TIMED):
        raise Malformed("timings: Its rows must have a time or a failure.")
    return table


def _table(document: Any, times_required: bool) -> tuple[TimingTable, _JoinedRows]:
    environments = _records(document, "environments", _environment)
    problems = _records(document, "problems", Problem.from_dict)
    candidates = _records(document, "candidates", Candidate.from_dict)
    rows = _JoinedRows(document["timings"], len(problems), len(environments))
    time = {name: rows.numbers(name, positive=True) for name in _TIMES}
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
    failure[neither] = _NOT_TIMED
    table = TimingTable(
        problems,
        candidates,
        environments,
        problem=np.repeat(np.array(rows.problem, dtype=np.int32), rows.lengths),
        candidate=rows.whole("candidate", len(candidates) - 1, none=None),
        environment=np.repeat(np.array(rows.environment, dtype=np.int32), rows.lengths),
        min_us=time["min_us"],
        median_us=time["median_us"],
        spread_us=rows.numbers("spread_us", positive=False),
        repeats=rows.whole("repeats", 2**31 - 1, none=0),
        failure=failure,
        kernel=rows.kernel(),
    )
    return table, rows


class _JoinedRows:
    """The columns of all groups, one group after the other, and the place in the file of each
    row."""

    def __init__(self, groups: Any, problems: int, environments: int) -> None:
        with_kernel = any(
            isinstance(group, dict) and not group.keys().isdisjoint(KERNEL_FACTS)
            for group in items(groups, "timings")
        )
        names = (*_COLUMNS, *KERNEL_FACTS) if with_kernel else _COLUMNS
        self.columns: dict[str, list[Any]] = {name: [] for name in names}
        self.problem: list[int] = []
        self.environment: list[int] = []
        self.lengths: list[int] = []
        rows = 0
        for i, group in enumerate(groups):
            place = f"timings[{i}]"
            mapping(group, place, _GROUP_FIELDS, {"problem", "candidate"})
            if "environment" not in group and environments != 1:
                raise Malformed(
                    f"{place} lacks the field environment, which may be left out only where "
                    "there is one."
                )
            self.problem.append(_index(group["problem"], f"{place}.problem", problems))
            self.environment.append(
                _index(group.get("environment", 0), f"{place}.environment", environments)
            )
            n = len(items(group["candidate"], f"{place}.candidate"))
            self.lengths.append(n)
            rows += n
            parsing.check_rows(rows)
            for name, column in self.columns.items():
                values = group.get(name)
                if values is None:
                    column.extend([None] * n)
                    continue
                if len(items(values, f"{place}.{name}")) != n:
                    raise Malformed(
                        f"{place}.{name} has {len(values)} values and {place}.candidate {n}; the "
                        "columns of a group must be equally long."
                    )
                column.extend(values)
        self._ends = np.cumsum(self.lengths)

    def place(self, row: int | npt.NDArray[np.bool_], column: str = "") -> str:
        """The place in the file of a row, or of the first row that is marked."""
        i = row if isinstance(row, int) else int(np.argmax(row))
        group = int(np.searchsorted(self._ends, i, side="right"))
        within = i - (int(self._ends[group]) - self.lengths[group])
        if column:
            return f"timings[{group}].{column}[{within}]"
        return f"Row {within} of timings[{group}]"

    def _refuse_first(self, name: str, good: Callable[[Any], bool], must: str) -> None:
        for row, value in enumerate(self.columns[name]):
            if not good(value):
                raise Malformed(f"{self.place(row, name)} is {show(value)}; it must be {must}.")

    def numbers(self, name: str, *, positive: bool) -> npt.NDArray[np.float64]:
        """A column of times, in microseconds; NaN for null."""
        column = self.columns[name]
        must = "a positive number of microseconds" if positive else "a number from 0 up"
        must += ", of an hour at most, or null"

        def good(value: Any) -> bool:
            if value is None:
                return True
            if type(value) not in _NUMBER:
                return False
            try:
                number = float(value)
            except OverflowError:
                return False
            return (number > 0 or (number == 0 and not positive)) and number <= MAX_US

        try:
            if not set(map(type, column)) <= _NUMBER:
                raise OverflowError
            numbers = np.array(column, dtype=np.float64)
        except OverflowError:
            self._refuse_first(name, good, must)
            raise
        null = np.isnan(numbers)
        if null.sum() != column.count(None) or not np.all(
            null | ((numbers <= MAX_US) & ((numbers > 0) if positive else (numbers >= 0)))
        ):
            self._refuse_first(name, good, must)
        return numbers

    def whole(self, name: str, largest: int, *, none: int | None) -> npt.NDArray[np.int32]:
        """A column of whole numbers from 0 to `largest`; `none` stands for null where null is
        allowed."""
        column = self.columns[name]
        must = f"a whole number from 0 to {largest}" if largest >= 0 else "left out: there are none"
        if none is not None:
            must += ", or null"
            kinds = set(map(type, column))
            if type(None) in kinds:
                column = [none if value is None else value for value in column]

        def good(value: Any) -> bool:
            if value is None:
                return none is not None
            return type(value) is int and 0 <= value <= largest

        if column and (
            not set(map(type, column)) <= {int} or min(column) < 0 or max(column) > largest
        ):
            self._refuse_first(name, good, must)
        return np.array(column, dtype=np.int32)

    def kernel(self) -> npt.NDArray[np.int32] | None:
        """The compiler's facts on the kernels: for each row all or none."""
        if not self.columns.keys() >= set(KERNEL_FACTS):
            return None
        facts = np.stack([self.whole(name, 2**31 - 1, none=-1) for name in KERNEL_FACTS], axis=1)
        known = facts >= 0
        if np.any(partly := known.any(axis=1) != known.all(axis=1)):
            raise Malformed(
                f"{self.place(partly)} has some of {', '.join(KERNEL_FACTS)}; it must have all or "
                "none."
            )
        return facts if known.any() else None

    def failures(self) -> npt.NDArray[np.uint8]:
        column = self.columns["failure"]
        try:
            return np.array([_FAILURE_CODES[reason] for reason in column], dtype=np.uint8)
        except (KeyError, TypeError):
            known = [str(reason) for reason in _FAILURE_CODES if reason is not None]
            self._refuse_first(
                "failure",
                lambda value: value is None or (isinstance(value, str) and value in known),
                f"null or one of {', '.join(known)}",
            )
            raise


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
    """An environment. Its software may be left out; its hardware may be a name, or lack facts that
    KNOWN has."""
    software = {"driver": "", "torch": "", "triton": ""}
    hardware = given.get("hardware")
    if isinstance(hardware, str):
        hardware = {"name": hardware}
    if not isinstance(hardware, dict):
        raise RecordError("Its hardware must be a name or an object.")
    name = hardware.get("name")
    missing = [field for field in _HARDWARE_FIELDS if field not in hardware]
    if missing and isinstance(name, str):
        if name not in KNOWN:
            raise RecordError(
                f"The hardware {show(name)} is not one that Diode knows by name "
                f"({', '.join(KNOWN)}); give its {', '.join(missing)} as well."
            )
        hardware = {**KNOWN[name].to_dict(), **hardware}
    return Environment.from_dict({**software, **given, "hardware": hardware})


def _index(value: Any, place: str, length: int) -> int:
    if type(value) is not int or not 0 <= value < length:
        raise Malformed(f"{place} is {show(value)}, and there are {length} of them, from 0.")
    return value
