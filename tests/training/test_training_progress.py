"""How far a training is as a whole: it never goes back, and ends near to all of it."""

from __future__ import annotations

import pytest

from diode_engine.training.planned_fits import PlannedFit, planned_fits, planned_fits_of_parts
from diode_engine.training.training_progress import (
    ParallelPartsProgress,
    ParallelTrainingProgress,
    PooledTrainingProgress,
    TrainingProgress,
)

STEPS = 100


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def simulated(stages, cost, stops=1.0):
    """(when, fraction, seconds left) with each report of fits that take `cost[kind]` seconds with
    all of their steps, and end after the part `stops` of them."""
    clock = Clock()
    whole = TrainingProgress(stages, clock=clock)
    for stage in stages:
        words = [stage.member, *filter(None, [stage.group])]
        label = ", ".join(reversed(words) if stage.group.startswith("trial") else words)
        for step in range(1, int(STEPS * stops) + 1):
            clock.now += cost[stage.family] * stage.work / STEPS
            whole.told(label, step, STEPS)
            yield clock.now, whole.fraction, whole.seconds_left


COST = {"trees": 10.0, "network": 40.0, "distilled": 120.0}
ASKED = [
    {"family": "trees"},
    {"family": "ensemble"},
    {"family": "ensemble", "everything": True},
    {"family": "distilled"},
    {"family": "distilled", "tuned": True},
    {"family": "network", "trials": 4},
    {"family": "ensemble", "confidence": False},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("stops", [1.0, 0.6])
def test_the_whole_never_goes_back(asked, stops):
    seen = list(simulated(planned_fits(**asked), COST, stops))
    fractions = [fraction for _, fraction, _ in seen]
    assert fractions == sorted(fractions)
    if len(planned_fits(**asked)) > 2:  # the first fit of all may end before its time
        assert 0.85 < fractions[-1] < 1.0
        assert seen[-1][2] < 0.15 * seen[-1][0]
    assert fractions[len(fractions) // 50] < 0.2


@pytest.mark.parametrize("stops", [1.0, 0.6])
def test_the_time_left_is_of_the_whole(stops):
    """Once a fit of each kind is over, it is told within a part of what it then takes."""
    stages = planned_fits("ensemble")
    seen = list(simulated(stages, COST, stops))
    end = seen[-1][0]
    for when, fraction, left in seen[2 * int(STEPS * stops) :]:
        assert left == pytest.approx(end - when, rel=0.3, abs=0.1 * end)
        assert fraction == pytest.approx(when / end, abs=0.12)


def test_what_a_checkpoint_has_done_is_passed_over():
    clock = Clock()
    whole = TrainingProgress(planned_fits("ensemble"), clock=clock)
    clock.now = 10.0
    whole.told("network-3, fold 3 of 3", 1, 100)
    assert whole.seconds_left is None  # it has no pace yet
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == 16


def test_a_rate():
    clock = Clock()
    whole = TrainingProgress([PlannedFit("", "trees-0")], clock=clock)
    assert whole.rate is None
    for step in range(1, 11):
        clock.now += 0.5
        whole.told("trees-0", step, 10)
    assert whole.rate == pytest.approx(2.0)


def test_the_stages_of_a_cross_validation():
    stages = planned_fits_of_parts("ensemble", ["fold 1 of 2", "fold 2 of 2"])
    assert len(stages) == 8
    assert list(simulated(stages, COST))[-1][1] > 0.9


def test_fits_side_by_side_are_told_by_the_work_that_is_done():
    """Each fit of a group says in turn how far it is; the trees stop early."""
    clock = Clock()
    whole = ParallelTrainingProgress(planned_fits("distilled", everything=True), clock=clock)
    assert whole.seconds_left is None
    seen = []
    for group in ("", ", fold 1 of 3", ", all problems"):
        for members in (["trees-0", "network-1", "network-2", "network-3"], ["distilled-4"]):
            for step in range(1, STEPS + 1):
                for member in members:
                    if member != "trees-0" or step <= STEPS // 2:
                        clock.now += 0.1
                        whole.told(f"{member}{group}", step, STEPS)
                        seen.append((whole.fraction, whole.seconds_left))
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert 0.9 < fractions[-1] < 1.0
    assert seen[-1][1] < 0.1 * clock.now
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == 25


def test_the_parts_of_a_cross_validation_are_fitted_side_by_side():
    """The fits of a part follow each other, and stop early; one part is far ahead of the others.
    Parts have names of any words."""
    parts = ["fold 1 of 3", "qwen2-7b", "more than 30 GFLOP"]
    whole = ParallelPartsProgress(planned_fits_of_parts("ensemble", parts), clock=Clock())
    members = ["trees-0", "network-1", "network-2", "network-3"]
    seen = []

    def fitted(part, member):
        for step in range(1, STEPS // 2 + 1):
            whole.told(f"{member}, {part}", step, STEPS)
            seen.append(whole.fraction)

    for member in members:
        fitted(parts[1], member)
    assert 0.25 < seen[-1] < 0.33
    for member in members:
        for part in (parts[0], parts[2]):
            fitted(part, member)
    assert seen == sorted(seen)
    assert 0.8 < seen[-1] < 1.0
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == 12


def test_fits_of_several_models_are_told_by_the_work_that_is_done():
    """A search's trials first; then the model and its folds, the folds far ahead."""
    stages = planned_fits("distilled", trials=1)
    whole = PooledTrainingProgress(stages, clock=Clock())
    seen = []

    def fitted(groups, members, steps=STEPS):
        for step in range(1, steps + 1):
            for group in groups:
                for member in members:
                    named = f"{group}, {member}" if "trial" in group else f"{member}{group}"
                    whole.told(named, step, STEPS)
                    seen.append(whole.fraction)

    teachers, folds = ["trees-0", "network-1", "network-2"], [f", fold {n} of 3" for n in (1, 2, 3)]
    fitted(["trial 1, fold 1 of 3"], teachers, STEPS // 2)  # stopped early, and then pruned
    assert seen[-1] < 0.1
    fitted(folds, teachers)
    fitted(folds, ["network-3", "distilled-4"])
    searched = sum(stage.group.startswith("trial") for stage in stages)
    assert searched == 12
    assert 0.4 < seen[-1] < 0.7
    fitted([""], [*teachers, "network-3"], STEPS // 2)
    before = seen[-1]
    fitted([""], ["distilled-4"])
    assert seen == sorted(seen)
    assert before < seen[-1] < 1.0
    assert seen[-1] > 0.95
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == len(stages)
