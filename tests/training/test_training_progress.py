"""The progress of a whole training: it never falls, and ends near to all of it."""

import pytest

from diode_engine.models.fitting import FitProgress
from diode_engine.training.fit_steps import fit_labels
from diode_engine.training.training_progress import (
    NodeFitProgress,
    TrainingProgress,
    planned_fits,
    planned_fits_of_parts,
    planned_trials,
)

STEPS = 100
SECONDS = 10.0  # of a fit of trees


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def record(whole, label, step, steps=STEPS):
    whole.record(label, FitProgress(step, steps, 0.1, 0.9, 0.1, 0.1))


def simulated(planned, stops=1.0):
    """(when, fraction, seconds left) with each report of fits one after the other that end after
    the share `stops` of their steps."""
    clock = Clock()
    whole = TrainingProgress(planned, clock=clock)
    for label, cost in planned.items():
        for step in range(1, int(STEPS * stops) + 1):
            clock.now += cost * SECONDS / STEPS
            record(whole, label, step)
            yield clock.now, whole.fraction, whole.seconds_left
        whole.record(label, None)
        yield clock.now, whole.fraction, whole.seconds_left


def fit_together(whole, names, family, steps=STEPS):
    """The fractions while the fits of models of these names and this family report in turns, and
    end where they make all steps."""
    labels = [label for name in names for label in fit_labels(family, name)]
    seen = []
    for step in range(1, steps + 1):
        for label in labels:
            record(whole, label, step)
            seen.append(whole.fraction)
    if steps == STEPS:
        for label in labels:
            whole.record(label, None)
    return seen


@pytest.mark.parametrize(
    "planned",
    [
        planned_fits("trees"),
        planned_fits("ensemble", everything=True),
        planned_fits("distilled"),
        planned_fits("distilled", tuned=True),
        planned_trials("network", 4) | planned_fits("network"),
        planned_fits("ensemble", confidence=False),
    ],
    ids=len,
)
@pytest.mark.parametrize("stops", [1.0, 0.6])
def test_the_fraction_of_fits_one_after_the_other(planned, stops):
    seen = list(simulated(planned, stops))
    fractions = [fraction for _, fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert 0.8 < fractions[-1] < 1.0
    assert seen[-1][2] < 0.25 * seen[-1][0]
    assert fractions[len(fractions) // 50] < 0.2


def test_the_time_left_is_of_the_whole():
    seen = list(simulated(planned_fits("ensemble")))
    end = seen[-1][0]
    for when, fraction, left in seen[STEPS:]:
        assert left == pytest.approx(end - when, rel=0.3, abs=0.1 * end)
        assert fraction == pytest.approx(when / end, abs=0.12)


def test_what_a_checkpoint_has_is_done():
    planned, clock = planned_fits("ensemble"), Clock()
    whole = TrainingProgress(planned, clock=clock)
    for label in list(planned)[:-1]:
        whole.record(label, None)
    clock.now = 1.0
    assert whole.seconds_left is None
    record(whole, list(planned)[-1], STEPS // 2)
    assert whole.seconds_left == pytest.approx(1.5, rel=0.5)
    whole = TrainingProgress(planned)
    for label in ("trees-0", "trees-0, fold 1 of 3"):
        whole.record(label, None)
    assert whole.to_dict()["stage"] == 2
    assert whole.to_dict()["stages"] == 16
    assert whole.fraction > 0.1


def test_a_rate_is_that_of_the_only_fit_in_progress():
    clock = Clock()
    whole = TrainingProgress(planned_fits("ensemble"), clock=clock)
    assert whole.rate is None
    for step in range(1, 11):
        clock.now += 0.5
        record(whole, "trees-0", step, 10)
    assert whole.rate == pytest.approx(2.0)
    record(whole, "network-1", 1)
    assert whole.rate is None
    whole.record("network-1", None)
    assert whole.rate == pytest.approx(2.0)
    whole.record("trees-0", None)
    assert whole.rate is None


def test_the_parts_of_a_cross_validation():
    """One part is far ahead of the others, and its fits stop early. Parts have names of any
    words."""
    parts = ["fold 1 of 3", "qwen2-7b", "more than 30 GFLOP"]
    planned = planned_fits_of_parts("ensemble", parts)
    assert len(planned) == 12
    whole = TrainingProgress(planned, clock=Clock())
    seen = fit_together(whole, parts[1:2], "ensemble", STEPS // 2)
    assert 0.15 < seen[-1] < 0.18
    for label in fit_labels("ensemble", parts[1]):
        whole.record(label, None)
        seen.append(whole.fraction)
    assert 0.31 < seen[-1] < 0.35
    seen += fit_together(whole, [parts[0], parts[2]], "ensemble")
    assert seen == sorted(seen)
    assert 0.95 < seen[-1] < 1.0
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == 12


def test_a_search_and_then_the_fits_of_all_models_together():
    """A trial is given up after its first fold; then the folds are far ahead of the model."""
    trials, planned = planned_trials("distilled", 2), planned_fits("distilled")
    assert len(trials) == 2 * 3 * 4  # settings of the teacher are searched
    whole = TrainingProgress(trials | planned, clock=Clock())
    seen = fit_together(whole, ["trial 1, fold 1 of 3"], "ensemble")
    assert 0.02 < seen[-1] < 0.1
    for label in trials:
        whole.record(label, None)
    seen.append(whole.fraction)
    assert 0.4 < seen[-1] < 0.6
    seen += fit_together(whole, [f"fold {n} of 3" for n in (1, 2, 3)], "distilled")
    assert 0.6 < seen[-1] < 0.8
    seen += fit_together(whole, [""], "distilled")
    assert seen == sorted(seen)
    assert 0.97 < seen[-1] < 1.0
    assert whole.to_dict()["stage"] == whole.to_dict()["stages"] == len(trials) + len(planned)


def test_the_machines_of_a_cluster():
    whole = TrainingProgress(planned_fits("ensemble"), clock=Clock())
    assert "nodes" not in whole.to_dict()
    for label, node in (("trees-0", "a"), ("network-1", "b"), ("network-2", "b")):
        whole.record(label, NodeFitProgress(3, 10, 0.1, 0.9, 0.1, 0.1, node))
    assert whole.to_dict()["nodes"] == {
        "a": "1 fit; trees-0: 3 of 10", "b": "2 fits; network-2: 3 of 10",
    }  # fmt: skip
