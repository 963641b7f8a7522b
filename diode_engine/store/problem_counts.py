"""How many problems there are: by their sizes, and by GPU, op, type and other values.

`query` is a filter query of problems. Every function raises QueryError where it has a mistake, and
StoreError where the store cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.operand import Bias, DType, Layout
from diode_engine.core.operators import OPERATORS
from diode_engine.store import schema
from diode_engine.store.fields import PROBLEMS, SUMMARIES
from diode_engine.store.query import MAX_ROWS, one_of
from diode_engine.store.records import pairs_of
from diode_engine.store.session import OpenStore

_S, _P, _E = schema.summaries.c, schema.problems.c, schema.environments.c


@dataclass(frozen=True)
class _Code:
    """A column with few different values that are grouped by as numbers; grouping by texts takes
    three times as long."""

    number: sa.ColumnElement[int]
    names: tuple[str, ...]


def _code(column: sa.Column[str], names: Iterable[str]) -> _Code:
    known = tuple(map(str, names))
    return _Code(sa.case({name: i for i, name in enumerate(known)}, value=column), known)


_DTYPES = _code(_P.dtype, DType)
_LAYOUTS = _code(_P.a_layout, Layout), _code(_P.b_layout, Layout)
_CODES: Mapping[str, _Code] = {
    "op": _code(_P.op, OPERATORS),
    "dtype": _Code(
        2 * _DTYPES.number + _P.allow_tf32,
        tuple(name + tf32 for name in _DTYPES.names for tf32 in ("", " tf32")),
    ),
    "layout": _Code(
        2 * _LAYOUTS[0].number + _LAYOUTS[1].number,
        tuple(f"{a}/{b}" for a in _LAYOUTS[0].names for b in _LAYOUTS[1].names),
    ),
    "bias": _code(_P.bias, Bias),
}
_ENVIRONMENT_COLUMNS = {"gpu": _E.name, "torch": _E.torch}
GROUPS = (*_ENVIRONMENT_COLUMNS, *_CODES)
AXES: Mapping[str, sa.ColumnElement[int]] = {"b": _P.B, "m": _P.M, "n": _P.N, "k": _P.K}
NEAR = 0.95  # ATen is near the best where the best time is at least this share of ATen's


@dataclass(frozen=True)
class SpaceMap:
    """How many problems have which sizes: ``counts[i, j]`` is the number of those with `y` in
    [2**(y_first + i), 2**(y_first + i + 1)) and `x` in the same range of j and x_first."""

    x: str
    y: str
    x_first: int
    y_first: int
    counts: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Statistic:
    """The counts of a group of problems."""

    values: tuple[str, ...]  # that all problems of the group have, in the order of `by`
    problems: int  # a problem in two environments counts twice
    candidates: int
    failed: int  # candidates
    timings: int
    aten: int  # problems with a time of ATen
    near: int  # problems where ATen is near the best (see NEAR)


def space_map(store: OpenStore, query: str = "", *, x: str = "n", y: str = "m") -> SpaceMap:
    """Counts problems in bins of two sizes, each from one power of two to the next. `x` and `y` are
    names of AXES."""
    across, down = one_of(AXES, x, "mapped by"), one_of(AXES, y, "mapped by")
    # A problem counts once, in however many environments it was measured.
    measured = (
        sa.select(_S.problem, _doublings(across).label("x"), _doublings(down).label("y"))
        .distinct()
        .select_from(SUMMARIES)
        .where(*PROBLEMS.parse(query).conditions)
        .subquery()
    )
    bins = sa.select(measured.c.x, measured.c.y, sa.func.count()).group_by("x", "y")
    with store.reads() as connection:
        found = np.array([tuple(each) for each in connection.execute(bins)], dtype=np.int64)
    if not len(found):
        return SpaceMap(x, y, 0, 0, np.zeros((0, 0), dtype=np.int64))
    x_first, y_first = found[:, :2].min(axis=0).tolist()
    x_last, y_last = found[:, :2].max(axis=0).tolist()
    counts = np.zeros((y_last - y_first + 1, x_last - x_first + 1), dtype=np.int64)
    counts[found[:, 1] - y_first, found[:, 0] - x_first] = found[:, 2]
    return SpaceMap(x, y, x_first, y_first, counts)


def _doublings(size: sa.ColumnElement[int], least: int = 0, most: int = 30) -> Any:
    """The exponent of the largest power of two that is no larger than the size, 1 to 2**31 - 1."""
    if least == most:
        return sa.literal_column(str(least), sa.Integer)
    middle = (least + most + 1) // 2
    return sa.case(
        (size < sa.literal_column(str(1 << middle)), _doublings(size, least, middle - 1)),
        else_=_doublings(size, middle, most),
    )


def statistics(
    store: OpenStore, query: str = "", *, by: Sequence[str] = ("gpu", "op", "dtype")
) -> list[Statistic]:
    """Counts problems in groups with equal values of `by` (names of GROUPS). The largest groups
    come first; there are at most MAX_ROWS."""
    names = [one_of({group: group for group in GROUPS}, name, "grouped by") for name in by]
    codes = [_CODES[name] for name in names if name in _CODES]
    number: Any = _S.environment if set(names) & set(_ENVIRONMENT_COLUMNS) else sa.literal(0)
    for code in codes:
        number = number * len(code.names) + code.number
    total = sa.func.sum
    cells = (
        sa.select(
            number.label("cell"),
            sa.func.count(),
            total(_S.candidates),
            total(_S.failed),
            total(_S.timings),
            sa.func.count(_S.aten_us),
            total(sa.case((_S.best_us >= NEAR * _S.aten_us, 1), else_=0)),
        )
        .select_from(SUMMARIES)
        .where(*PROBLEMS.parse(query).conditions)
        # By its name: PostgreSQL does not recognise an expression with parameters as the selected
        # one.
        .group_by("cell")
    )
    found: dict[tuple[str, ...], list[int]] = {}
    with store.reads() as connection:
        rows = connection.execute(cells).all()
        known = {
            name: pairs_of(connection, _E.id, column)
            for name, column in _ENVIRONMENT_COLUMNS.items()
        }
        for cell, *counts in rows:
            values = {}
            for name in reversed([name for name in names if name in _CODES]):
                cell, place = divmod(cell, len(_CODES[name].names))
                values[name] = _CODES[name].names[place]
            values |= {name: texts[cell] for name, texts in known.items() if name in names}
            sums = found.setdefault(tuple(values[name] for name in names), [0] * len(counts))
            sums[:] = [a + b for a, b in zip(sums, counts, strict=True)]
    groups = [Statistic(values, *sums) for values, sums in found.items()]
    return sorted(groups, key=lambda g: (-g.problems, g.values))[:MAX_ROWS]
