from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from diode_engine.errors import TrainingError
from diode_engine.problem import Candidate, Failure, Problem
from diode_engine.table import TimingTable
from diode_engine.validation import ATEN, DEFAULT, MEDIAN, NV_HEURISTICS, ROOFLINE, evaluate

Table = Callable[..., TimingTable]
Tile = Callable[..., Candidate]


@pytest.fixture
def timings(table: Table, problem: Problem, tile: Tile) -> TimingTable:
    """Two problems: on one ATen is best and on the other a Triton kernel."""
    wide = replace(problem, M=16)
    fast, slow = tile(128, 128, 64, 3, 4), tile(64, 64, 32, 2, 4)
    aten = Candidate("aten::mm")
    return table(
        (problem, aten, 10.0),
        (problem, fast, 20.0),
        (problem, slow, 40.0),
        (wide, aten, 8.0),
        (wide, fast, Failure.TIMEOUT),
        (wide, slow, 4.0),
    )


def test_report_compares_on_the_same_problems(timings: TimingTable) -> None:
    # right on the first problem, on the second a kernel that failed
    predicted = np.array([10.0, 20.0, 40.0, 8.0, 2.0, 4.0])
    report = evaluate(timings, predicted, name="mine@3")
    assert (report.problems, report.candidates, report.left_out) == (2, 6, 0)
    mine = report.rows[0]
    assert mine.chooser == "mine@3"
    assert mine.top[1].geomean == report.efficiency == pytest.approx(0.1)  # √(1 · floor)
    assert mine.top[1].worst == 0
    assert mine.top[3].geomean == 1
    assert mine.groups["M"]["M > 512"].geomean == 1
    assert report.row(ATEN) is not None
    assert report.row(ATEN).top[1].geomean == pytest.approx(np.sqrt(0.5))  # type: ignore[union-attr]
    assert report.row(ATEN).top.keys() == {1}  # type: ignore[union-attr]
    # on M = 16 the tiles are fitted to it: none of the two is DEFAULT there
    assert report.row(DEFAULT).top[1].geomean == pytest.approx(np.sqrt(0.5))  # type: ignore[union-attr]
    assert {row.chooser for row in report.rows[1:]} >= {ATEN, DEFAULT, ROOFLINE, MEDIAN}
    assert report.errors is not None
    assert report.errors.rmse_log == 0
    (worst,) = report.worst
    assert (worst.problem.M, worst.chosen_us, worst.chosen_predicted_us) == (16, None, 2.0)
    assert (worst.best_us, worst.best_predicted_us) == (4.0, 4.0)


def test_report_of_a_predictor_equals_that_of_its_predictions(timings: TimingTable) -> None:
    class Constant:
        def predict_table(self, table: TimingTable) -> np.ndarray:
            return np.full(len(table), 7.0)

    assert evaluate(timings, Constant()) == evaluate(timings, np.full(len(timings), 7.0))


def test_the_order_of_the_rows_does_not_matter(timings: TimingTable) -> None:
    predicted = np.array([10.0, 20.0, 40.0, 8.0, 2.0, 4.0])
    order = np.array([4, 0, 5, 2, 1, 3])
    assert evaluate(timings.take(order), predicted[order]) == evaluate(timings, predicted)


def test_aten_stands_in_where_the_model_cannot_say(timings: TimingTable) -> None:
    predicted = np.array([np.nan, np.nan, np.nan, 8.0, np.nan, 4.0])
    report = evaluate(timings, predicted)
    assert report.rows[0].answered == 1
    assert report.rows[0].top[1].problems == 2
    assert report.efficiency == 1  # ATen is best on the first
    assert "1 of the problems" in report.notes[0]


def test_a_model_that_can_say_nothing(timings: TimingTable) -> None:
    with pytest.raises(TrainingError, match="say nothing"):
        evaluate(timings, np.full(6, np.nan))
    with pytest.raises(TrainingError, match="one prediction for each"):
        evaluate(timings, np.ones(5))


def test_text_and_json(timings: TimingTable) -> None:
    pytest.importorskip("nvMatmulHeuristics")
    report = evaluate(timings, np.array([10.0, 20.0, 40.0, 8.0, 2.0, 4.0]), name="mine@3")
    text = report.render()
    for expected in ("mine@3", ATEN, DEFAULT, NV_HEURISTICS, "M ≤ 16", "failed", "geomean"):
        assert expected in text
    assert all(line == line.rstrip() for line in text.splitlines())
    written = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert written["choosers"][0]["top"]["3"]["geomean"] == 1
    assert written["worst"][0]["chosen"]["us"] is None
    assert written["errors"]["timings"] == 5
