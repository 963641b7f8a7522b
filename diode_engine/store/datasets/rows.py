"""The rows of all groups of a dataset file, as checked columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine.core.table import FAILURES
from diode_engine.core.timing import KERNEL_FACTS, MAX_US, Failure
from diode_engine.store.datasets import parsing
from diode_engine.store.datasets.format import COLUMNS
from diode_engine.store.datasets.parsing import Malformed, items, mapping, show

NOT_TIMED = FAILURES.index(Failure.NOT_TIMED) + 1  # the code of a row with neither time nor failure
_GROUP_FIELDS = {"problem", "environment", *COLUMNS, *KERNEL_FACTS}
_NUMBER = {int, float, type(None)}
_FAILURE_CODES: dict[Any, int] = {None: 0} | {
    str(reason): code for code, reason in enumerate(FAILURES, 1) if code != NOT_TIMED
}


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
        """Where in the file a row is, as words for an error: the row of this index, or the first
        row where a mask [n] is true."""
        i = row if isinstance(row, int) else int(np.argmax(row))
        group = int(np.searchsorted(self._ends, i, side="right"))
        within = i - (int(self._ends[group]) - self.lengths[group])
        if column:
            return f"timings[{group}].{column}[{within}]"
        return f"Row {within} of timings[{group}]"

    def _refuse_first(self, name: str, good: Callable[[Any], bool], must: str) -> None:
        """Raises Malformed for the first value of a column that is not good; `must` says what it
        must be."""
        for row, value in enumerate(self.columns[name]):
            if not good(value):
                raise Malformed(f"{self.place(row, name)} is {show(value)}; it must be {must}.")

    def numbers(self, name: str, *, positive: bool) -> npt.NDArray[np.float64]:
        """[n] a column of times, in microseconds; NaN for null. Raises Malformed."""
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
        """[n] a column of whole numbers from 0 to `largest`. Null becomes the number `none`; where
        `none` is None, null is not allowed. Raises Malformed."""
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
        """[n, KernelFacts] as in a TimingTable; None where the file has none. Raises Malformed."""
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
