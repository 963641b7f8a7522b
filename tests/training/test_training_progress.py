"""The progress of a whole training: it never falls, and ends near to all of it."""

import pytest

from diode_engine.models.fitting import FitProgress
from diode_engine.training.training_progress import (
    NodeFitProgress,
    PlannedFit,
    TrainingProgress,
    planned_fits,
    planned_fits_of_parts,
)

STEPS = 100
COST = {"trees": 10.0, "network": 15.0, "distilled": 30.0}  # seconds of a fit
TEACHERS = ["trees-0", "network-1", "network-2", "network-3"]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def record(whole, label, step, steps=STEPS):
    whole.record(label, FitProgress(step, steps, 0.1, 0.9, 0.1, 0.1))


def label_of(group, member):
    words = [group, member] if group.startswith("trial") else [member, group]
    return ", ".join(filter(None, words))


def simulated(stages, stops=1.0):
    """(when, fraction, seconds left) with each report of fits one after the other that end after
    the share `stops` of their steps."""
    clock = Clock()
    whole = TrainingProgress(stages, clock=clock)
    for stage in stages:
        for step in range(1, int(STEPS * stops) + 1):
            clock.now += COST[stage.family] * stage.work / STEPS
            record(whole, label_of(stage.group, stage.member), step)
            yield clock.now, whole.fraction, whole.seconds_left


def fit_together(whole, groups, members, steps=STEPS):
    """The fractions while the fits of these members in these groups report in turns."""
    seen = []
    for step in range(1, steps + 1):
        for group in groups:
            for member in members:
                record(whole, label_of(group, member), step)
                seen.append(whole.fraction)
    return seen


@pytest.mark.parametrize(
    "training",
    [
        {"family": "trees"},
        {"family": "ensemble", "everything": True},
        {"family": "distilled"},
        {"family": "distilled", "tuned": True},
        {"family": "network", "trials": 4},
        {"family": "ensemble", "confidence": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("stops", [1.0, 0.6])
def test_the_fraction_of_fits_one_after_the_other(training, stops):
    seen = list(simulated(planned_fits(**training), stops))
    fractions = [fraction for _, fraction, _ in seen]
    assert fractions == sorted(fractions)
    if len(planned_fits(**training)) > 2:  # the last fit may end before its time
        assert 0.65 < fractions[-1] < 1.0
        assert seen[-1][2] < 0.5 * seen[-1][0]
    assert fractions[len(fractions) // 50] < 0.2


def test_the_time_left_is_of_the_whole():
    seen = list(simulated(planned_fits("ensemble")))
    end = seen[-1][0]
    for when, fraction, left in seen[STEPS:]:
        assert left == pytest.approx(end - when, rel=0.3, abs=0.1 * end)
        assert fraction == pytest.approx(when / end, abs=0.12)


def test_what_a_checkpoint_has_done_is_passed_over():
    whole = TrainingProgress(planned_fits("ensemble"), clock=Clock())
    assert whole.seconds_left is None
    record(whole, "network-3, fold 3 of 3", 1)
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == 16


def test_a_rate_is_that_of_the_only_fit_in_progress():
    clock = Clock()
    whole = TrainingProgress([PlannedFit("", "trees-0")], clock=clock)
    assert whole.rate is None
    for step in range(1, 11):
        clock.now += 0.5
        record(whole, "trees-0", step, 10)
    assert whole.rate == pytest.approx(2.0)
    whole.is_parallel = True
    assert whole.rate is None


def test_the_parts_of_a_cross_validation():
    """One part is far ahead of the others, and fits stop early. Parts have names of any words."""
    parts = ["fold 1 of 3", "qwen2-7b", "more than 30 GFLOP"]
    planned = planned_fits_of_parts("distilled", parts)
    assert len(planned) == 15
    whole = TrainingProgress(planned, is_parallel=True, clock=Clock())
    seen = fit_together(whole, parts[1:2], TEACHERS, STEPS // 2)
    seen += fit_together(whole, parts[1:2], ["distilled-4"])
    assert 0.28 < seen[-1] < 0.34
    for group in (parts[0], parts[2]):
        seen += fit_together(whole, [group], TEACHERS, STEPS // 2)
        seen += fit_together(whole, [group], ["distilled-4"])
    assert seen == sorted(seen)
    assert 0.95 < seen[-1] < 1.0
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == 15


def test_a_search_and_then_the_fits_of_all_models_together():
    """Trials are stopped early and given up; then the folds are far ahead of the model."""
    stages = planned_fits("distilled", trials=3)
    whole = TrainingProgress(stages, is_parallel=True, trials_together=2, clock=Clock())
    folds = [f"fold {n} of 3" for n in (1, 2, 3)]
    seen = fit_together(whole, ["trial 1, fold 1 of 3"], TEACHERS, STEPS // 2)
    assert seen[-1] < 0.05
    seen += fit_together(whole, ["trial 2, fold 1 of 3"], TEACHERS[:1])
    assert seen[-1] < 0.1  # it is tried together with the first
    seen += fit_together(whole, ["trial 3, fold 1 of 3"], TEACHERS[:1], 1)
    assert 0.25 < seen[-1] < 0.45
    seen += fit_together(whole, folds, TEACHERS)
    seen += fit_together(whole, folds, ["distilled-4"])
    assert 0.7 < seen[-1] < 0.85
    seen += fit_together(whole, [""], TEACHERS, STEPS // 2)
    seen += fit_together(whole, [""], ["distilled-4"])
    assert seen == sorted(seen)
    assert 0.97 < seen[-1] < 1.0
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == len(stages)


def test_the_machines_of_a_cluster():
    whole = TrainingProgress(planned_fits("ensemble"), is_parallel=True, clock=Clock())
    assert "nodes" not in whole.to_dict()
    for label, node in (("trees-0", "a"), ("network-1", "b"), ("network-2", "b")):
        whole.record(label, NodeFitProgress(3, 10, 0.1, 0.9, 0.1, 0.1, node))
    assert whole.to_dict()["nodes"] == {
        "a": "1 fit; trees-0: 3 of 10", "b": "2 fits; network-2: 3 of 10",
    }  # fmt: skip
