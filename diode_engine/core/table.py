"""Timings as columns: what files, the store, training and validation hand to each other.

Row i says that candidate `candidates[candidate[i]]` was timed on problem
`problems[problem[i]]` in environment `environments[environment[i]]`. Rows keep the order in
which they were given; rows of one problem need not be adjacent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import KERNEL_FACTS, MAX_US, Failure, KernelFacts, Timing
from diode_engine.errors import RecordError

_T = TypeVar("_T")

FAILURES: tuple[Failure, ...] = tuple(Failure)  # code i + 1 in TimingTable.failure
FAILURE_CODES = {str(reason): code for code, reason in enumerate(FAILURES, 1)}
NOT_TIMED = FAILURE_CODES[Failure.NOT_TIMED]  # the code of a row with neither time nor failure
# What every timing has.
COLUMNS = (
    "problem", "candidate", "environment", "min_us", "median_us", "spread_us", "repeats", "failure",
)  # fmt: skip
_UNKNOWN = (-1,) * len(KERNEL_FACTS)


@dataclass(frozen=True, eq=False)
class TimingTable:
    """n timings. Times are in microseconds, NaN where there is none; all columns are [n].

    Raises RecordError where the columns differ in length or an index, a time, a spread, a
    repeat count or a failure code is out of range, or a row has both or neither of a time
    and a failure.
    """

    problems: tuple[Problem, ...]
    candidates: tuple[Candidate, ...]
    environments: tuple[Environment, ...]
    problem: npt.NDArray[np.int32]
    candidate: npt.NDArray[np.int32]
    environment: npt.NDArray[np.int32]
    min_us: npt.NDArray[np.float64]
    median_us: npt.NDArray[np.float64]
    spread_us: npt.NDArray[np.float64]
    repeats: npt.NDArray[np.int32]  # 0 where it is not known
    failure: npt.NDArray[np.uint8]  # 0: none; else an index into FAILURES, plus 1
    # [n, KernelFacts]; a row whose kernel is not known has -1 everywhere. None: no row's is known.
    kernel: npt.NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        n = len(self.problem)
        for name in COLUMNS:
            if getattr(self, name).shape != (n,):
                raise RecordError(f"The column {name} must have one value for each timing.")
        if self.kernel is not None:
            if self.kernel.shape != (n, len(KERNEL_FACTS)):
                raise RecordError("The column kernel must have all facts for each timing.")
            known = self.kernel >= 0
            if np.any(self.kernel < -1) or np.any(known.any(axis=1) != known.all(axis=1)):
                raise RecordError(
                    "The column kernel holds a negative number, or only some of a kernel's facts."
                )
        for name, entries in (
            ("problem", self.problems),
            ("candidate", self.candidates),
            ("environment", self.environments),
        ):
            index = getattr(self, name)
            if n and (index.min() < 0 or index.max() >= len(entries)):
                raise RecordError(f"The column {name} points outside the {name}s.")
        for name in ("min_us", "median_us"):
            column = getattr(self, name)
            if not np.all(np.isnan(column) | ((column > 0) & (column <= MAX_US))):
                raise RecordError(
                    f"The column {name} holds a time that is not positive, or of more than an hour."
                )
        if np.any(self.min_us > self.median_us):
            raise RecordError("The column min_us holds a time larger than its median_us.")
        if not np.all(
            np.isnan(self.spread_us) | ((self.spread_us >= 0) & (self.spread_us <= MAX_US))
        ):
            raise RecordError("The column spread_us holds a negative number, or over an hour.")
        if np.any(self.repeats < 0):
            raise RecordError("The column repeats holds a negative number.")
        if n and self.failure.max() > len(FAILURES):
            raise RecordError("The column failure holds an unknown reason.")
        timed = ~np.isnan(self.min_us) | ~np.isnan(self.median_us)
        if np.any(timed == (self.failure > 0)):
            raise RecordError("A timing has both or neither of a time and a failure.")

    def __len__(self) -> int:
        return len(self.problem)

    @property
    def time_us(self) -> npt.NDArray[np.float64]:
        """[n] the time that is compared and learned (see Timing.time_us); NaN if failed."""
        return np.where(np.isnan(self.min_us), self.median_us, self.min_us)

    def groups(self) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """Pairs (problem index, its rows in the table's order), ordered by the problems' first
        rows."""
        if not len(self):
            return
        order = np.argsort(self.problem, kind="stable")
        cuts = np.flatnonzero(np.diff(self.problem[order])) + 1
        rows = np.split(order, cuts)
        for group in sorted(rows, key=lambda r: int(r[0])):
            yield int(self.problem[group[0]]), group

    @property
    def used_problems(self) -> list[Problem]:
        """The problems that have rows, in the table's order."""
        return [self.problems[i] for i in np.unique(self.problem)]

    @property
    def used_environments(self) -> list[Environment]:
        """The environments that have rows, in the table's order."""
        return [self.environments[i] for i in np.unique(self.environment)]

    @property
    def first_environment(self) -> Environment:
        """The environment of the first row; there must be one."""
        return self.environments[int(self.environment[0])]

    @property
    def gpu_names(self) -> list[str]:
        """The names of the GPUs that have rows, sorted."""
        return sorted({environment.hardware.name for environment in self.used_environments})

    def count_problems(self) -> int:
        """The number of problems that have rows."""
        return len(np.unique(self.problem))

    def in_environments(self, is_meant: Callable[[Environment], bool]) -> TimingTable:
        """The rows that were timed in the environments that are meant."""
        meant = np.array([is_meant(each) for each in self.environments], np.bool_)
        return self.take(meant[self.environment])

    def rows_by(self, what: Callable[[Environment], _T]) -> list[tuple[_T, npt.NDArray[np.intp]]]:
        """(value, its rows) for each different value that `what` gives for the environments."""
        values = [what(each) for each in self.environments]
        different = list(dict.fromkeys(values))
        place = np.array([different.index(each) for each in values], np.intp)[self.environment]
        return [(each, np.flatnonzero(place == i)) for i, each in enumerate(different)]

    def take(self, rows: npt.NDArray[Any]) -> TimingTable:
        """These rows (indices or a mask), over the same problems and candidates."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        kernel = None if self.kernel is None else self.kernel[rows]
        return TimingTable(
            self.problems, self.candidates, self.environments, **columns, kernel=kernel
        )

    @classmethod
    def joined(cls, tables: Sequence[TimingTable]) -> TimingTable:
        """The rows of all, in their order; equal problems, candidates and environments become
        one, and those without rows are left out."""
        places: dict[str, list[npt.NDArray[np.int32]]] = {}
        entries: dict[str, tuple[Any, ...]] = {}
        for name in COLUMNS[:3]:
            found: dict[str, int] = {}  # by key: comparing keys is faster than comparing records
            records: dict[str, Any] = {}
            parts = []
            for table in tables:
                used, row = np.unique(getattr(table, name), return_inverse=True)
                entries_there = getattr(table, f"{name}s")
                own = [(entries_there[i].key, entries_there[i]) for i in used.tolist()]
                place = [found.setdefault(key, len(found)) for key, _ in own]
                parts.append(np.array(place, np.int32)[row])
                records = dict(own) | records
            places[name] = parts
            entries[name] = tuple(records[key] for key in found)
        columns = {
            name: np.concatenate(places.get(name) or [getattr(t, name) for t in tables])
            for name in COLUMNS
        }
        kernel: npt.NDArray[np.int32] | None = None
        if any(table.kernel is not None for table in tables):
            kernel = np.concatenate([_kernels_of(table) for table in tables])
        return cls(
            entries["problem"], entries["candidate"], entries["environment"], **columns,
            kernel=kernel,
        )  # fmt: skip

    @classmethod
    def from_records(
        cls, rows: Iterable[tuple[Problem, Candidate, Environment, Timing]]
    ) -> TimingTable:
        """One row a record; equal problems, candidates and environments become one."""
        problems: dict[Problem, int] = {}
        candidates: dict[Candidate, int] = {}
        environments: dict[Environment, int] = {}
        columns: list[tuple[int, int, int, float, float, float, int, int]] = []
        kernels: list[KernelFacts | None] = []
        nan = float("nan")
        for problem, candidate, environment, t in rows:
            kernels.append(t.kernel)
            columns.append(
                (
                    problems.setdefault(problem, len(problems)),
                    candidates.setdefault(candidate, len(candidates)),
                    environments.setdefault(environment, len(environments)),
                    nan if t.min_us is None else t.min_us,
                    nan if t.median_us is None else t.median_us,
                    nan if t.spread_us is None else t.spread_us,
                    t.repeats or 0,
                    0 if t.failure is None else FAILURE_CODES[t.failure],
                )
            )
        transposed: Sequence[Sequence[float]] = list(zip(*columns, strict=True)) or [()] * 8
        types = (np.int32,) * 3 + (np.float64,) * 3 + (np.int32, np.uint8)
        arrays = {
            name: np.array(column, dtype=kind)
            for name, column, kind in zip(COLUMNS, transposed, types, strict=True)
        }
        kernel = None
        if any(kernels):
            kernel = np.array([facts or _UNKNOWN for facts in kernels], np.int32)
        return cls(tuple(problems), tuple(candidates), tuple(environments), **arrays, kernel=kernel)


def medians(
    time_us: npt.NDArray[np.float64], *keys: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """For each distinct combination of keys, ascending: the fastest row that has it (the first,
    where all failed), the median of its rows' times (NaN where all failed), and their number. The
    arguments are [n], a row for each timing."""
    order = np.lexsort((time_us, *reversed(keys)))  # NaN comes last
    time_us, begins = time_us[order], np.arange(len(order)) == 0
    for key in (key[order] for key in keys):
        begins[1:] |= key[1:] != key[:-1]
    starts = np.flatnonzero(begins)
    rows = np.diff(starts, append=len(order))
    timed = np.add.reduceat(~np.isnan(time_us), starts, dtype=np.intp)
    low = time_us[starts + np.maximum(timed - 1, 0) // 2]
    high = time_us[starts + np.minimum(timed // 2, rows - 1)]
    median = np.where(timed > 0, low + (high - low) / 2, np.nan)
    return order[starts], median, rows


def known_number(value: float) -> float | None:
    """The number as Python's; None for NaN."""
    return None if np.isnan(value) else float(value)


def _kernels_of(table: TimingTable) -> npt.NDArray[np.int32]:
    if table.kernel is not None:
        return table.kernel
    return np.full((len(table), len(KERNEL_FACTS)), -1, np.int32)
