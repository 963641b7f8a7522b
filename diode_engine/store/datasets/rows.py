"""The rows of all groups of a dataset file, as checked columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.core.table import FAILURE_CODES
from diode_engine.core.timing import KERNEL_FACTS, MAX_US, Failure
from diode_engine.documents import Malformed, show
from diode_engine.store.datasets import parsing
from diode_engine.store.datasets.format import COLUMNS
from diode_engine.store.datasets.parsing import items, mapping

_GROUP_FIELDS = {"problem", "environment", *COLUMNS, *KERNEL_FACTS}
# Of what a file may name: that a row was not timed follows from its other columns.
_FAILURE_CODES: dict[Any, int] = {None: 0, **FAILURE_CODES}
del _FAILURE_CODES[Failure.NOT_TIMED]


class JoinedRows:
    """The columns of all groups, one group after the other, and the place in the file of each
    row."""

    def __init__(self, groups: Any, problems: int, environments: int) -> None:
        with_kernel = any(
            isinstance(group, dict) and not group.keys().isdisjoint(KERNEL_FACTS)
            for group in items(groups, "timings")
        )
        names = (*COLUMNS, *KERNEL_FACTS) if with_kernel else COLUMNS
        self.columns: dict[str, list[Any]] = {name: [] for name in names}
        self.problem: list[int] = []
        self.environment: list[int] = []
        self.lengths: list[int] = []
        rows = 0
        for i, group in enumerate(groups):
            place = f"timings[{i}]"
            mapping(group, place, _GROUP_FIELDS, ("problem", "candidate"))
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
        """Where in the file a row is, as words for an error: the row of this index, or the first
        row where a mask [n] is true."""
        i = row if isinstance(row, int) else int(np.argmax(row))
        group = int(np.searchsorted(self._ends, i, side="right"))
        within = i - (int(self._ends[group]) - self.lengths[group])
        if column:
            return f"timings[{group}].{column}[{within}]"
        return f"Row {within} of timings[{group}]"

    def _refuse_first(self, name: str, is_good: Callable[[Any], bool], must: str) -> None:
        """Raises Malformed for the first value of a column that is not good; `must` says what it
        must be."""
        for row, value in enumerate(self.columns[name]):
            if not is_good(value):
                raise Malformed(f"{self.place(row, name)} is {show(value)}; it must be {must}.")

    def _numbers(
        self, name: str, kind: type[int | float], least: float, most: float, null: float | None,
        must: str,
    ) -> npt.NDArray[Any]:  # fmt: skip
        """[n] a column of numbers from `least` to `most`, as int64 or float64. Null becomes `null`,
        which is none of these numbers; where `null` is None, it is not allowed. Raises
        Malformed."""
        column, kinds = self.columns[name], {kind, int}
        nulls = 0 if null is None else column.count(None)
        try:
            values = [null if value is None else value for value in column] if nulls else column
            found = np.array(values, np.dtype(kind))
            known = found
            if nulls:
                known = found[~np.isnan(found) if kind is float else found != null]
            if (
                set(map(type, column)) <= (kinds | {type(None)} if nulls else kinds)
                and len(found) - len(known) == nulls
                and np.all((known >= least) & (known <= most))
            ):
                return found
        except (OverflowError, TypeError, ValueError):
            pass
        self._refuse_first(
            name,
            lambda value: (
                null is not None
                if value is None
                else type(value) in kinds and least <= value <= most
            ),
            must if null is None else f"{must}, or null",
        )
        raise AssertionError("every number is good, and the column is not")

    def times(self, name: str, *, positive: bool) -> npt.NDArray[np.float64]:
        """[n] a column of times, in microseconds; NaN for null. Raises Malformed."""
        must = "a positive number of microseconds" if positive else "a number from 0 up"
        least = math.nextafter(0, 1) if positive else 0
        return self._numbers(name, float, least, MAX_US, math.nan, f"{must}, of an hour at most")

    def whole(self, name: str, largest: int, *, null: int | None) -> npt.NDArray[np.int32]:
        """[n] a column of whole numbers from 0 to `largest`. Null becomes `null`; where that is
        None, it is not allowed. Raises Malformed."""
        must = f"a whole number from 0 to {largest}" if largest >= 0 else "left out: there are none"
        return self._numbers(name, int, 0, largest, null, must).astype(np.int32)

    def kernel(self) -> npt.NDArray[np.int32] | None:
        """[n, KernelFacts] as in a TimingTable; None where the file has none. Raises Malformed."""
        if not self.columns.keys() >= set(KERNEL_FACTS):
            return None
        facts = np.stack([self.whole(name, 2**31 - 1, null=-1) for name in KERNEL_FACTS], axis=1)
        known = facts >= 0
        if np.any(partly := known.any(axis=1) != known.all(axis=1)):
            raise Malformed(
                f"{self.place(partly)} has some of {', '.join(KERNEL_FACTS)}; it must have all or "
                "none."
            )
        return facts if known.any() else None

    def failures(self) -> npt.NDArray[np.uint8]:
        """[n] TimingTable's codes of failures. Raises Malformed."""
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


def _index(value: Any, place: str, length: int) -> int:
    if type(value) is not int or not 0 <= value < length:
        raise Malformed(f"{place} is {show(value)}, and there are {length} of them, from 0.")
    return value
