"""Which side a problem is on, and that it stays there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode_engine.core.candidate import Candidate
from diode_engine.core.named_layers import models_of
from diode_engine.core.problem import Problem
from diode_engine.problems.splits import (
    MODELS,
    SplitPart,
    fold,
    folds,
    held_out_by,
    is_held_out_by_size,
    largest,
    leave_one_named_out,
    split,
    split_validation,
)
from tests.samples import table_of

SIZE = st.integers(1, 1 << 20)


def sides(problem: Problem) -> tuple[bool, int]:
    return is_held_out_by_size(problem), fold(problem, 5)


@given(SIZE, SIZE, SIZE)
def test_problems_of_the_same_sizes_are_on_one_side(m, n, k):
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


def test_the_share_is_about_what_is_asked_for():
    asked = problems()
    for share in (0.1, 0.2, 0.5):
        held = sum(is_held_out_by_size(problem, share=share) for problem in asked)
        assert held / len(asked) == pytest.approx(share, abs=0.03)
    sizes = np.bincount([fold(problem, 5) for problem in asked])
    assert len(sizes) == 5
    assert sizes.min() > 0.15 * len(asked)


def test_a_larger_share_holds_out_the_same_problems_and_more():
    few = {p for p in problems() if is_held_out_by_size(p, share=0.1)}
    assert few < {p for p in problems() if is_held_out_by_size(p, share=0.3)}


PINNED = [0, 4, 6, 12, 14, 20, 21, 22, 24, 25, 27, 30]


def test_the_sides_are_pinned():
    """What was held out when a model was trained must be found again by later versions."""
    sides_of = [is_held_out_by_size(p) for p in problems(40)]
    assert [i for i, held in enumerate(sides_of) if held] == PINNED


def test_split_parts_by_problem_and_keeps_every_row(timings):
    learned, held = split(timings)
    assert len(learned) + len(held) == len(timings)
    assert len(held) > 0
    assert all(is_held_out_by_size(timings.problems[i]) for i in held.problem)
    assert not any(is_held_out_by_size(timings.problems[i]) for i in learned.problem)


def test_a_problem_stays_on_its_side_as_timings_are_added(timings):
    first = timings.take(timings.problem < 20)
    for parts in (split, split_validation):
        before = [{first.problems[i] for i in part.problem} for part in parts(first)]
        after = [{timings.problems[i] for i in part.problem} for part in parts(timings)]
        assert before[0] < after[0]
        assert before[1] < after[1]


def test_validation_comes_from_what_is_learned_and_not_as_the_held_out_were(timings):
    learned, _ = split(timings)
    fitted, watched = split_validation(learned)
    assert len(fitted) + len(watched) == len(learned)
    # with the same hash nothing under the held-out share would be left to watch
    assert 0 < len(watched) < 0.4 * len(learned)
    assert not any(is_held_out_by_size(timings.problems[i]) for i in watched.problem)


def sizes_apart(part: SplitPart) -> bool:
    """Whether no sizes are on both sides."""
    learned, judged = (
        {(p.B, p.M, p.N, p.K) for p in (table.problems[i] for i in table.problem)}
        for table in (part.learned, part.judged)
    )
    return bool(judged) and not learned & judged


def test_folds_judge_each_problem_once(timings):
    parts = folds(timings, 4)
    assert [part.name for part in parts] == [f"fold {i} of 4" for i in (1, 2, 3, 4)]
    judged = [problem for part in parts for problem in set(part.judged.problem.tolist())]
    assert sorted(judged) == sorted(set(timings.problem.tolist()))
    for part in parts:
        assert len(part.learned) + len(part.judged) == len(timings)
        assert sizes_apart(part)


@pytest.fixture
def layers():
    """Layers of two transformers with sizes of their own and ones that they share, each in two
    types, and two products that are nobody's."""
    sizes = [(8, 14336, 4096), (64, 4096, 14336), (8, 4096, 4096), (8, 11008, 4096), (7, 77, 777)]
    problems = [
        Problem.make("mm", *size, dtype) for size in sizes for dtype in ("float16", "bfloat16")
    ]
    return table_of(problems, [Candidate.make("aten::mm")], np.ones(len(problems)))


def test_one_transformer_is_left_out_at_a_time(layers):
    parts = {part.name: part for part in leave_one_named_out(layers)}
    assert {"llama-3-8b", "mistral-7b", "llama-2-7b"} <= set(parts)
    assert "bert-base" not in parts
    for name, part in parts.items():
        assert all(name in models_of(part.judged.problems[i]) for i in part.judged.problem)
        assert not any(name in models_of(part.learned.problems[i]) for i in part.learned.problem)
        assert sizes_apart(part)
    assert len(parts["llama-3-8b"].judged) == 6  # with what it shares with llama-2-7b
    assert len(parts["llama-2-7b"].judged) == 4


def test_layers_of_gpt_oss_and_llama_4_are_held_out_by_their_names():
    """At every number of tokens and of experts, forward and both gradients, in 16 bits and in 8."""
    held = [
        Problem.make("grouped_mm_rows", rows, *weight, "bfloat16", B=groups)
        for weight in ((5760, 2880), (2880, 2880), (16384, 5120), (5120, 8192))
        for rows, groups in ((64, 16), (4096, 4))
    ]
    held += [
        Problem.make("grouped_mm_depth", 16384, 5120, 512, "bfloat16", B=16),
        Problem.make("grouped_mm_rows", 512, 5120, 16384, "bfloat16", B=16),
        Problem.make("scaled_grouped_mm_rows", 512, 5760, 2880, "float8_e4m3fn", B=32),
        Problem.make("scaled_mm", 77, 5120, 8192, "float8_e4m3fn"),
        Problem.make("int_mm", 77, 32768, 5120, "int8"),
        Problem.make("mm", 4096, 2880, 77, "bfloat16"),
    ]
    assert [p for p in held if MODELS not in held_out_by(p)] == []
    assert models_of(held[0]) == {"gpt-oss-20b", "gpt-oss-120b"}
    assert models_of(held[-2]) == {"llama-4-maverick"}
    learned = [
        Problem.make("grouped_mm_rows", 512, 28672, 4096, "bfloat16", B=8),  # Mixtral's
        Problem.make("mm", 77, 5120, 5120, "bfloat16"),  # Llama 2's too
        Problem.make("mm", 77, 5760, 2880, "bfloat16"),  # an expert's sizes, but not of groups
        Problem.make("bmm", 77, 2880, 4096, "bfloat16", B=2),
    ]
    assert [p for p in learned if MODELS in held_out_by(p)] == []
    assert models_of(learned[0]) == {"mixtral-8x7b"}
    assert "llama-2-13b" in models_of(learned[1])


def test_the_largest_are_judged_by_what_is_learned_from_smaller_ones(layers):
    (part,) = largest(layers, share=0.2)
    assert {(p.M, p.N) for p in (part.judged.problems[i] for i in part.judged.problem)} == {
        (64, 4096)
    }
    assert sizes_apart(part)
    assert "GFLOP" in part.name
    assert largest(layers.take(layers.problem < 0)) == []
    assert largest(layers.take(layers.problem < 2)) == []  # of one size
