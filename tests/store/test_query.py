"""What is asked of a store: pages of problems, candidates, the map, statistics, contents."""

from __future__ import annotations

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.errors import QueryError
from diode_engine.store import Store, query
from diode_engine.store.problem_counts import space_map, statistics
from diode_engine.store.run_query import RunContents, known_values, run_contents, runs
from tests.store.conftest import ELSEWHERE, ENVIRONMENT, make_table

_ATEN, _FAST, _SLOW = (
    Candidate.make("aten::mm"),
    Candidate.make("triton::mm", num_warps=4),
    Candidate.make("triton::mm", num_warps=8),
)


def problem(i: int) -> Problem:
    return Problem.make(("mm", "addmm")[i % 2], 10 * i, 100, 1000 - i, "float32", allow_tf32=i < 3)


@pytest.fixture(scope="module")
def store(place_of_module):
    """Problems 1 to 6; 6 only failed, 5 has no ATen, and 1 was also timed elsewhere. Two runs."""
    rows = []
    for i in range(1, 6):
        if i != 5:
            rows.append((problem(i), _ATEN, ENVIRONMENT, Timing(min_us=10.0 + i)))
        rows.append((problem(i), _FAST, ENVIRONMENT, Timing(min_us=20.0 - 3 * i)))
    rows.append((problem(6), _FAST, ENVIRONMENT, Timing(failure=Failure.TIMEOUT)))
    rows.append((problem(1), _SLOW, ELSEWHERE, Timing(median_us=50.0)))
    with Store.open(place_of_module) as opened:
        opened.add(opened.start_run("collect", {}), TimingTable.from_records(rows))
        again = [
            (problem(1), _FAST, ENVIRONMENT, Timing(min_us=19.0, spread_us=1.0)),
            (problem(1), _FAST, ENVIRONMENT, Timing(failure=Failure.CRASH)),
            (problem(1), _SLOW, ENVIRONMENT, Timing(failure=Failure.CRASH)),
        ]
        opened.add(opened.start_run("collect", {}), TimingTable.from_records(again))
        yield opened


def numbers(rows: list[query.ProblemRow]) -> list[tuple[int, str]]:
    return [(row.problem.M // 10, row.environment.hardware.name[:5]) for row in rows]


def test_a_row_says_what_was_measured(store):
    (row,) = query.problems(store, "m:10 gpu:nvidia")
    assert (row.problem, row.environment) == (problem(1), ENVIRONMENT)
    assert (row.candidates, row.failed, row.timings) == (3, 1, 5)
    assert (row.best, row.best_us, row.aten_us) == (_ATEN, 11.0, 11.0)
    assert row.efficiency == 1.0
    (row,) = query.problems(store, "m:40")
    assert (row.best, row.best_us, row.aten_us) == (_FAST, 8.0, 14.0)
    assert row.efficiency == 8.0 / 14.0
    (row,) = query.problems(store, "m:60")
    assert (row.best, row.best_us, row.aten_us, row.efficiency) == (None, None, None, None)
    assert (row.candidates, row.failed, row.timings) == (1, 1, 1)


@pytest.mark.parametrize(
    ("sort", "ascending"),
    [
        ("problem", [{1}, {1}, {2}, {3}, {4}, {5}, {6}]),
        ("m", [{1}, {1}, {2}, {3}, {4}, {5}, {6}]),
        ("K", [{6}, {5}, {4}, {3}, {2}, {1}, {1}]),
        ("op", [{1, 3, 5}] * 4 + [{2, 4, 6}] * 3),  # addmm before mm
        ("gpu", [{1}, {2}, {3}, {4}, {5}, {6}, {1}]),
        ("best", [{5}, {4}, {1}, {3}, {2}, {1}, {6}]),
        ("aten", [{1}, {2}, {3}, {4}, {1}, {5}, {6}]),
        ("efficiency", [{4}, {3}] + [{1, 2}] * 2 + [{1, 5, 6}] * 3),  # those of 1 and 2 are both 1
    ],
)
def test_problems_are_sorted_and_the_unknown_comes_last(store, sort, ascending):
    rows = [n for n, _ in numbers(query.problems(store, sort=sort))]
    assert all(n in expected for n, expected in zip(rows, ascending, strict=True)), rows


@pytest.mark.parametrize("sort", query.SORTS)
@pytest.mark.parametrize("descending", [False, True])
def test_pages_hold_each_row_once(store, sort, descending):
    whole = numbers(query.problems(store, sort=sort, descending=descending))
    paged = [
        row
        for offset in range(0, 8, 2)
        for row in numbers(
            query.problems(store, sort=sort, descending=descending, offset=offset, limit=2)
        )
    ]
    assert paged == whole
    assert len(whole) == query.count_problems(store) == 7
    if descending and sort in ("best", "aten", "efficiency"):
        assert whole[-1] == (6, "NVIDI")


def test_a_page_has_its_limit(place):
    with Store.open(place) as store:
        store.add(store.start_run("collect", {}), make_table(510, 1))
        assert len(query.problems(store, limit=10_000)) == query.MAX_ROWS
        assert len(query.problems(store, offset=500)) == 10


def test_candidates_are_ranked_by_the_median_of_their_timings(store):
    (row,) = query.problems(store, "m:10 gpu:nvidia")
    ranked = query.candidates(store, row.number, row.environment_number)
    assert [(c.candidate, c.time_us, c.spread_us, c.timings, c.failures) for c in ranked] == [
        (_ATEN, 11.0, None, 1, {}),
        (_FAST, 18.0, 1.0, 3, {"crash": 1}),
        (_SLOW, None, None, 1, {"crash": 1}),
    ]
    (second,) = query.candidates(store, row.number, row.environment_number, offset=1, limit=1)
    assert second == ranked[1]
    assert query.candidates(store, 99, 1) == []


def test_the_first_candidate_is_the_best_of_the_page_of_problems(place):
    with Store.open(place) as store:
        store.add(store.start_run("collect", {}), make_table(20, 12))
        store.add(store.start_run("collect", {}), make_table(15, 12))
        for row in query.problems(store):
            best = query.candidates(store, row.number, row.environment_number)[0]
            assert (best.candidate, best.time_us) == (row.best, row.best_us)


def test_the_map_counts_problems_by_powers_of_two(place):
    sizes = [(1, 1), (63, 64), (64, 127), (65, 128), (2**30, 2**31 - 1)]
    problems = [Problem.make("mm", m, n, 8, "float16") for m, n in sizes]
    rows = [(p, _ATEN, e, Timing(min_us=1.0)) for p in problems for e in (ENVIRONMENT, ELSEWHERE)]
    with Store.open(place) as store:
        store.add(store.start_run("collect", {}), TimingTable.from_records(rows))
        found = space_map(store)
        assert (found.x, found.y, found.x_first, found.y_first) == ("n", "m", 0, 0)
        assert found.counts.shape == (31, 31)
        assert {tuple(cell): found.counts[tuple(cell)] for cell in np.argwhere(found.counts)} == {
            (0, 0): 1, (5, 6): 1, (6, 6): 1, (6, 7): 1, (30, 30): 1,
        }  # fmt: skip
        some = space_map(store, "m:60..70", x="k")
        assert (some.x_first, some.y_first, some.counts.tolist()) == (3, 5, [[1], [2]])
        assert space_map(store, "op:bmm").counts.size == 0


def test_statistics_are_by_hardware_op_and_type(store):
    found = statistics(store)
    assert [(s.values, s.problems, s.candidates, s.failed, s.timings) for s in found] == [
        (("NVIDIA H200", "addmm", "float32"), 2, 3, 0, 3),
        (("NVIDIA H200", "mm", "float32"), 2, 3, 1, 3),
        (("NVIDIA H200", "addmm", "float32 tf32"), 1, 3, 1, 5),
        (("NVIDIA H200", "mm", "float32 tf32"), 1, 2, 0, 2),
        (("Other", "addmm", "float32 tf32"), 1, 1, 0, 1),
    ]
    (whole,) = statistics(store, by=())
    assert (whole.problems, whole.timings, whole.aten, whole.near) == (7, 14, 4, 2)
    (elsewhere,) = statistics(store, "gpu:other", by=("torch",))
    assert (elsewhere.values, elsewhere.aten) == (("2.11.0",), 0)
    assert statistics(store, "op:bmm") == statistics(store, "op:bmm", by=()) == []


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda s: query.problems(s, sort="speed"), "cannot be sorted by 'speed', only by pr"),
        (lambda s: statistics(s, by=["m"]), "cannot be grouped by 'm', only by gpu"),
        (lambda s: space_map(s, x="op"), "cannot be mapped by 'op', only by b"),
        (lambda s: query.problems(s, "nonsense"), "not a term"),
        (lambda s: query.count_problems(s, "nonsense"), "not a term"),
        (lambda s: runs(s, "nonsense"), "not a term"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(store, ask, sentence):
    with pytest.raises(QueryError, match=sentence):
        ask(store)


def test_a_run_holds_what_it_timed(store):
    second = run_contents(store, 2)
    assert (second.problems, second.timings) == (1, 3)
    assert second.failures == {"crash": 2}
    assert second.by_environment == ((ENVIRONMENT, 3),)
    first = run_contents(store, 1)
    assert (first.problems, first.timings, first.failures) == (6, 11, {"timeout": 1})
    assert first.by_environment == ((ENVIRONMENT, 10), (ELSEWHERE, 1))
    assert run_contents(store, 99) == RunContents({}, {}, {}, (), 0)


def test_what_the_store_knows_of_a_field(store):
    store.tag(1, "b", "a")
    known = known_values(store)
    assert known["gpu"] == ["NVIDIA H200", "Other"]
    assert known["tag"] == ["a", "b"]
    assert known["kind"] == ["collect"]
    assert known["triton"] == ["3.7.1"]


def test_an_empty_store_answers_everything(place):
    with Store.open(place) as store:
        assert query.problems(store) == runs(store) == statistics(store) == []
        assert query.count_problems(store) == 0
        assert statistics(store, by=()) == []
        assert space_map(store).counts.size == 0
