"""Summaries and tallies are what the timings say, however these came, and after an upgrade."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import sqlalchemy as sa

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.store import Store, schema
from tests.store.conftest import ELSEWHERE, ENVIRONMENT, load_migration, one_product


def drawn(n: int, seed: int) -> TimingTable:
    """n timings of few problems and candidates, so that each is timed several times; a third
    failed, and times are few, so that there are ties."""
    rng = np.random.default_rng(seed)
    failed = rng.random(n) < 0.35
    time = np.where(failed, np.nan, rng.integers(1, 12, n) / 4.0)
    only_median = rng.random(n) < 0.3
    return TimingTable(
        (
            Problem.make("mm", 64, 96, 128, "bfloat16"),
            Problem.make("mm", 65, 96, 128, "float32", allow_tf32=True),
            Problem.make("addmm", 66, 96, 128, "float32"),
            Problem.make("bmm", 67, 96, 128, "float16", B=3),
        ),
        (
            Candidate.make("aten::mm"),
            Candidate.make("aten::bias_addmm"),
            *(Candidate.make("triton::mm", num_warps=i) for i in range(6)),
        ),
        (ENVIRONMENT, ELSEWHERE),
        problem=rng.integers(0, 4, n).astype(np.int32),
        candidate=rng.integers(0, 8, n).astype(np.int32),
        environment=rng.integers(0, 2, n).astype(np.int32),
        min_us=np.where(only_median, np.nan, time),
        median_us=time,
        spread_us=np.full(n, np.nan),
        repeats=np.zeros(n, dtype=np.int32),
        failure=np.where(failed, rng.integers(1, 4, n), 0).astype(np.uint8),
    )


def rows_of(store: Store, table: sa.Table) -> list[tuple]:
    with store.reads() as connection:
        return [tuple(row) for row in connection.execute(sa.select(table))]


def expected(table: TimingTable) -> dict[tuple[str, str], tuple]:
    """As the table's documentation has it, one row after the other."""
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    for i in range(len(table)):
        pair = (table.problems[table.problem[i]].key, table.environments[table.environment[i]].key)
        candidate = table.candidates[table.candidate[i]]
        times.setdefault(pair, {}).setdefault(str(candidate), []).append(table.time_us[i])
    found = {}
    for pair, by_candidate in times.items():
        medians = {
            name: float(np.median([t for t in all_of if t == t]))
            for name, all_of in by_candidate.items()
            if any(t == t for t in all_of)
        }
        extern = [us for name, us in medians.items() if name.startswith("aten::")]
        found[pair] = (
            len(by_candidate),
            len(by_candidate) - len(medians),
            sum(map(len, by_candidate.values())),
            min(medians.values(), default=None),
            min(extern, default=None),
        )
    return found


@pytest.mark.parametrize("cuts", [(0, 300), (0, 1, 4, 80, 81, 300)], ids=["at once", "in pieces"])
def test_summaries_and_tallies_are_what_the_timings_say(store, cuts):
    table = drawn(300, seed=1)
    first, second = (store.start_run("collect", {}) for _ in range(2))
    for i, (start, end) in enumerate(pairwise(cuts)):
        store.add(second if i % 2 else first, table.take(np.arange(start, end)))
    s, p, e = schema.summaries.c, schema.problems.c, schema.environments.c
    query = (
        sa.select(p.key, e.key, s.candidates, s.failed, s.timings, s.best_us, s.aten_us)
        .join_from(schema.summaries, schema.problems)
        .join(schema.environments)
    )
    with store.reads() as connection:
        found = {(row[0], row[1]): tuple(row[2:]) for row in connection.execute(query)}
    assert found == expected(table)
    stats = store.stats()
    assert stats.timings == 300
    reasons = [str(FAILURES[code - 1]) for code in table.failure if code]
    assert stats.failures == {reason: reasons.count(reason) for reason in set(reasons)}
    sizes = [end - start for start, end in pairwise(cuts)]
    by_run = {first: sum(sizes[::2]), second: sum(sizes[1::2])}
    assert stats.by_run == {run: n for run, n in by_run.items() if n}
    assert set(stats.by_dtype) == {"bfloat16", "float32", "float32 tf32", "float16"}
    assert set(stats.by_op) == {"mm", "addmm", "bmm"}
    assert {each for each, _ in stats.by_environment} == {ENVIRONMENT, ELSEWHERE}
    assert (stats.problems, stats.candidates) == (4, 8)
    assert [run.id for run in stats.runs] == [first, second]


@pytest.mark.parametrize("place", ["file"], indirect=True)
def test_an_upgrade_writes_what_the_timings_would_have_written(store):
    for seed in range(3):
        store.add(store.start_run("collect", {}), drawn(100, seed))
    kept = (schema.summaries, schema.tallies)
    written = [rows_of(store, table) for table in kept]
    migration = load_migration("0003_summaries_and_curves")
    with store.writes() as connection:
        for table in kept:
            connection.execute(sa.delete(table))
        connection.execute(sa.text(migration._SUMMARIES))
        connection.execute(sa.text(migration._TALLIES))
    assert [rows_of(store, table) for table in kept] == written


def test_the_best_of_equals_is_the_first_one_met(store):
    slow, first, second = (Candidate.make("triton::mm", num_warps=w) for w in (1, 2, 4))
    for candidate, timing in (
        (slow, Timing(min_us=9.0)),
        (second, Timing(failure=Failure.TIMEOUT)),
        (first, Timing(min_us=2.0)),
        (second, Timing(median_us=2.0)),
    ):
        store.add(store.start_run("collect", {}), one_product(timing, candidate=candidate))
    ((*_, best, best_us, aten_us),) = rows_of(store, schema.summaries)
    with store.reads() as connection:
        query = sa.select(schema.candidates.c.key).where(schema.candidates.c.id == best)
        assert connection.scalar(query) == second.key
    assert (best_us, aten_us) == (2.0, None)
