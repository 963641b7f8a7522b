"""Timings to and from files: JSON and msgpack, plain, compressed with Zstandard, or packed.

The format is described in docs/dataset-format.md. A file is read whole or not at all:
whatever is wrong with it is a DatasetError that names the place.
"""

from __future__ import annotations

import hashlib
import json
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from diode_engine.errors import DatasetError, NoSuchDatasetError, RecordError
from diode_engine.hardware import H200, Environment, Hardware
from diode_engine.problem import MAX_US, Candidate, Failure, Problem, content_key
from diode_engine.store.packed import FIELDS as PACKED_FIELDS
from diode_engine.store.packed import pack, unpack
from diode_engine.store.store import Imported, Store
from diode_engine.table import FAILURES, TimingTable

FORMAT = "diode-dataset"
VERSION = 1
PACKED_VERSION = 2  # the same, but for the timings (see `packed`)
PACKED = ".packed.zst"
SUFFIXES = (".json", ".msgpack", ".json.zst", ".msgpack.zst", PACKED)
MAX_BYTES = 512 << 20  # of a dataset once decompressed: about 7 million timings as JSON
KNOWN_HARDWARE = {H200.name: H200}  # what a dataset may name without its facts

_FIELDS = {"format", "version", "environments", "problems", "candidates", "timings"}
_TIMES = ("min_us", "median_us")
_COLUMNS = ("candidate", "min_us", "median_us", "spread_us", "repeats", "failure")
_GROUP_FIELDS = {"problem", "environment", *_COLUMNS}
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
    """32 hex digits that name this table's rows, whatever file they are in and in whatever order
    they and their records are."""
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
    for field in fields(table)[6:]:
        column = getattr(table, field.name)
        if column.dtype == np.float64:  # as bits, of which NaN has several forms
            columns.append(np.where(np.isnan(column), np.nan, column).astype("<f8").view("<i8"))
        else:
            columns.append(column.astype("<i8"))
    order = np.lexsort(columns)
    for column in columns:
        digest.update(column[order].tobytes())
    return content_key("dataset", {"sha256": digest.hexdigest()})


def write_dataset(table: TimingTable, path: str | PathLike[str]) -> None:
    """Writes the table, rows in its order, replacing the file at once and only when complete.

    The suffix (one of SUFFIXES) says how; the packed form keeps times to the nanosecond.
    Raises DatasetError where it is another one, the file cannot be written, or it would be
    larger than what is read.
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
    if len(data) > MAX_BYTES:
        raise DatasetError(
            f"{where} would be {len(data) >> 20} MiB, and {MAX_BYTES >> 20} MiB is the most that "
            "is read; write the timings as several datasets."
        )
    if suffix.endswith(".zst"):
        import zstandard

        # what is packed is small, and more effort takes a few bits off every timing
        level = 19 if suffix == PACKED else 12
        data = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)
    _replace(where, data)


def read_dataset(path: str | PathLike[str], *, times_required: bool = True) -> TimingTable:
    """The file's timings, rows in its order.

    Where `times_required` is False a row may have neither a time nor a failure, as in a file
    that is only to be predicted; its failure is then Failure.NOT_TIMED. Raises DatasetError,
    with the place, where the file is missing, malformed or of an unknown version.
    """
    return _read(Path(path), times_required)[0]


def read_groups(path: str | PathLike[str]) -> tuple[TimingTable, tuple[Group, ...]]:
    """As `read_dataset` where times are not required, and how the file groups its rows."""
    table, rows = _read(Path(path), times_required=False)
    if rows is None:
        raise DatasetError(f"{path} is packed, which keeps no groups; export it in another form.")
    ends = np.cumsum(rows.lengths).tolist()
    return table, tuple(
        Group(table.problems[problem], table.environments[environment], slice(end - n, end))
        for problem, environment, n, end in zip(
            rows.problem, rows.environment, rows.lengths, ends, strict=True
        )
    )


def import_dataset(store: Store, path: str | PathLike[str]) -> Imported:
    """Adds the file's timings as one run of kind import, all or nothing. What the store holds
    already, from whichever file or run, is not added again (see Store.import_table)."""
    table = read_dataset(path)
    spec = {"file": str(path), "timings": len(table), "version": VERSION}
    return store.import_table(table, key=dataset_key(table), spec=spec)


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
    table = store.read(hardware=hardware, run=run, ok_only=ok_only)
    write_dataset(table, path)
    return len(table)


class _Malformed(Exception):
    """What is wrong with a dataset, and where; `read_dataset` adds the file's name."""


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
    """One group for each stretch of rows with the same problem and environment. A column in
    which nothing is known is left out."""
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
    groups = []
    for start, end in pairwise(cuts):
        group: dict[str, Any] = {"problem": problem[start], "environment": environment[start]}
        for name, column in columns.items():
            part = column[start:end]
            if name == "candidate" or any(x is not None for x in part):
                group[name] = part
        groups.append(group)
    return groups


def _replace(path: Path, data: bytes) -> None:
    """Writes beside the file and moves it there, so that a reader sees the old or the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise DatasetError(f"{path} cannot be written: {error.strerror or error}.") from error


# Reading bytes


def _read(where: Path, times_required: bool) -> tuple[TimingTable, _Rows | None]:
    suffix = _suffix(where)
    try:
        data = _load(where, compressed=suffix.endswith(".zst"))
        document = _parse_json(data) if suffix.startswith(".json") else _parse_msgpack(data)
        if _version(document) == PACKED_VERSION:
            return _packed_table(document), None
        return _table(document, times_required)
    except MemoryError:
        raise DatasetError(f"{where} does not fit in this machine's memory; split it.") from None
    except OSError as error:
        raise DatasetError(f"{where} cannot be read: {error.strerror or error}.") from error
    except _Malformed as error:
        raise DatasetError(f"{where}: {error}") from error


def _load(path: Path, *, compressed: bool) -> bytes:
    if not path.exists():
        raise NoSuchDatasetError(f"There is no file {path}; check its name.")
    with path.open("rb") as file:
        if compressed:
            return _decompress(iter(lambda: file.read(1024), b""))
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise _too_large()
        return file.read()


def _decompress(chunks: Iterable[bytes]) -> bytes:
    """The content of the frames. A compressed kilobyte can hold 32 MiB, so small chunks keep
    what is decompressed beyond MAX_BYTES small."""
    import zstandard

    parts: list[bytes] = []
    size = 0
    frame: Any = None
    try:
        for chunk in chunks:
            while chunk:
                if frame is None:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                part = frame.decompress(chunk)
                chunk = b""
                parts.append(part)
                size += len(part)
                if size > MAX_BYTES:
                    raise _too_large()
                if frame.eof:
                    chunk, frame = frame.unused_data, None
    except zstandard.ZstdError as error:
        raise _Malformed(f"It is not Zstandard data, or damaged: {error}.") from None
    if frame is not None or not parts:
        raise _Malformed("It ends in the middle of its compressed data; get it again.")
    return b"".join(parts)


def _too_large() -> _Malformed:
    return _Malformed(f"It holds more than {MAX_BYTES >> 20} MiB; split it into several datasets.")


def _parse_json(data: bytes) -> Any:
    def constant(name: str) -> NoReturn:
        raise _Malformed(f"It holds {name}, which is no JSON; write null where there is no time.")

    try:
        text = data.decode()
        return json.loads(text, object_pairs_hook=_unique, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise _Malformed(f"It is not UTF-8 text at byte {error.start}.") from None
    except RecursionError:
        raise _Malformed("It is nested too deeply for a dataset.") from None
    except ValueError as error:  # JSONDecodeError, or an int of thousands of digits
        raise _Malformed(f"It is not valid JSON, or cut short: {error}.") from None


def _parse_msgpack(data: bytes) -> Any:
    import msgpack

    try:
        # A header may promise more than follows, and a list is made at its promised length:
        # so first walk through everything without making anything.
        walker = msgpack.Unpacker(max_buffer_size=len(data) + 1)
        walker.feed(data)
        walker.skip()
        if walker.tell() != len(data):
            raise _Malformed(f"Something follows its end at byte {walker.tell()}.")
        return msgpack.unpackb(data, object_pairs_hook=_unique, strict_map_key=True)
    except (msgpack.OutOfData, msgpack.UnpackException, ValueError, RecursionError) as error:
        if isinstance(error, msgpack.OutOfData):
            raise _Malformed("It ends too early; get it again.") from None
        if isinstance(error, UnicodeDecodeError):
            raise _Malformed("It holds a text that is not UTF-8.") from None
        raise _Malformed(
            f"It is not valid msgpack, or nested too deeply ({error or type(error).__name__})."
        ) from None


def _unique(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if not isinstance(name, str):
            raise _Malformed(f"It holds a field named {_show(name)}; a name must be a text.")
        if name in fields:
            raise _Malformed(f"It holds the field {_show(name)} twice in one object.")
        fields[name] = value
    return fields


# Reading the document


def _version(document: Any) -> int:
    _mapping(document, "It", _FIELDS, _FIELDS)
    if document["format"] != FORMAT:
        raise _Malformed(f"Its format is {_show(document['format'])}; it must be {FORMAT!r}.")
    version = document["version"]
    if type(version) is not int or version not in (VERSION, PACKED_VERSION):
        raise _Malformed(
            f"Its version is {_show(version)} and this Diode reads {VERSION} and "
            f"{PACKED_VERSION}; update Diode, or write the dataset again."
        )
    return version


def _packed_table(document: Any) -> TimingTable:
    environments = _records(document, "environments", _environment)
    problems = _records(document, "problems", Problem.from_dict)
    candidates = _records(document, "candidates", Candidate.from_dict)
    timings = document["timings"]
    _mapping(timings, "timings", PACKED_FIELDS, PACKED_FIELDS)
    try:
        columns = unpack(timings, len(candidates))
        table = TimingTable(problems, candidates, environments, **columns)
    except RecordError as error:
        raise _Malformed(f"timings: {_shortened(str(error))}") from None
    if np.any(table.failure == _NOT_TIMED):
        raise _Malformed("timings: Its rows must have a time or a failure.")
    return table


def _table(document: Any, times_required: bool) -> tuple[TimingTable, _Rows]:
    environments = _records(document, "environments", _environment)
    problems = _records(document, "problems", Problem.from_dict)
    candidates = _records(document, "candidates", Candidate.from_dict)
    rows = _Rows(document["timings"], len(problems), len(environments))
    time = {name: rows.numbers(name, positive=True) for name in _TIMES}
    if np.any(swapped := time["min_us"] > time["median_us"]):
        raise _Malformed(f"{rows.place(swapped)} has a min_us larger than its median_us.")
    failure = rows.failures()
    timed = ~(np.isnan(time["min_us"]) & np.isnan(time["median_us"]))
    if np.any(both := timed & (failure > 0)):
        raise _Malformed(f"{rows.place(both)} has a time and a failure; it can have one only.")
    neither = ~timed & (failure == 0)
    if times_required and np.any(neither):
        raise _Malformed(
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
    )
    return table, rows


class _Rows:
    """The groups' columns, one after the other, and the way back from a row to its place."""

    def __init__(self, groups: Any, problems: int, environments: int) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self.problem: list[int] = []
        self.environment: list[int] = []
        self.lengths: list[int] = []
        for i, group in enumerate(_list(groups, "timings")):
            place = f"timings[{i}]"
            _mapping(group, place, _GROUP_FIELDS, {"problem", "candidate"})
            if "environment" not in group and environments != 1:
                raise _Malformed(
                    f"{place} lacks the field environment, which may be left out only where "
                    "there is one."
                )
            self.problem.append(_index(group["problem"], f"{place}.problem", problems))
            self.environment.append(
                _index(group.get("environment", 0), f"{place}.environment", environments)
            )
            n = len(_list(group["candidate"], f"{place}.candidate"))
            self.lengths.append(n)
            for name, column in self.columns.items():
                values = group.get(name)
                if values is None:
                    column.extend([None] * n)
                    continue
                if len(_list(values, f"{place}.{name}")) != n:
                    raise _Malformed(
                        f"{place}.{name} has {len(values)} values and {place}.candidate {n}; the "
                        "columns of a group must be equally long."
                    )
                column.extend(values)
        self._ends = np.cumsum(self.lengths)

    def place(self, row: int | npt.NDArray[np.bool_], column: str = "") -> str:
        """Where a row, or the first that is marked, stands in the file."""
        i = row if isinstance(row, int) else int(np.argmax(row))
        group = int(np.searchsorted(self._ends, i, side="right"))
        within = i - (int(self._ends[group]) - self.lengths[group])
        if column:
            return f"timings[{group}].{column}[{within}]"
        return f"Row {within} of timings[{group}]"

    def _refuse_first(self, name: str, good: Callable[[Any], bool], must: str) -> None:
        for row, value in enumerate(self.columns[name]):
            if not good(value):
                raise _Malformed(f"{self.place(row, name)} is {_show(value)}; it must be {must}.")

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
        """A column of whole numbers from 0 to `largest`, `none` for null if that may be."""
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
    for i, given in enumerate(_list(document[name], name)):
        place = f"{name}[{i}]"
        if not isinstance(given, dict):
            raise _Malformed(f"{place} is {_show(given)}; it must be an object.")
        try:
            records.append(make(given))
            json.dumps(given, ensure_ascii=False).encode()
        except RecordError as error:
            raise _Malformed(f"{place}: {_shortened(str(error))}") from None
        except UnicodeEncodeError:  # JSON can escape half a surrogate pair
            raise _Malformed(f"{place} holds a text that is not valid Unicode.") from None
    return tuple(records)


def _environment(given: Mapping[str, Any]) -> Environment:
    """An environment whose software may be left out, and whose hardware may be a name or
    lack facts where KNOWN_HARDWARE has them."""
    software = {"driver": "", "torch": "", "triton": ""}
    hardware = given.get("hardware")
    if isinstance(hardware, str):
        hardware = {"name": hardware}
    if not isinstance(hardware, dict):
        raise RecordError("Its hardware must be a name or an object.")
    name = hardware.get("name")
    missing = [field for field in _HARDWARE_FIELDS if field not in hardware]
    if missing and isinstance(name, str):
        if name not in KNOWN_HARDWARE:
            raise RecordError(
                f"The hardware {_show(name)} is not one that Diode knows by name "
                f"({', '.join(KNOWN_HARDWARE)}); give its {', '.join(missing)} as well."
            )
        hardware = {**KNOWN_HARDWARE[name].to_dict(), **hardware}
    return Environment.from_dict({**software, **given, "hardware": hardware})


def _mapping(value: Any, place: str, known: set[str], needed: set[str]) -> None:
    if not isinstance(value, dict):
        raise _Malformed(f"{place} is {_show(value)}; it must be an object.")
    if missing := sorted(needed - set(value)):
        raise _Malformed(f"{place} lacks the fields {', '.join(missing)}.")
    if unknown := sorted(set(value) - known, key=str):
        raise _Malformed(f"{place} has unknown fields: {', '.join(map(_show, unknown))}.")


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Malformed(f"{place} is {_show(value)}; it must be a list.")
    return value


def _index(value: Any, place: str, length: int) -> int:
    if type(value) is not int or not 0 <= value < length:
        raise _Malformed(f"{place} is {_show(value)}, and there are {length} of them, from 0.")
    return value


def _show(value: Any) -> str:
    return reprlib.repr(value)


def _shortened(sentence: str) -> str:
    return sentence if len(sentence) <= 300 else f"{sentence[:300]}…"
