"""Shapesets: problems in a JSON file, without timings.

Two forms are read. Diode's own, which `write_shapeset` writes, has columns and a row a problem:

    {"source": "where from", "columns": ["op", "B", "M", "N", "K"], "shapes": [["mm", 1, …], …]}

The columns are fields of a problem (see Problem.to_dict). Those of torch-diode have

    {"operations": {"mm": {"shapes": [{"B": 1, "M": …, "N": …, "K": …, "M_dtype": "float16",
        "K_dtype": "float16", "out_dtype": "float16", "out_size": […], "out_stride": […]}]}}}

What neither says of a problem (its type, its operands' layouts) is drawn by a seed.
"""

from __future__ import annotations

import json
import os
import random
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from diode_engine.collect.sources.drawing import completed
from diode_engine.errors import DatasetError, RecordError
from diode_engine.problem import DType, Op, Problem

MAX_BYTES = 64 << 20
COLUMNS = tuple(Problem.make("mm", 1, 1, 1, "float16").to_dict())


@dataclass(frozen=True)
class Shapeset:
    """The rows of a file, each some of a problem's fields; `left_out` counts those that are
    no problem of Diode's: another op or type, operands of two types, an output that is not
    row-major."""

    rows: tuple[Mapping[str, Any], ...]
    left_out: int = 0

    def problems(self, seed: int) -> list[Problem]:
        """One problem a row, equal ones once; what a row does not say is drawn."""
        rng = random.Random(f"shapeset/{seed}")
        return list(dict.fromkeys(completed(rng, dict(row)) for row in self.rows))


def is_shapeset(path: Path) -> bool:
    """Whether the file is meant to be a shapeset, be it a good one or not; False where it
    cannot be read."""
    if path.suffix != ".json":
        return False
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and not {"operations", "columns"}.isdisjoint(document)


def read_shapeset(path: str | PathLike[str]) -> Shapeset:
    """Raises DatasetError, with the place, where the file is missing, malformed or holds what
    cannot be a problem."""
    where = Path(path)
    try:
        if where.stat().st_size > MAX_BYTES:
            raise DatasetError(f"{where} is over {MAX_BYTES >> 20} MiB; split the shapeset.")
        text = where.read_text(encoding="utf-8")
    except OSError as error:
        raise DatasetError(f"{where} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{where} is not UTF-8 text at byte {error.start}.") from None
    return parse_shapeset(text, str(where))


def parse_shapeset(text: str, name: str) -> Shapeset:
    """The shapeset in a text; `name` is what errors call it. Raises DatasetError."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise DatasetError(f"{name} is nested too deeply for a shapeset.") from None
    except ValueError as error:
        raise DatasetError(f"{name} is not valid JSON, or cut short: {error}.") from None
    try:
        if isinstance(document, dict) and "operations" in document:
            return _operations(document["operations"])
        if isinstance(document, dict) and "columns" in document:
            return _columns(document)
    except _Malformed as error:
        raise DatasetError(f"{name}: {error}") from None
    raise DatasetError(
        f"{name} is no shapeset: it must be an object with columns and shapes, or with operations."
    )


def write_shapeset(problems: Iterable[Problem], path: str | PathLike[str], source: str) -> None:
    """Writes the problems in full, replacing the file at once and only when complete. Raises
    DatasetError where it cannot be written."""
    where = Path(path)
    rows = [json.dumps([p.to_dict()[name] for name in COLUMNS]) for p in problems]
    head = json.dumps({"source": source, "columns": COLUMNS})
    text = f'{head[:-1]}, "shapes": [\n' + ",\n".join(rows) + "\n]}\n"
    beside = where.with_name(f".{where.name}.{os.getpid()}.tmp")
    try:
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(where)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise DatasetError(f"{where} cannot be written: {error.strerror or error}.") from error


class _Malformed(Exception):
    """What is wrong with a shapeset, and where."""


def _columns(document: Mapping[str, Any]) -> Shapeset:
    columns = _list(document["columns"], "columns")
    if not all(isinstance(name, str) for name in columns) or len(set(columns)) < len(columns):
        raise _Malformed("columns must be names, none of them twice.")
    rows = []
    for i, shape in enumerate(_list(document.get("shapes"), "shapes")):
        if len(_list(shape, f"shapes[{i}]")) != len(columns):
            raise _Malformed(f"shapes[{i}] has {len(shape)} values for {len(columns)} columns.")
        rows.append(_checked(dict(zip(columns, shape, strict=True)), f"shapes[{i}]"))
    return Shapeset(tuple(rows))


def _operations(operations: Any) -> Shapeset:
    rows: list[Mapping[str, Any]] = []
    left_out = 0
    for op, entry in _mapping(operations, "operations").items():
        place = f"operations.{op}"
        if op not in tuple(Op):
            left_out += len(_list(_mapping(entry, place).get("shapes"), f"{place}.shapes"))
            continue
        for i, shape in enumerate(_list(_mapping(entry, place).get("shapes"), f"{place}.shapes")):
            where = f"{place}.shapes[{i}]"
            fields = _mapping(shape, where)
            needed = ("B", "M", "N", "K", "M_dtype", "K_dtype", "out_dtype", "out_size",
                      "out_stride")  # fmt: skip
            if missing := [name for name in needed if name not in fields]:
                raise _Malformed(f"{where} lacks the fields {', '.join(missing)}.")
            if fields["M_dtype"] not in tuple(DType) or fields["out_dtype"] not in tuple(DType):
                left_out += 1
                continue
            row = _checked(
                {
                    "op": op,
                    **{name: fields[name] for name in ("B", "M", "N", "K")},
                    "dtype": fields["M_dtype"],
                    "out_dtype": fields["out_dtype"],
                },
                where,
            )
            if fields["M_dtype"] == fields["K_dtype"] and _row_major(
                _list(fields["out_size"], f"{where}.out_size"),
                _list(fields["out_stride"], f"{where}.out_stride"),
            ):
                rows.append(row)
            else:
                left_out += 1
    return Shapeset(tuple(rows), left_out)


def _row_major(size: Sequence[Any], stride: Sequence[Any]) -> bool:
    """Whether these are a tensor's without gaps, its last dimension contiguous; the stride of
    a dimension of one element says nothing."""
    expected = 1
    if len(size) != len(stride):
        return False
    for n, step in zip(reversed(size), reversed(stride), strict=True):
        if type(n) is not int or (n != 1 and step != expected):
            return False
        expected *= n
    return True


def _checked(row: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The row, which must be of a possible problem however the rest is drawn."""
    try:
        completed(random.Random(0), dict(row))
    except (RecordError, TypeError) as error:
        raise _Malformed(f"{place}: {str(error)[:300]}") from None
    return row


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Malformed(f"{place} is {reprlib.repr(value)}; it must be a list.")
    return value


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Malformed(f"{place} is {reprlib.repr(value)}; it must be an object.")
    return value
