"""Shapesets: problems in a JSON file, without timings.

Two forms are read. Diode's own form, which `write_shapeset` writes, has columns, and a row for each
problem (docs/collection.md shows it). The columns are fields of a problem (see Problem.to_dict). A
field that only some ops have is null for the other ops, and where it has its usual value. The form
of torch-diode is

    {"operations": {"mm": {"shapes": [{"B": 1, "M": …, "N": …, "K": …, "M_dtype": "float16",
        "K_dtype": "float16", "out_dtype": "float16", "out_size": […], "out_stride": […]}]}}}

or a single {"shapes": […]}, in which shapes with a batch are bmm and the others mm.

What a file does not say of a problem (its type, the layouts of its operands) is drawn by a seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from diode_engine.atomic import FileKind, write_whole
from diode_engine.core.problem import Problem
from diode_engine.documents import (
    Limits,
    Malformed,
    check_json_counts,
    read_bytes,
    read_document,
    shortened,
)
from diode_engine.errors import DatasetError, RecordError, explain_os_error
from diode_engine.problems.sources.drawing import complete_problem
from diode_engine.store.datasets.parsing import items, mapping
from diode_engine.store.datasets.torch_diode import problem_fields

# The largest that torch-diode publishes has some ten thousand shapes, of three lists and objects
# each; a capture has hundreds.
LIMITS = Limits(bytes=64 << 20, containers=1 << 20, values=1 << 24)
_KINDS = {"operations", "columns", "shapes"}
COLUMNS = tuple(Problem.make("mm", 1, 1, 1, "float16").to_dict())


@dataclass(frozen=True)
class Shapeset:
    """The rows of a file; each has some of a problem's fields. `left_out` is the number of
    torch-diode's shapes for which Diode has no problem (see `torch_diode.problem_fields`)."""

    rows: tuple[Mapping[str, Any], ...]
    left_out: int = 0

    def problems(self, seed: int) -> list[Problem]:
        """One problem for each row, equal ones once. Fields that a row does not have are drawn."""
        rng = random.Random(f"shapeset/{seed}")
        return list(dict.fromkeys(complete_problem(rng, dict(row)) for row in self.rows))


def is_shapeset(path: Path) -> bool:
    """Whether the file has the form of a shapeset, valid or not; False where it cannot be read."""
    if path.suffix != ".json":
        return False
    try:
        data = read_bytes(path, LIMITS)
        check_json_counts(data, LIMITS)
        document = json.loads(data)
    except (OSError, ValueError, RecursionError, Malformed):
        return False
    return isinstance(document, dict) and not _KINDS.isdisjoint(document)


def read_shapeset(path: str | PathLike[str]) -> Shapeset:
    """The shapeset in a file. Raises DatasetError, with the place, where the file is missing or
    malformed, or has a row that cannot be a problem."""
    document = read_document(Path(path), LIMITS, DatasetError)
    try:
        if isinstance(document, dict) and "operations" in document:
            return _operations(document["operations"])
        if isinstance(document, dict) and "columns" in document:
            return _columns(document)
        if isinstance(document, dict) and "shapes" in document:
            return _torch_diode(_shapes(document, None, "shapes"))
    except Malformed as error:
        raise DatasetError(f"{path}: {error}") from None
    raise DatasetError(
        f"{path} is no shapeset: it must be an object with columns and shapes, with operations, or "
        "with shapes."
    )


def write_shapeset(problems: Iterable[Problem], path: str | PathLike[str], source: str) -> None:
    """Writes the problems with all their fields. An existing file is replaced at once, when the new
    one is complete. Raises DatasetError where it cannot be written."""
    where = Path(path)
    written = [p.to_dict() for p in problems]
    own = sorted({name for fields in written for name in fields}.difference(COLUMNS))
    columns = (*COLUMNS, *own)
    rows = [json.dumps([fields.get(name) for name in columns]) for fields in written]
    head = json.dumps({"source": source, "columns": columns})
    text = f'{head[:-1]}, "shapes": [\n' + ",\n".join(rows) + "\n]}\n"
    with explain_os_error(DatasetError, f"{where} cannot be written"):
        write_whole(where, text, kind=FileKind.SHAPESET)


def _columns(document: Mapping[str, Any]) -> Shapeset:
    columns = items(document["columns"], "columns")
    if not all(isinstance(name, str) for name in columns) or len(set(columns)) < len(columns):
        raise Malformed("columns must be names, none of them twice.")
    rows = []
    for i, shape in enumerate(items(document.get("shapes"), "shapes")):
        if len(items(shape, f"shapes[{i}]")) != len(columns):
            raise Malformed(f"shapes[{i}] has {len(shape)} values for {len(columns)} columns.")
        row = {
            name: value
            for name, value in zip(columns, shape, strict=True)
            if value is not None or name in COLUMNS
        }
        rows.append(_checked(row, f"shapes[{i}]"))
    return Shapeset(tuple(rows))


def _operations(operations: Any) -> Shapeset:
    return _torch_diode(
        row
        for op, entry in mapping(operations, "operations").items()
        for row in _shapes(mapping(entry, f"operations.{op}"), op, f"operations.{op}.shapes")
    )


def _torch_diode(rows: Iterable[Mapping[str, Any] | None]) -> Shapeset:
    given = list(rows)
    kept = tuple(row for row in given if row is not None)
    return Shapeset(kept, left_out=len(given) - len(kept))


def _shapes(
    entry: Mapping[str, Any], op: str | None, place: str
) -> Iterator[Mapping[str, Any] | None]:
    """A row for each shape; None where Diode has no such problem."""
    for i, shape in enumerate(items(entry.get("shapes"), place)):
        where = f"{place}[{i}]"
        fields = problem_fields(op or _op(shape), shape, where)
        yield None if fields is None else _checked(fields, where)


def _op(shape: Any) -> str:
    """The op of a shape whose file does not name it."""
    return "mm" if isinstance(shape, dict) and shape.get("B") == 1 else "bmm"


def _checked(row: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The row, if it is a possible problem whatever is drawn for the missing fields. Raises
    Malformed."""
    try:
        complete_problem(random.Random(0), dict(row))
    except (RecordError, TypeError) as error:
        raise Malformed(f"{place}: {shortened(str(error))}") from None
    return row
