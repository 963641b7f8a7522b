"""BLAS on one thread, for as long as it is asked."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.features import SpaceFeatures
from diode_engine.models.artifact import load_artifact
from diode_engine.models.blas import one_thread
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import Matrix, TimingModel
from diode_engine.problems.spaces import default_space
from diode_engine.registry import best_for


def threads() -> set[int]:
    """Of numpy's BLAS; SciPy may have one of its own, which nobody ranks with."""
    return {
        pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and "scipy.libs" not in pool["filepath"]
    }


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas") as limits:
        if threads() != {2}:
            pytest.skip("BLAS has no threads here")
        yield limits


def test_as_many_as_before_afterwards():
    with one_thread():
        assert threads() == {1}
    assert threads() == {2}
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 // 0
    assert threads() == {2}


def test_one_asks_at_a_time():
    """The last of two that overlap would restore the one thread that it has found."""
    inside: list[int] = []
    together: list[int] = []

    def ask() -> None:
        for _ in range(20):
            with one_thread():
                inside.append(1)
                time.sleep(0)  # another's turn
                together.append(len(inside))
                inside.pop()

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert set(together) == {1}
    assert threads() == {2}


class Watched:
    """A member that notes how many threads BLAS has whenever it is asked."""

    judged_by_members = False

    def __init__(self, member: TimingModel) -> None:
        self._member = member
        self.seen: list[set[int]] = []

    def likely(self, space: SpaceFeatures) -> None:
        self.seen.append(threads())

    def space_answers(self, space: SpaceFeatures) -> Matrix:
        self.seen.append(threads())
        return self._member.space_answers(space)


def test_a_problem_is_asked_about_with_one():
    """Ranked when compiling; predicted, with the members' spread, when collecting and tuning."""
    match = best_for(H200)
    artifact = load_artifact(match.model.folder)
    member: Any = Watched(artifact.members[0])
    predictor = Predictor(replace(artifact, members=(member,)))
    problem = Problem.make("mm", 64, 512, 512, "bfloat16")
    space = default_space(problem, "2.11.0")
    for ask in (predictor.predict, predictor.predict_us, predictor.predict_members_us):
        ask(problem, space)
    assert member.seen == [{1}] * 4  # which are likely is needed for `predict` alone
