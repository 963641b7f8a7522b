"""Both families learn a simple rule, report how it goes, and can be stopped."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from diode_engine.core.hardware import H200
from diode_engine.errors import TrainingError
from diode_engine.models.fit_distilled import fit_cascade
from diode_engine.models.fit_network import NetworkSettings, fit_network
from diode_engine.models.fit_trees import TreesSettings, fit_trees
from diode_engine.models.fitting import Examples, FitProgress, efficiency, ranking_loss

NETWORK = NetworkSettings(hidden=(32,), epochs=40, patience=40, problems=16, rows=16)
TREES = TreesSettings(rounds=60, max_depth=5, learning_rate=0.2, threads=2)


@pytest.fixture(scope="module")
def halves(table):
    held = table.problem % 4 == 0
    return Examples.make(table.take(~held), H200), Examples.make(table.take(held), H200)


def rmse(examples: Examples, predicted: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - examples.log_us) ** 2)))


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(
    "family", ["network", "network, regret", "network, pairwise", "trees", "trees, ranking"]
)
def test_a_fit_beats_a_constant(family, residual, halves):
    train, held_out = halves
    seen: list[FitProgress] = []
    if family.startswith("network"):
        ranking = family.partition(", ")[2] or "listwise"
        s = replace(NETWORK, residual=residual, ranking=ranking)
        model = fit_network(train, held_out, s, seen.append, device="cpu")
    else:
        t = replace(TREES, residual=residual, rank=0.01 if "ranking" in family else 0.0)
        model = fit_trees(train, held_out, t, seen.append)
    predicted = model.predict(held_out.x)
    constant = np.full_like(held_out.log_us, train.log_us.mean())
    assert rmse(held_out, predicted) < 0.5 * rmse(held_out, constant)
    assert efficiency(held_out, predicted) > 0.85 > efficiency(held_out, constant)
    best = min(seen, key=lambda p: p.objective)
    assert best.rmse == pytest.approx(rmse(held_out, predicted), rel=1e-3)
    assert best.efficiency == pytest.approx(efficiency(held_out, predicted), rel=1e-3)
    again = type(model).from_bytes(model.to_bytes())
    np.testing.assert_array_equal(again.predict(held_out.x), predicted)


class Stopped(Exception):
    pass


def stop_at(step: int) -> Callable[[FitProgress], None]:
    """A report that ends the fit at this step."""

    def stop(progress: FitProgress) -> None:
        if progress.step == step:
            raise Stopped

    return stop


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (replace(NETWORK, learning_rate=1e30), r"learning rate of 1e\+30"),
        (replace(NETWORK, hidden=(1 << 40,)), "little memory for layers of 1099511627776"),
    ],
)
def test_a_network_that_cannot_be_fitted_is_refused_in_a_sentence(settings, says, halves):
    seen: list[FitProgress] = []
    with pytest.raises(TrainingError, match=says):
        fit_network(*halves, settings, seen.append, device="cpu")
    assert all(math.isfinite(progress.objective) for progress in seen)


class Memory:
    """A checkpoint that is saved after each step."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.parts: dict[str, Memory] = defaultdict(Memory)

    def load(self) -> bytes | None:
        return self.data

    def save(self, state: Callable[[], bytes]) -> None:
        self.data = state()

    def part(self, name: str) -> Memory:
        return self.parts[name]


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_network_that_was_cut_short_becomes_the_same(cut, halves):
    s = replace(NETWORK, epochs=12, patience=5, dropout=0.1)
    whole: list[FitProgress] = []
    wanted = fit_network(*halves, s, whole.append, device="cpu").to_bytes()
    memory, seen = Memory(), []
    with pytest.raises(Stopped):
        fit_network(*halves, s, stop_at(cut), memory, device="cpu")
    again = fit_network(*halves, s, seen.append, memory, device="cpu")
    assert again.to_bytes() == wanted
    assert seen == whole


@pytest.mark.parametrize("cut", [3, 8])  # in the first network, in the sieve
def test_a_cascade_that_was_cut_short_becomes_the_same(cut, halves):
    learned, watched = (replace(each, heads=np.stack([each.log_us] * 2)) for each in halves)
    s = replace(NETWORK, epochs=5, patience=5)
    whole: list[FitProgress] = []
    wanted = fit_cascade((), learned, watched, s, whole.append)
    assert [progress.step for progress in whole] == [*range(1, 11)]
    assert {(each.steps, each.rmse) for each in whole[5:]} == {(10, whole[4].rmse)}
    memory, seen = Memory(), []
    with pytest.raises(Stopped):
        fit_cascade((), learned, watched, s, stop_at(cut), memory)
    saved = memory.part("sieve").data
    assert (saved is not None) == (cut > 5)
    again = fit_cascade((), learned, watched, s, seen.append, memory)
    assert again.to_bytes() == wanted.to_bytes()
    assert seen == whole


def test_trees_that_were_cut_short_become_as_good(halves):
    whole: list[FitProgress] = []
    fit_trees(*halves, TREES, whole.append)
    memory, seen = Memory(), []
    with pytest.raises(Stopped):
        fit_trees(*halves, TREES, stop_at(20), memory)
    again = fit_trees(*halves, TREES, seen.append, memory)
    assert [p.step for p in seen] == [p.step for p in whole]
    assert seen[:20] == whole[:20]
    assert seen[19].rmse > 1.2 * whole[-1].rmse
    assert rmse(halves[1], again.predict(halves[1].x)) < 1.1 * min(p.rmse for p in whole)


def test_a_damaged_checkpoint_is_a_sentence(halves):
    memory = Memory()
    memory.data = b"not a checkpoint at all"
    for fit, settings in ((fit_network, NETWORK), (fit_trees, TREES)):
        with pytest.raises(TrainingError, match="checkpoint is damaged"):
            fit(*halves, settings, checkpoint=memory)  # type: ignore[operator]


def test_heads_are_learned_each(halves):
    train, held_out = halves
    shift = np.array([[-0.5], [0.5]], np.float32)
    heads = replace(train, heads=train.log_us + shift)
    network = fit_network(heads, held_out, replace(NETWORK, epochs=20), device="cpu")
    weight, bias = network.layers[-1]
    assert weight.shape[1] == 2
    assert rmse(held_out, network.predict(held_out.x)) < 0.3
    first, second = (
        replace(network, layers=(*network.layers[:-1], (weight[:, [i]], bias[[i]])))
        for i in range(2)
    )
    apart = second.predict(held_out.x) - first.predict(held_out.x)
    assert apart.mean() == pytest.approx(1, abs=0.1)


def test_failed_and_unsupported_timings_are_left_out(table):
    failed = np.zeros(len(table), np.uint8)
    failed[5] = 1
    us = table.min_us.copy()
    us[5] = np.nan
    changed = replace(table, min_us=us, failure=failed)
    shuffled = changed.take(np.random.default_rng(0).permutation(len(table)))
    examples = Examples.make(shuffled, H200)
    assert len(examples.log_us) == len(table) - 1
    assert len(examples.starts) == len(table.problems)
    np.testing.assert_allclose(
        np.sort(examples.log_us), np.sort(np.log(us[~np.isnan(us)])), rtol=1e-6
    )


def test_what_cannot_be_learned_from_is_refused(halves):
    train, _ = halves
    with pytest.raises(TrainingError, match="no timings"):
        Examples(train.x[:0], train.log_us[:0], train.problem[:0])
    with pytest.raises(TrainingError, match="number of rows"):
        Examples(train.x[1:], train.log_us, train.problem)
    with pytest.raises(TrainingError, match="not finite"):
        Examples(train.x, np.full_like(train.log_us, np.nan), train.problem)
    with pytest.raises(TrainingError, match="not together"):
        Examples(train.x, train.log_us, np.arange(len(train.problem)) % 7)


def test_the_ranking_loss_is_none_for_the_truth(halves):
    train, _ = halves
    assert ranking_loss(train, train.log_us, 0.1) == pytest.approx(0, abs=1e-9)
    assert ranking_loss(train, train.log_us + 1, 0.1) == pytest.approx(0, abs=1e-4)
    assert ranking_loss(train, -train.log_us, 0.1) > 1


def test_what_is_near_the_best_counts_more(halves):
    """Few and shallow trees cannot fit all: with `focus` they fit the fast candidates better."""
    train, held_out = halves
    near = train.gap < 0.1

    def error(focus: float) -> float:
        s = replace(TREES, rounds=8, max_depth=3, focus=focus)
        wrong = fit_trees(train, held_out, s).predict(train.x) - train.log_us
        return float(np.sqrt(np.mean(wrong[near] ** 2)))

    assert error(30.0) < 0.9 * error(0.0)
