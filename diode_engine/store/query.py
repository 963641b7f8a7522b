"""Pages of problems, and of a problem's candidates.

Each is answered quickly, also with millions of timings: only the timings of one problem are ever
read. `query` is a filter query (see `filter`; `fields` has what it can name). Every function raises
QueryError where it has a mistake, and StoreError where the store cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import known_number, medians
from diode_engine.core.timing import KERNEL_FACTS, Failure, KernelFacts, Timing
from diode_engine.errors import QueryError
from diode_engine.store import schema
from diode_engine.store.fields import EFFICIENCY, FLOPS, PROBLEMS, SUMMARIES
from diode_engine.store.records import few_records, pairs_of
from diode_engine.store.session import OpenStore

MAX_ROWS = 500  # of a page; a larger `limit` is cut to this

_S, _P, _E = schema.summaries.c, schema.problems.c, schema.environments.c
_DTYPE = _P.dtype.concat(sa.case((_P.allow_tf32 == 1, " tf32"), else_=""))

SORTS: Mapping[str, sa.ColumnElement[Any]] = {
    "problem": _S.problem,
    "op": _P.op,
    "dtype": _DTYPE,
    "b": _P.B,
    "m": _P.M,
    "n": _P.N,
    "k": _P.K,
    "flops": FLOPS,
    "gpu": _E.name,
    "candidates": _S.candidates,
    "failed": _S.failed,
    "timings": _S.timings,
    "best": _S.best_us,
    "aten": _S.aten_us,
    "efficiency": EFFICIENCY,
}


@dataclass(frozen=True)
class ProblemRow:
    """What was measured on one problem in one environment. Times are in microseconds, None where
    there is none; `number` and `environment_number` are the store's ids."""

    number: int
    problem: Problem
    environment_number: int
    environment: Environment
    candidates: int  # distinct ones, timed or failed
    failed: int  # those of them that have failures only
    timings: int
    best: Candidate | None
    best_us: float | None
    aten_us: float | None  # of the fastest library call

    @property
    def efficiency(self) -> float | None:
        """ATen's efficiency: the best time divided by ATen's."""
        if self.best_us is None or self.aten_us is None:
            return None
        return self.best_us / self.aten_us

    def problem_values(self) -> dict[str, Any]:
        """The problem and the environment, as an export has them."""
        e = self.environment
        return {
            "id": self.number,
            "key": self.problem.key,
            **self.problem.to_dict(),
            "gpu": e.hardware.name,
            "driver": e.driver,
            "torch": e.torch,
            "triton": e.triton,
        }

    def to_dict(self) -> dict[str, Any]:
        """The row, as an export has it."""
        return {
            **self.problem_values(),
            "candidates": self.candidates,
            "failed": self.failed,
            "timings": self.timings,
            "best": None if self.best is None else str(self.best),
            "best_us": self.best_us,
            "aten_us": self.aten_us,
            "aten_efficiency": self.efficiency,
        }


@dataclass(frozen=True)
class CandidateRow:
    """What was measured of one candidate on one problem in one environment."""

    candidate: Candidate
    time_us: float | None  # the median of its timings' times; None where all failed
    spread_us: float | None  # the median of its timings' spreads
    timings: int  # failures included
    failures: Mapping[str, int]  # how many timings failed, by the reason
    kernel: KernelFacts | None = None  # as the newest run has it; None where no run knows it

    @property
    def facts(self) -> Mapping[str, int | None]:
        """The kernel's facts by their names, None where they are not known."""
        return dict.fromkeys(KERNEL_FACTS) if self.kernel is None else self.kernel._asdict()

    def to_dict(self, best_us: float | None) -> dict[str, Any]:
        """The row, as an export has it; `best_us` is the best time on the problem."""
        known = best_us is not None and self.time_us is not None
        return {
            **self.candidate.to_dict(),
            "time_us": self.time_us,
            "spread_us": self.spread_us,
            "efficiency": best_us / self.time_us if known else None,  # type: ignore[operator]
            "timings": self.timings,
            "failures": dict(self.failures),
            **self.facts,
        }


def problems(
    store: OpenStore,
    query: str = "",
    *,
    sort: str = "problem",
    descending: bool = False,
    offset: int = 0,
    limit: int = MAX_ROWS,
) -> list[ProblemRow]:
    """A page of problems, with a row for each environment in which a problem was measured. `sort`
    is a name of SORTS; rows without that value come last. Rows with equal values are in the order
    in which the store got them."""
    order = one_of(SORTS, sort, "sorted by")
    page = (
        sa.select(schema.summaries)
        .select_from(SUMMARIES)
        .where(*PROBLEMS.parse(query).conditions)
        .order_by((order.desc() if descending else order).nulls_last(), _S.problem, _S.environment)
        .limit(min(limit, MAX_ROWS))
        .offset(offset)
    )
    with store.reads() as connection:
        return _rows(connection, connection.execute(page).all())


def count_problems(store: OpenStore, query: str = "") -> int:
    """How many rows all pages of `problems` have."""
    count = sa.select(sa.func.count()).select_from(SUMMARIES)
    with store.reads() as connection:
        return int(connection.scalar(count.where(*PROBLEMS.parse(query).conditions)) or 0)


def _rows(connection: sa.Connection, found: Sequence[Any]) -> list[ProblemRow]:
    """The rows of these summaries, in their order."""

    def records(table: sa.Table, column: str) -> dict[int, Any]:
        return few_records(connection, table, {getattr(row, column) for row in found} - {None})

    problem = records(schema.problems, "problem")
    environment = records(schema.environments, "environment")
    candidate = records(schema.candidates, "best")
    return [
        ProblemRow(
            number=row.problem,
            problem=problem[row.problem],
            environment_number=row.environment,
            environment=environment[row.environment],
            candidates=row.candidates,
            failed=row.failed,
            timings=row.timings,
            best=candidate.get(row.best),
            best_us=row.best_us,
            aten_us=row.aten_us,
        )
        for row in found
    ]


def candidates(
    store: OpenStore, problem: int, environment: int, *, offset: int = 0, limit: int = MAX_ROWS
) -> list[CandidateRow]:
    """A page of a problem's candidates, the fastest first; those that always failed come last.
    `problem` and `environment` are the numbers of a ProblemRow. Empty where there is no such
    row."""
    t, k = schema.timings.c, schema.kernels.c
    time = sa.func.coalesce(t.min_us, t.median_us)
    query = schema.of_sweeps(schema.timings, t.candidate, time, t.spread_us, t.failure)
    facts_of = (k[name] for name in KERNEL_FACTS)
    kernels = schema.of_sweeps(schema.kernels, k.candidate, *facts_of).order_by(k.sweep)
    which = {"in_problem": problem, "in_environment": environment}
    with store.reads() as connection:
        rows = connection.execute(query, which).all()
        candidate = np.array([row[0] for row in rows], dtype=np.int64)
        if not rows:
            return []
        times, spreads = (np.array([row[i] for row in rows], dtype=np.float64) for i in (1, 2))
        first, time_us, count = medians(times, candidate)
        _, spread_us, _ = medians(spreads, candidate)
        ids = candidate[first]
        failures: dict[int, Counter[int]] = {}
        for row in rows:
            if row[3] is not None:
                failures.setdefault(row[0], Counter())[row[3]] += 1
        page = np.lexsort((ids, time_us))[offset : offset + min(limit, MAX_ROWS)]
        found = few_records(connection, schema.candidates, ids[page].tolist())
        names = pairs_of(connection, schema.failures.c.id, schema.failures.c.reason)
        facts = {number: KernelFacts(*rest) for number, *rest in connection.execute(kernels, which)}
        return [
            CandidateRow(
                candidate=found[i],
                time_us=known_number(time_us[place]),
                spread_us=known_number(spread_us[place]),
                timings=int(count[place]),
                failures={names[code]: n for code, n in failures.get(i, Counter()).most_common()},
                kernel=facts.get(i),
            )
            for place, i in zip(page.tolist(), ids[page].tolist(), strict=True)
        ]


def one_of(table: Mapping[str, Any], name: str, what: str) -> Any:
    """The value of a name, upper or lower case, in a table. Raises QueryError where there is no
    such name; `what` is the rest of "Problems cannot be"."""
    try:
        return table[name.lower()]
    except KeyError:
        sentence = f"Problems cannot be {what} {name!r}, only by {', '.join(table)}."
        raise QueryError(sentence, 0, len(name)) from None


@dataclass(frozen=True)
class CandidateTiming:
    """A timing, with the number and kind of the run that took it and the environment it was taken
    in."""

    run: int
    kind: str
    environment: Environment
    timing: Timing


def timings_of(store: OpenStore, problem: str, candidate: str) -> list[CandidateTiming]:
    """Return the timings of the candidate on the problem, both given by their content keys, in the
    order in which the store got them. Raises StoreError where the store cannot be read."""
    s, t, k = schema.sweeps.c, schema.timings.c, schema.kernels.c
    facts = sa.and_(k.sweep == t.sweep, k.candidate == t.candidate)
    query = (
        sa.select(
            s.run, schema.runs.c.kind, s.environment, t.min_us, t.median_us, t.spread_us, t.repeats,
            t.failure, *(k[name] for name in KERNEL_FACTS),
        )
        .select_from(schema.sweeps)
        .join(schema.problems, schema.problems.c.id == s.problem)
        .join(schema.runs, schema.runs.c.id == s.run)
        .join(schema.timings, t.sweep == s.id)
        .join(schema.candidates, schema.candidates.c.id == t.candidate)
        .outerjoin(schema.kernels, facts)
        .where(schema.problems.c.key == problem, schema.candidates.c.key == candidate)
        .order_by(s.id, t.seq)
    )  # fmt: skip
    with store.reads() as connection:
        rows = connection.execute(query).all()
        places = {row.environment for row in rows}
        environments = few_records(connection, schema.environments, places)
        reasons = pairs_of(connection, schema.failures.c.id, schema.failures.c.reason)
    found = []
    for row in rows:
        timing = Timing(
            min_us=row.min_us, median_us=row.median_us, spread_us=row.spread_us,
            repeats=row.repeats,
            failure=None if row.failure is None else Failure(reasons[row.failure]),
            kernel=None if row.registers is None
            else KernelFacts(*(getattr(row, name) for name in KERNEL_FACTS)),
        )  # fmt: skip
        found.append(CandidateTiming(row.run, row.kind, environments[row.environment], timing))
    return found
