"""Which candidates are timed, in which order, and what a plan says before it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from diode_engine import registry
from diode_engine.collect.planning.adviser import Advice, advise, adviser_for
from diode_engine.collect.planning.candidate_plan import CandidatePlan, plausible
from diode_engine.collect.planning.plan import (
    CandidateSelection,
    Plan,
    expected_rate,
    read_candidates,
)
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.errors import DatasetError
from diode_engine.problems.spaces import default_space, space_size
from tests.samples import tile

PROBLEM = Problem.make("mm", 512, 512, 512, "bfloat16")
DEFAULT = default_space(PROBLEM)
GRID = [
    tile(m, n, k, s, w)
    for m in (16, 32, 64, 128)
    for n in (16, 64, 256)
    for k in (16, 32, 64)
    for s in (1, 3)
    for w in (2, 4, 8)
]
OFFERED = tuple(dict.fromkeys([*DEFAULT, *GRID]))


def planned(
    selection: CandidateSelection | None = None,
    usual: Sequence[Candidate] = DEFAULT,
    **more: Any,
) -> CandidatePlan:
    """The plan of PROBLEM, of what is OFFERED."""
    selection = selection or CandidateSelection()
    return CandidatePlan(PROBLEM, OFFERED, usual, H200, selection=selection, **more)


def handed_out(plan: CandidatePlan, time_us=lambda c: 1.0, size: int = 12) -> list[Candidate]:
    out: list[Candidate] = []
    while batch := plan.next_batch(size):
        out += batch
        for candidate in batch:
            plan.record(candidate, time_us(candidate))
    return out


def test_all_are_handed_out_once_and_the_usual_ones_first():
    out = handed_out(planned())
    assert set(out) == set(OFFERED)
    assert len(out) == len(set(OFFERED))
    assert set(out[: len(DEFAULT)]) == set(DEFAULT)


def test_a_budget_is_kept_and_counts_what_was_timed_before():
    def out(done: Sequence[Candidate] = ()) -> list[Candidate]:
        before = dict.fromkeys((c.key for c in done), None)
        return handed_out(planned(CandidateSelection(60), done=before))

    first = out()
    assert len(first) == 60
    assert set(DEFAULT) < set(first)
    assert all(plausible(PROBLEM, c) for c in first[len(DEFAULT) :])
    assert all(fits(PROBLEM, first[len(DEFAULT) :], H200))
    assert out(first) == []
    assert len(out(first[:40])) == 20
    assert set(DEFAULT) - set(first[:10]) <= set(out(first[:10]))


def test_half_of_a_spread_is_near_the_fastest():
    fast = next(c for c in OFFERED if c.config.get("BLOCK_M") == 128 and c not in DEFAULT)

    def far(candidate: Candidate) -> float:
        return 1.0 + abs(np.log2(int(candidate.config.get("BLOCK_M", 1)) / 128))

    out = handed_out(planned(CandidateSelection(42), [fast]), far, size=1)
    sizes = [int(c.config.get("BLOCK_M", 0)) for c in out]
    assert np.mean(np.array(sizes[-20:]) == 128) > 0.5 > np.mean(np.array(sizes[2:22]) == 128)


def test_advice_gives_a_quarter_to_the_expected_and_one_to_the_hoped():
    def advise(rest: Sequence[Candidate]) -> Advice:
        expected = np.array([float(int(c.config["BLOCK_M"]) != 64) for c in rest])
        lower_bound = np.array([float(int(c.config["BLOCK_M"]) != 32) for c in rest])
        return Advice(expected, lower_bound)

    plan = planned(CandidateSelection(41), DEFAULT[:1], advise=advise)
    sizes = [int(c.config["BLOCK_M"]) for c in handed_out(plan)[1:]]
    assert sizes[:10] == [64] * 10
    assert sizes[10:20] == [32] * 10
    assert len(set(sizes[20:])) > 2


def test_where_advice_knows_nothing_a_budget_is_spent_all_the_same():
    def advise(rest: Sequence[Candidate]) -> Advice:
        return Advice(*np.full((2, len(rest)), np.inf))

    plan = planned(CandidateSelection(41), DEFAULT[:1], advise=advise)
    assert len(set(handed_out(plan))) == 41


def test_after_so_many_compiles_only_what_is_compiled_follows():
    shared = {c for c in GRID if c.config["num_stages"] == 1}
    selection = CandidateSelection(len(OFFERED), compiles=5)
    plan = planned(selection, is_compiled=shared.__contains__)
    out = handed_out(plan)[len(DEFAULT) :]
    assert sum(c not in shared for c in out) == 5
    usable = [c for c in shared if plausible(PROBLEM, c)]
    assert {c for c in out if c in shared} == set(usable) - set(DEFAULT)
    assert plan.left == 0


def test_named_candidates_are_those_that_are_offered():
    named = (OFFERED[-1], Candidate.make("aten::elsewhere"), OFFERED[0])
    assert set(handed_out(planned(CandidateSelection(fixed=named)))) == {OFFERED[-1], OFFERED[0]}


def test_of_named_candidates_a_budget_takes_so_many():
    named = tuple(c for c in OFFERED if plausible(PROBLEM, c))[-9:]
    selection = CandidateSelection(4, fixed=named)
    out = handed_out(planned(selection))
    assert len(out) == selection.size(PROBLEM).candidates == 4
    assert set(out) <= set(named)
    assert str(selection) == "up to 4 named candidates"


def test_of_the_default_space_nothing_else_is_handed_out():
    assert set(handed_out(planned(CandidateSelection(default=True)))) == set(DEFAULT)
    few = CandidateSelection(3, default=True)
    done = {OFFERED[-1].key: 1.0, DEFAULT[0].key: 1.0}  # one of another space
    assert len(handed_out(planned(few, done=done))) == 2


# Plans


def test_a_plan_has_every_problem_once():
    other = Problem.make("mm", 64, 64, 64, "float16")
    plan = Plan.for_problems([PROBLEM, other, PROBLEM], CandidateSelection(5), whole=1)
    assert [(e.problem, e.selection) for e in plan.entries] == [
        (PROBLEM, CandidateSelection()), (other, CandidateSelection(5)),
    ]  # fmt: skip


def test_a_summary_adds_up():
    problems = [Problem.make("bmm", 64, 64, 64, "float16", B=2), PROBLEM]
    rate = expected_rate([], gpus=2, cores=32)
    summary = Plan.for_problems(problems, CandidateSelection(100), whole=1).summary(rate)
    whole = space_size(problems[0])
    assert summary["candidates"] == whole.candidates + 100
    assert summary["compiles"] == whole.kernels + 99
    assert summary["by_op"] == {
        "bmm": {"problems": 1, "candidates": whole.candidates},
        "mm": {"problems": 1, "candidates": 100},
    }
    assert summary["by_selection"]["up to 100 candidates"] == {"problems": 1, "candidates": 100}
    assert summary["seconds"] == pytest.approx(summary["candidates"] / rate.a_second, abs=0.1)


def test_a_plan_of_the_default_space():
    plan = Plan.for_problems([PROBLEM], CandidateSelection(default=True))
    summary = plan.summary(expected_rate([], gpus=1, cores=1))
    assert summary["candidates"] == len(DEFAULT)
    assert summary["compiles"] == sum(not c.is_extern for c in DEFAULT)
    assert list(summary["by_selection"]) == ["all DEFAULT candidates"]


def test_the_rate_is_that_of_the_last_collection_that_took_enough():
    spec = {"gpus": [0, 1]}
    long, short = {"timings": 6000, "seconds": 100.0}, {"timings": 3, "seconds": 1.0}
    assert expected_rate([(spec, long), (spec, short)], gpus=4, cores=8).a_second == 120.0
    assert expected_rate([({}, {})], gpus=1, cores=3).a_second == 2.0  # the cores limit it
    assert expected_rate([], gpus=1, cores=1000).a_second == pytest.approx(1 / 0.03)  # the GPU


def test_candidates_are_read_from_a_file(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(json.dumps([c.to_dict() for c in (*OFFERED[:3], OFFERED[0])]))
    assert read_candidates(file) == OFFERED[:3]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "not valid JSON"),
        ("[]", "at least one"),
        ("{}", "must be a list"),
        ("[3]", r"\[0\]: 3 must be an object"),
        ('[{"template": "a"}, {"kwargs": {}}]', r"\[1\]: A candidate lacks"),
        ('[{"template": "a", "kwargs": {"x": [1]}}]', r"\[0\]: A candidate's kwarg"),
    ],
)
def test_malformed_candidates_are_refused_with_the_place(tmp_path, text, says):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(DatasetError, match=says):
        read_candidates(tmp_path / "c.json")


# The model's advice


def test_the_shipped_model_advises_by_its_members():
    predictor = registry.load_predictor(H200)
    adviser = adviser_for(H200)
    unknown, too_large = Candidate.make("cutlass::mm"), tile(256, 256, 256, 5, 8)
    asked = (*OFFERED, too_large, unknown)
    members = predictor.predict_members_us(PROBLEM, asked)
    together = predictor.predict_us(PROBLEM, asked)
    assert members.shape[0] > 1
    np.testing.assert_allclose(np.exp(np.log(members).mean(axis=0)), together, rtol=1e-4)
    advice = adviser(PROBLEM, asked)
    known = np.isfinite(advice.expected)
    assert (known == fits(PROBLEM, asked, H200) & np.isfinite(together)).all()
    assert known[-3:].tolist() == [True, False, False]
    np.testing.assert_allclose(advice.expected[known], np.log(together[known]), rtol=1e-3)
    assert np.all(advice.lower_bound[known] <= advice.expected[known])
    assert np.any(advice.lower_bound[known] < advice.expected[known] - 0.01)
    assert np.isinf(adviser(PROBLEM, [unknown]).lower_bound).all()


def test_without_a_model_there_is_no_adviser():
    other = Hardware.from_dict({**H200.to_dict(), "backend": "rocm", "arch": "gfx942"})
    assert adviser_for(other) is None


def test_the_adviser_asks_the_members_of_any_model():
    class Two:
        def predict_members_us(self, problem: Problem, candidates: Sequence[Candidate]):
            return np.array([[1.0, 4.0, np.nan], [4.0, 4.0, np.nan]])

    advice = advise(Two(), H200, PROBLEM, OFFERED[:3])
    assert advice.expected[:2] == pytest.approx(np.log([2.0, 4.0]))
    assert advice.lower_bound[:2] == pytest.approx(np.log([2.0 / 4.0, 4.0]))  # less two deviations
    assert np.isinf(advice.expected[2])
