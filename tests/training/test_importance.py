"""Which settings mattered."""

import sys

import pytest

from diode_engine.errors import TrainingError
from diode_engine.training.importance import LEAST_RUNS, setting_importances

TRAININGS = [
    ({"rate": rate, "depth": depth, "kind": kind, "seed": 1, "name": f"m{n}"},
     0.9 - abs(rate - 0.01) + 0.0001 * depth)
    for n, (rate, depth, kind) in enumerate(
        (rate, depth, kind)
        for rate in (0.001, 0.01, 0.1) for depth in (4, 8) for kind in ("a", "b", None)
    )
]  # fmt: skip


def test_the_setting_that_decides_comes_first():
    pytest.importorskip("optuna", reason="needs Optuna (the extra train)")
    found = setting_importances(TRAININGS)
    assert next(iter(found)) == "rate"
    assert found["rate"] > 0.8
    assert sum(found.values()) == pytest.approx(1.0)
    # The same in all, and different in each: neither tells anything.
    assert set(found) == {"rate", "depth", "kind"}


def test_it_is_about_the_best_trainings_and_not_the_worst():
    pytest.importorskip("optuna", reason="needs Optuna (the extra train)")
    trainings = [
        ({"helps": str(n < 4), "harms": str(n >= 12)}, 0.8 + 0.1 * (n < 4) - 0.3 * (n >= 12))
        for n in range(16)
    ]
    assert next(iter(setting_importances(trainings))) == "helps"


def test_trainings_with_the_same_settings_tell_nothing():
    pytest.importorskip("optuna", reason="needs Optuna (the extra train)")
    assert setting_importances([({"depth": 4}, 0.9)] * LEAST_RUNS) == {}


def test_a_few_trainings_are_refused():
    with pytest.raises(TrainingError, match="there are 4"):
        setting_importances(TRAININGS[: LEAST_RUNS - 1])


def test_without_optuna_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(TrainingError, match=r"pip install 'diode-engine\[train\]'"):
        setting_importances(TRAININGS)
