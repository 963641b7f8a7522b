from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure
from diode_engine.validation.calibration import BINS, calibration
from diode_engine.validation.metrics import noise

RNG = np.random.default_rng(4)


def judged(sure: np.ndarray, true: np.ndarray) -> tuple[list[tuple[float, float]], np.ndarray]:
    """What a model that says `sure` of its first choice says, and efficiencies that are within
    5 % with the probability `true`; of the first two choices one always is."""
    first = np.where(RNG.random(len(sure)) < true, 0.99, 0.5)
    reaches = [(float(p), 0.97) for p in sure]
    return reaches, np.stack([first, np.ones(len(sure))])


def test_the_error_of_what_is_so_is_that_of_chance() -> None:
    sure = RNG.uniform(0.3, 1, 4000)
    found = calibration(*judged(sure, sure))
    assert found.error < 2 * found.chance
    assert 0.01 < found.chance < 0.03
    assert len(found.bins) == BINS
    assert sum(b.problems for b in found.bins) == found.problems == 4000
    confidence = [b.confidence for b in found.bins]
    assert confidence == sorted(confidence)


def test_the_error_is_how_far_it_is_off() -> None:
    sure = RNG.uniform(0.7, 1, 4000)
    found = calibration(*judged(sure, sure - 0.2))
    assert found.error == pytest.approx(0.2, abs=0.02)


def test_the_surest_are_those_it_says() -> None:
    sure = np.where(np.arange(1000) < 800, 0.99, 0.2)
    found = calibration(*judged(sure, sure > 0.5))
    assert found.surest[0.8].problems == 800
    assert found.surest[0.8].geomean == pytest.approx(0.99)
    assert found.surest[0.9].geomean < 0.99


def test_as_many_as_it_takes() -> None:
    sure = np.where(np.arange(1000) < 800, 0.99, 0.2)
    found = calibration(*judged(sure, sure > 0.5))
    for asked in (0.9, 0.95):
        assert found.adaptive[asked].timed == pytest.approx(1.2)
        assert found.adaptive[asked].reached == 1
    some = calibration([(0.5, 0.6)], np.array([[0.5], [0.9]]))
    assert some.adaptive[0.9].timed == 2  # never sure enough: as many as it can judge
    assert some.adaptive[0.9].reached == 0


def test_noise_is_between_timings_of_the_same(
    table: Callable[..., TimingTable], problem: Problem
) -> None:
    a, b = Candidate("aten::mm"), Candidate("triton::mm")
    made = table(
        (problem, a, 10.0), (problem, b, 10.0), (problem, a, 12.0),
        (replace(problem, M=8), a, 90.0), (problem, b, Failure.CRASH),
    )  # fmt: skip
    found = noise(made)
    assert (found.repeats, found.spread) == (1, None)
    assert found.median == pytest.approx(0.2)
    known = replace(made, spread_us=np.array([1.0, 2.0, 1.2, np.nan, np.nan]))
    assert noise(known).spread == pytest.approx(0.1)
    once = noise(made.take(made.problem == 1))
    assert (once.repeats, once.median, once.p90) == (0, None, None)
