"""Which side a problem is on, and that it stays there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode_engine.problem import Problem
from diode_engine.table import TimingTable
from diode_engine.training.splits import fold, held_out, split, split_validation

SIZE = st.integers(1, 1 << 20)


def sides(problem: Problem) -> tuple[bool, int]:
    return held_out(problem), fold(problem, 5)


@given(SIZE, SIZE, SIZE)
def test_problems_of_the_same_sizes_are_on_one_side(m: int, n: int, k: int) -> None:
    of_one_batch = {
        sides(Problem.make("mm", m, n, k, "bfloat16")),
        sides(Problem.make("mm", m, n, k, "float32", allow_tf32=True)),
        sides(Problem.make("mm", m, n, k, "float16", a_layout="col", b_layout="col")),
        sides(Problem.make("addmm", m, n, k, "float16", bias="vector")),
        sides(Problem.make("addmm", m, n, k, "float16", bias="matrix")),
        sides(Problem.make("bmm", m, n, k, "float16", B=1, a_align=1)),
    }
    assert len(of_one_batch) == 1


def problems(count: int = 2000) -> list[Problem]:
    return [Problem.make("mm", 16 + i, 64, 64, "bfloat16") for i in range(count)]


def test_the_share_is_about_what_is_asked_for() -> None:
    asked = problems()
    for share in (0.1, 0.2, 0.5):
        held = sum(held_out(problem, share=share) for problem in asked)
        assert held / len(asked) == pytest.approx(share, abs=0.03)
    sizes = np.bincount([fold(problem, 5) for problem in asked])
    assert len(sizes) == 5
    assert sizes.min() > 0.15 * len(asked)


def test_a_larger_share_holds_out_the_same_problems_and_more() -> None:
    few = {p for p in problems() if held_out(p, share=0.1)}
    assert few < {p for p in problems() if held_out(p, share=0.3)}


PINNED = [0, 4, 6, 12, 14, 20, 21, 22, 24, 25, 27, 30]


def test_the_sides_are_pinned() -> None:
    """What was held out when a model was trained must be found again by later versions."""
    sides_of = [held_out(p) for p in problems(40)]
    assert [i for i, held in enumerate(sides_of) if held] == PINNED


def test_another_seed_is_another_split() -> None:
    of_seeds = {tuple(held_out(p, seed=seed) for p in problems(60)) for seed in range(4)}
    assert len(of_seeds) == 4


def test_split_parts_by_problem_and_keeps_every_row(timings: TimingTable) -> None:
    learned, held = split(timings)
    assert len(learned) + len(held) == len(timings)
    assert len(held) > 0
    assert all(held_out(timings.problems[i]) for i in held.problem)
    assert not any(held_out(timings.problems[i]) for i in learned.problem)


def test_a_problem_stays_on_its_side_as_timings_are_added(timings: TimingTable) -> None:
    first = timings.take(timings.problem < 20)
    for parts in (split, split_validation):
        before = [{first.problems[i] for i in part.problem} for part in parts(first)]
        after = [{timings.problems[i] for i in part.problem} for part in parts(timings)]
        assert before[0] < after[0]
        assert before[1] < after[1]


def test_validation_comes_from_what_is_learned_and_not_as_the_held_out_were(
    timings: TimingTable,
) -> None:
    learned, _ = split(timings)
    fitted, watched = split_validation(learned)
    assert len(fitted) + len(watched) == len(learned)
    # with the same hash nothing under the held-out share would be left to watch
    assert 0 < len(watched) < 0.4 * len(learned)
    assert not any(held_out(timings.problems[i]) for i in watched.problem)
