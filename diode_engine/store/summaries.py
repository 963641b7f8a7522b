"""What is derived from the timings and kept beside them: the tables `summaries` and `tallies`. Both
are written in the transaction that writes the timings, so that they always agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from diode_engine.core.hardware import Environment
from diode_engine.core.table import TimingTable, medians
from diode_engine.core.templates import template_of
from diode_engine.store import bulk, schema
from diode_engine.store.records import few_records

_Ids = npt.NDArray[np.int64]
_Times = npt.NDArray[np.float64]

_T = schema.timings.c
_EARLIER = schema.of_sweeps(schema.timings, _T.candidate, sa.func.coalesce(_T.min_us, _T.median_us))
_WRITE = (
    bulk.insert_statement(schema.summaries) + " ON CONFLICT (problem, environment) DO UPDATE SET"
    " candidates = excluded.candidates, failed = excluded.failed, timings = excluded.timings,"
    " best = excluded.best, best_us = excluded.best_us, aten_us = excluded.aten_us"
)
_COUNT = (
    bulk.insert_statement(schema.tallies)
    + " ON CONFLICT (run, environment, op, dtype, allow_tf32, failure)"
    " DO UPDATE SET timings = tallies.timings + excluded.timings"
)


@dataclass(frozen=True)
class Summaries:
    """The rows of `summaries` for timings that are not derived from yet, as they were when `read`
    computed them. `given` are the timings' pairs (problem << 32 | environment), candidates and
    times, [n] each, NaN for a failure."""

    given: tuple[_Ids, _Ids, _Times]
    pairs: _Ids  # distinct, ascending
    counted: _Ids  # how many timings the store had of each pair
    rows: list[tuple[Any, ...]]

    @classmethod
    def read(
        cls, connection: sa.Connection, pair: _Ids, candidate: _Ids, time_us: _Times
    ) -> Summaries:
        """Computes the rows; all arguments are [n] (see `given`)."""
        pairs, group = np.unique(pair, return_inverse=True)
        if not len(pairs):
            return cls((pair, candidate, time_us), pairs, pairs, [])
        counted = _counted(connection, pairs)
        groups, candidates, times = [group], [candidate], [time_us]
        for index in np.flatnonzero(counted).tolist():
            one = int(pairs[index])
            which = {"in_problem": one >> 32, "in_environment": one & bulk.LOW}
            earlier = connection.execute(_EARLIER, which).all()
            groups.append(np.full(len(earlier), index))
            candidates.append(np.array([c for c, _ in earlier], dtype=np.int64))
            times.append(np.array([t for _, t in earlier], dtype=np.float64))  # None becomes NaN
        joined = np.concatenate(groups), np.concatenate(candidates), np.concatenate(times)
        rows = list(summaries_of(pairs, *joined, extern_ids(connection)))
        return cls((pair, candidate, time_us), pairs, counted, rows)

    def write(self, connection: sa.Connection) -> None:
        """Writes the rows. Those of pairs that have got timings since are computed again."""
        if not self.rows:
            return
        changed = self.pairs[_counted(connection, self.pairs) != self.counted]
        rows = self.rows
        if len(changed):
            pair, candidate, time_us = self.given
            mine = np.isin(pair, changed)
            rows = rows + self.read(connection, pair[mine], candidate[mine], time_us[mine]).rows
        bulk.execute_many(connection, _WRITE, rows)


def summaries_of(
    pairs: _Ids, group: _Ids, candidate: _Ids, time_us: _Times, extern: _Ids
) -> Iterator[tuple[Any, ...]]:
    """The rows of `summaries`, with NaN for NULL.

    `pairs` are problem << 32 | environment, ascending; each must have timings. `group`, `candidate`
    and `time_us` have all their timings, [n] each: the index of the timing's pair, its candidate,
    and its time (NaN for a failure). `extern` are the candidates that a library computes.
    """
    first, median, rows_of = medians(time_us, group, candidate)
    group, candidate = group[first], candidate[first]
    starts = np.searchsorted(group, np.arange(len(pairs)))
    failed = np.isnan(median)
    best = np.lexsort((candidate, median, group))[starts]  # of equally fast ones the lowest id
    named = candidate[best].astype(np.object_)
    named[np.isnan(median[best])] = None
    aten = np.where(np.isin(candidate, extern), median, np.nan)
    return zip(
        (pairs >> 32).tolist(),
        (pairs & bulk.LOW).tolist(),
        np.diff(starts, append=len(group)).tolist(),
        np.add.reduceat(failed, starts, dtype=np.int64).tolist(),
        np.add.reduceat(rows_of, starts).tolist(),
        named.tolist(),
        median[best].tolist(),
        np.fmin.reduceat(aten, starts).tolist(),
        strict=True,
    )


def _counted(connection: sa.Connection, pairs: _Ids) -> _Ids:
    """[n] how many timings there are of each of these problems in its environment, by
    `summaries`."""
    s = schema.summaries.c
    problems = np.unique(pairs >> 32)
    # A few problems are looked up one by one; for many, the part of the table from the first to the
    # last is read.
    query = sa.select(bulk.packed(s.problem, s.environment), s.timings).where(
        s.problem.in_(problems.tolist())
        if len(problems) <= 500
        else s.problem.between(int(problems[0]), int(problems[-1]))
    )
    found = dict(map(tuple, connection.execute(query)))
    return np.array([found.get(pair, 0) for pair in pairs.tolist()], dtype=np.int64)


def extern_ids(connection: sa.Connection) -> _Ids:
    """The candidates that a library computes."""
    c = schema.candidates.c
    names = [
        name
        for name in connection.scalars(sa.select(c.template).distinct())
        if template_of(name).extern
    ]
    found = connection.scalars(sa.select(c.id).where(c.template.in_(names)))
    return np.array(found.all(), dtype=np.int64)


def tally(
    connection: sa.Connection, run: int, table: TimingTable, environment: _Ids, failure: _Ids
) -> None:
    """Adds the rows of a table to `tallies`. `environment` and `failure` [n] are the ids of the
    rows' environments and failures (0 for none)."""
    kinds = [(str(p.op), str(p.dtype), int(p.allow_tf32)) for p in table.problems]
    code_of = {kind: code for code, kind in enumerate(dict.fromkeys(kinds))}
    code = np.array([code_of[kind] for kind in kinds], dtype=np.int64)[table.problem]
    names = list(code_of)
    cells, counts = np.unique((environment << 32) | (code << 8) | failure, return_counts=True)
    bulk.execute_many(
        connection,
        _COUNT,
        [
            (run, cell >> 32, *names[(cell & bulk.LOW) >> 8], cell & 0xFF, n)
            for cell, n in zip(cells.tolist(), counts.tolist(), strict=True)
        ],
    )


@dataclass(frozen=True)
class TimingCounts:
    """Counts of timings: of failures by their reasons, and of all timings by op, by type (TF32
    apart from float32) and by environment, the one that the store got first before the others."""

    failures: Mapping[str, int]
    by_op: Mapping[str, int]
    by_dtype: Mapping[str, int]
    by_environment: tuple[tuple[Environment, int], ...]

    @property
    def timings(self) -> int:
        return sum(self.by_op.values())


def count_timings(connection: sa.Connection, run: int | None = None) -> TimingCounts:
    """Return the counts of a run's timings, by `tallies`; of all runs' (None)."""
    t = schema.tallies.c
    kinds = (t.op, t.dtype, t.allow_tf32, t.environment, schema.failures.c.reason)
    cells = (
        sa.select(*kinds, sa.func.sum(t.timings))
        .outerjoin_from(schema.tallies, schema.failures, t.failure == schema.failures.c.id)
        .where(sa.true() if run is None else t.run == run)
        .group_by(*kinds)
    )
    failures: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    environments: Counter[int] = Counter()
    for op, dtype, tf32, environment, reason, n in connection.execute(cells):
        ops[op] += n
        dtypes[f"{dtype} tf32" if tf32 else dtype] += n
        environments[environment] += n
        if reason is not None:
            failures[reason] += n
    known = few_records(connection, schema.environments, environments)
    return TimingCounts(
        failures=dict(failures.most_common()),
        by_op=dict(ops.most_common()),
        by_dtype=dict(dtypes.most_common()),
        by_environment=tuple((known[number], n) for number, n in sorted(environments.items())),
    )
