"""Questions to a store: pages of problems, a problem's candidates, the map of the problem space,
statistics, runs.

Each is answered quickly, also with millions of timings: only the timings of one problem are ever
read. `query` is a filter query (see `filter`; `fields` has what it can name). Every function raises
QueryError where it has a mistake, and StoreError where the store cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.hardware import Environment
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import (
    KERNEL_FACTS,
    Bias,
    Candidate,
    DType,
    KernelFacts,
    Layout,
    Problem,
)
from diode_engine.errors import QueryError
from diode_engine.store import bulk, schema
from diode_engine.store.fields import EFFICIENCY, FLOPS, PROBLEMS, RUN_PROBLEMS, RUNS, SUMMARIES
from diode_engine.store.ingest import failure_reasons
from diode_engine.store.records import (
    candidate_of,
    environment_of,
    few_records,
    pairs_of,
    problem_of,
)
from diode_engine.store.run_table import run_of
from diode_engine.store.runs import ENDED, Run, RunState
from diode_engine.store.session import OpenStore
from diode_engine.store.summaries import medians

MAX_ROWS = 500  # a page; what is asked for beyond is left out

_S, _P, _E, _C = schema.summaries.c, schema.problems.c, schema.environments.c, schema.candidates.c
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
_OF_ENVIRONMENT = {"gpu": _E.name, "torch": _E.torch}
GROUPS = (*_OF_ENVIRONMENT, *_CODES)
AXES: Mapping[str, sa.ColumnElement[int]] = {"b": _P.B, "m": _P.M, "n": _P.N, "k": _P.K}
NEAR = 0.95  # of the best: ATen's time counts as good


@dataclass(frozen=True)
class ProblemRow:
    """What was measured of one problem in one environment. Times are in microseconds, None where
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


@dataclass(frozen=True)
class CandidateRow:
    """What was measured of one candidate on one problem in one environment. `time_us` is the median
    of its timings' times, None where all failed; `spread_us` is the median of their spreads;
    `kernel` is known of kernels that were launched directly, and is the newest run's."""

    candidate: Candidate
    time_us: float | None
    spread_us: float | None
    timings: int  # failures included
    failures: Mapping[str, int]
    kernel: KernelFacts | None = None

    @property
    def facts(self) -> Mapping[str, int | None]:
        """The kernel's facts by their names, None where they are not known."""
        return dict.fromkeys(KERNEL_FACTS) if self.kernel is None else self.kernel._asdict()


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
    """A group of problems. `aten` is how many have a time of ATen; `near` is how many of them have
    ATen at least NEAR as fast as the best."""

    values: tuple[str, ...]
    problems: int  # one in two environments counts twice
    candidates: int
    failed: int
    timings: int
    aten: int
    near: int


@dataclass(frozen=True)
class RunContents:
    """What a run has put into the store; counts are of timings unless they say otherwise."""

    problems: int
    timings: int
    failures: Mapping[str, int]
    by_environment: tuple[tuple[Environment, int], ...]


# Problems


def problems(
    store: OpenStore,
    query: str = "",
    *,
    sort: str = "problem",
    descending: bool = False,
    offset: int = 0,
    limit: int = MAX_ROWS,
) -> list[ProblemRow]:
    """A page of the problems, each in each environment in which it was measured. `sort` is one of
    SORTS; rows without the value come last; equal rows are in the order in which the store got
    them."""
    order = _one_of(SORTS, sort, "sort by")
    page = (
        sa.select(_S.problem, _S.environment)
        .select_from(SUMMARIES)
        .where(*PROBLEMS.parse(query).conditions)
        .order_by((order.desc() if descending else order).nulls_last(), _S.problem, _S.environment)
        .limit(min(limit, MAX_ROWS))
        .offset(offset)
    )
    with store.reads() as connection:
        pairs = [tuple(pair) for pair in connection.execute(page)]
        return _rows(store, connection, pairs)


def count_problems(store: OpenStore, query: str = "") -> int:
    """How many rows all pages of `problems` have."""
    count = sa.select(sa.func.count()).select_from(SUMMARIES)
    with store.reads() as connection:
        return int(connection.scalar(count.where(*PROBLEMS.parse(query).conditions)) or 0)


def _rows(
    store: OpenStore, connection: sa.Connection, pairs: Sequence[tuple[Any, ...]]
) -> list[ProblemRow]:
    """The rows of these (problem, environment)s, in their order."""
    summaries = {
        (row.problem, row.environment): row
        for row in connection.execute(
            sa.select(schema.summaries).where(
                bulk.are_in(connection, (_S.problem, _S.environment), pairs)
            )
        )
    }
    problem = few_records(
        connection, store.location, schema.problems, {p for p, _ in pairs}, problem_of
    )
    environment = few_records(
        connection, store.location, schema.environments, {e for _, e in pairs}, environment_of
    )
    best = {row.best for row in summaries.values()} - {None}
    candidate = few_records(connection, store.location, schema.candidates, best, candidate_of)
    return [
        ProblemRow(
            number=p,
            problem=problem[p],
            environment_number=e,
            environment=environment[e],
            candidates=row.candidates,
            failed=row.failed,
            timings=row.timings,
            best=candidate.get(row.best),
            best_us=row.best_us,
            aten_us=row.aten_us,
        )
        for (p, e), row in ((pair, summaries[pair[0], pair[1]]) for pair in pairs)
    ]


def candidates(
    store: OpenStore, problem: int, environment: int, *, offset: int = 0, limit: int = MAX_ROWS
) -> list[CandidateRow]:
    """A page of a problem's candidates, the fastest first; those that only failed come last. The
    numbers are those of a ProblemRow; where there is no such row, none are found."""
    t, s = schema.timings.c, schema.sweeps.c
    query = (
        sa.select(t.candidate, sa.func.coalesce(t.min_us, t.median_us), t.spread_us, t.failure)
        .join_from(schema.sweeps, schema.timings)
        .where(s.problem == problem, s.environment == environment)
    )
    with store.reads() as connection:
        rows = connection.execute(query).all()
        candidate = np.array([row[0] for row in rows], dtype=np.int64)
        alone = np.zeros(len(rows), dtype=np.int64)
        if not rows:
            return []
        times, spreads = (np.array([row[i] for row in rows], dtype=np.float64) for i in (1, 2))
        _, ids, time_us, count = medians(alone, candidate, times)
        _, _, spread_us, _ = medians(alone, candidate, spreads)
        failures: dict[int, Counter[int]] = {}
        for row in rows:
            if row[3] is not None:
                failures.setdefault(row[0], Counter())[row[3]] += 1
        page = np.lexsort((ids, time_us))[offset : offset + min(limit, MAX_ROWS)]
        found = few_records(
            connection, store.location, schema.candidates, set(ids[page].tolist()), candidate_of
        )
        names = {number: reason for reason, number in failure_reasons(connection).items()}
        k = schema.kernels.c
        kernels = (
            sa.select(k.candidate, *(k[name] for name in KERNEL_FACTS))
            .join_from(schema.sweeps, schema.kernels)
            .where(s.problem == problem, s.environment == environment)
            .order_by(k.sweep)
        )
        facts = {number: KernelFacts(*rest) for number, *rest in connection.execute(kernels)}
        return [
            CandidateRow(
                candidate=found[i],
                time_us=_known(time_us[place]),
                spread_us=_known(spread_us[place]),
                timings=int(count[place]),
                failures={names[code]: n for code, n in failures.get(i, Counter()).most_common()},
                kernel=facts.get(i),
            )
            for place, i in zip(page.tolist(), ids[page].tolist(), strict=True)
        ]


def space_map(store: OpenStore, query: str = "", *, x: str = "n", y: str = "m") -> SpaceMap:
    """The problems counted in bins of sizes, each from one power of two to the next. `x` and `y`
    are of AXES."""
    across, down = _one_of(AXES, x, "draw a map by"), _one_of(AXES, y, "draw a map by")
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
    (x_first, y_first), (x_last, y_last) = (
        found[:, :2].min(0).tolist(),
        found[:, :2].max(0).tolist(),
    )
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
    """The problems in groups with equal values of `by` (of GROUPS), the largest groups first; at
    most a page."""
    names = [_one_of({group: group for group in GROUPS}, name, "group by") for name in by]
    codes = [_CODES[name] for name in names if name in _CODES]
    number: Any = _S.environment if set(names) & set(_OF_ENVIRONMENT) else sa.literal(0)
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
        .group_by("cell")  # by its name: PostgreSQL takes no expression with values twice for one
    )
    found: dict[tuple[str, ...], list[int]] = {}
    with store.reads() as connection:
        rows = connection.execute(cells).all()
        known = {
            name: pairs_of(connection, _E.id, column) for name, column in _OF_ENVIRONMENT.items()
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


# Runs


def runs(
    store: OpenStore, query: str = "", *, before: int | None = None, limit: int = MAX_ROWS
) -> list[Run]:
    """A page of the runs, the last one first; the next page is that `before` its last run. The
    store alone does not know whether a run that has not ended is alive. So where the query asks for
    states, all such runs are found (`diode_engine.runs.find` decides)."""
    wanted = RUNS.parse(query)
    select = sa.select(schema.runs).where(*wanted.conditions)
    if "state" in wanted.judged:
        stored = {RunState(state) for state in wanted.judged["state"]}
        if not stored <= set(ENDED):
            stored |= {RunState.QUEUED, RunState.RUNNING}
        select = select.where(schema.runs.c.state.in_(map(str, stored)))
    if before is not None:
        select = select.where(schema.runs.c.id < before)
    select = select.order_by(schema.runs.c.id.desc()).limit(min(limit, MAX_ROWS))
    with store.reads() as connection:
        rows = connection.execute(select).all()
        t = schema.tags.c
        tags: dict[int, list[str]] = {row.id: [] for row in rows}
        tagged = sa.select(t.run, t.tag).where(t.run.in_(tags)).order_by(t.run, t.tag)
        for run, tag in connection.execute(tagged):
            tags[run].append(tag)
        return [run_of(row, tags[row.id]) for row in rows]


def run_contents(store: OpenStore, run: int) -> RunContents:
    """Counts what a run has put into the store; all 0 where there is no such run."""
    t = schema.tallies.c
    cells = (
        sa.select(t.environment, schema.failures.c.reason, sa.func.sum(t.timings))
        .outerjoin_from(schema.tallies, schema.failures, t.failure == schema.failures.c.id)
        .where(t.run == run)
        .group_by(t.environment, schema.failures.c.reason)
    )
    with store.reads() as connection:
        failures: Counter[str] = Counter()
        by_environment: Counter[int] = Counter()
        for environment, reason, n in connection.execute(cells):
            by_environment[environment] += n
            if reason is not None:
                failures[reason] += n
        known = few_records(
            connection, store.location, schema.environments, set(by_environment), environment_of
        )
        counted = sa.select(RUN_PROBLEMS).where(schema.runs.c.id == run)
        return RunContents(
            problems=int(connection.scalar(counted) or 0),
            timings=by_environment.total(),
            failures=dict(failures.most_common()),
            by_environment=tuple((known[e], n) for e, n in by_environment.most_common()),
        )


def known_values(store: OpenStore) -> dict[str, list[str]]:
    """The store's values of the fields without choices of their own, for `Language.suggest`."""
    columns = {
        "gpu": _E.name,
        "torch": _E.torch,
        "triton": _E.triton,
        "driver": _E.driver,
        "tag": schema.tags.c.tag,
        "kind": schema.runs.c.kind,
        "host": schema.runs.c.host,
        "user": schema.runs.c.user,
    }
    with store.reads() as connection:
        return {
            name: [v for v in connection.scalars(sa.select(c).distinct().order_by(c)) if v]
            for name, c in columns.items()
        }


def _one_of(table: Mapping[str, Any], name: str, what: str) -> Any:
    try:
        return table[name.lower()]
    except KeyError:
        sentence = f"{name!r} is nothing to {what}; there are {', '.join(table)}."
        raise QueryError(sentence, 0, len(name)) from None


def _known(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)
