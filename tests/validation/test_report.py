from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure
from diode_engine.errors import ReportError, TrainingError
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.validation import (
    ATEN,
    DEFAULT,
    MEDIAN,
    NV_HEURISTICS,
    ROOFLINE,
    Report,
    evaluate,
    read_report,
    render,
)
from diode_engine.validation.cross_validation import CrossValidation
from tests.samples import tile


@pytest.fixture
def timings(table, problem):
    """Two problems: on one ATen is best and on the other a Triton kernel."""
    wide = replace(problem, M=16)
    fast, slow = tile(128, 128, 64, 3, 4), tile(64, 64, 32, 2, 4)
    aten = Candidate("aten::mm")
    return table(
        (problem, aten, 10.0), (problem, fast, 20.0), (problem, slow, 40.0),
        (wide, aten, 8.0), (wide, fast, Failure.TIMEOUT), (wide, slow, 4.0),
    )  # fmt: skip


def test_report_compares_on_the_same_problems(timings):
    # right on the first problem, on the second a kernel that failed
    predicted = np.array([10.0, 20.0, 40.0, 8.0, 2.0, 4.0])
    report = evaluate(timings, Predicted(timings, predicted), name="mine@3")
    assert (report.problems, report.candidates, report.left_out) == (2, 6, 0)
    mine = report.choosers[0]
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
    assert {row.chooser for row in report.choosers[1:]} >= {ATEN, DEFAULT, ROOFLINE, MEDIAN}
    assert report.errors.rmse_log == 0
    (worst,) = report.worst(5)
    assert report.worst(0) == []
    assert (worst.problem.M, worst.chosen.us, worst.chosen.predicted_us) == (16, None, 2.0)
    assert (worst.best.us, worst.best.predicted_us) == (4.0, 4.0)


class Fixed:
    """Predicts the same time for every candidate but `best`, and is as sure as it is told."""

    def __init__(
        self, best: Candidate | None = None, reaches: tuple[float, ...] | None = None
    ) -> None:
        self.best = best
        self.reaches = reaches

    def us(self, candidate: Candidate) -> float:
        return 1.0 if candidate == self.best else 7.0

    def predict_table(self, table: TimingTable) -> np.ndarray:
        return np.array([self.us(table.candidates[i]) for i in table.candidate])

    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        us = np.array([self.us(candidate) for candidate in candidates])
        return Prediction(problem, candidates, us, self.reaches)


class Predicted:
    """Predicts these microseconds for the table's rows."""

    def __init__(self, table: TimingTable, us: Iterable[float]) -> None:
        self.us = dict(zip(self._pairs(table), us, strict=True))

    def predict_table(self, table: TimingTable) -> np.ndarray:
        return np.array([self.us[pair] for pair in self._pairs(table)])

    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        us = np.array([self.us.get((problem, each), np.nan) for each in candidates])
        return Prediction(problem, candidates, us)

    @staticmethod
    def _pairs(table: TimingTable) -> list[tuple[Problem, Candidate]]:
        places = zip(table.problem, table.candidate, strict=True)
        return [(table.problems[p], table.candidates[c]) for p, c in places]


def test_choices_that_were_not_measured_are_counted(timings, problem):
    measured = evaluate(timings, Fixed(Candidate("aten::mm")))
    assert measured.unmeasured == 0
    # offered on both problems and timed on none
    other = evaluate(timings, Fixed(tile(16, 32, 32, 3, 2)))
    assert other.unmeasured == 2
    assert other.cases[0].compiled.candidate == tile(16, 32, 32, 3, 2)
    assert "2 of 2 choices would be kernels that were not measured" in render(other)


def test_at_compile_time_nothing_is_taken_that_cannot_fit(timings):
    huge = tile(256, 128, 256, 5, 8)
    assert huge in exhaustive_space(timings.problems[0])
    report = evaluate(timings, Fixed(huge))
    assert huge not in [case.compiled.candidate for case in report.cases]


def test_where_the_model_cannot_say_it_takes_nothing_at_compile_time(timings):
    class Half(Fixed):
        """Can say something of wide problems."""

        def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
            if problem.M > 16:
                return super().predict(problem, candidates)
            return Prediction(problem, candidates, np.full(len(candidates), np.nan))

        def predict_table(self, table: TimingTable) -> np.ndarray:
            known = np.array([table.problems[i].M > 16 for i in table.problem])
            return np.where(known, super().predict_table(table), np.nan)

    report = evaluate(timings, Half(Candidate("aten::mm"), (0.7,) * 10))
    compiled = {case.problem.M: case.compiled for case in report.cases}
    assert compiled[16] is None
    assert compiled[1024].candidate == Candidate("aten::mm")
    assert report.unmeasured == 0
    assert report.calibration.problems == 1


def test_how_sure_it_is_goes_into_the_report(timings):
    reaches = (0.7, *[0.95] * 9)
    report = evaluate(timings, Fixed(Candidate("aten::mm"), reaches))
    assert [case.confidence for case in report.cases] == [0.7, 0.7]
    assert report.calibration.problems == 2
    # right on one of two
    assert report.calibration.error == pytest.approx(0.5)
    assert report.calibration.adaptive[0.9].timed == 2
    assert "expected calibration error" in render(report)
    assert evaluate(timings, Fixed()).calibration is None


def test_speed_is_against_default(timings):
    # half as fast as DEFAULT's best, ATen, on the first problem, and the same on the second
    predicted = [10.0, 5.0, 40.0, 1.0, 2.0, 4.0]
    report = evaluate(timings, Predicted(timings, predicted))
    assert report.choosers[0].speed == pytest.approx(np.sqrt(0.5))
    assert report.row(DEFAULT).speed == pytest.approx(1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("unseen", "said"),
    [(True, "has not seen"), (False, "has seen in training"), (None, "it is not known")],
)
def test_it_says_whether_the_problems_were_seen(timings, unseen, said):
    report = evaluate(timings, Fixed(), unseen=unseen)
    assert said in render(report).splitlines()[0]
    assert report.to_dict()["unseen"] is unseen


def test_the_order_of_the_rows_does_not_matter(timings):
    predicted = np.array([10.0, 20.0, 40.0, 8.0, 2.0, 4.0])
    order = np.array([4, 0, 5, 2, 1, 3])
    asked = Predicted(timings, predicted)
    assert evaluate(timings.take(order), asked) == evaluate(timings, asked)


def test_aten_stands_in_where_the_model_cannot_say(timings):
    predicted = np.array([np.nan, np.nan, np.nan, 8.0, np.nan, 4.0])
    report = evaluate(timings, Predicted(timings, predicted))
    assert report.choosers[0].answered == 1
    assert report.choosers[0].top[1].problems == 2
    assert report.efficiency == 1  # ATen is best on the first
    assert "1 of the problems" in report.notes[0]
    unanswered = next(case for case in report.cases if case.problem.M == 1024)
    assert unanswered.chosen is None
    assert unanswered.efficiency == dict.fromkeys((1, 3, 5, 10), 1.0)


def test_a_model_that_can_say_nothing(timings):
    with pytest.raises(TrainingError, match="has no prediction"):
        evaluate(timings, Predicted(timings, [np.nan] * 6))


def test_text_and_json(timings):
    pytest.importorskip("nvMatmulHeuristics")
    predicted = [10.0, 20.0, 40.0, 8.0, 2.0, 4.0]
    report = evaluate(timings, Predicted(timings, predicted), name="mine@3")
    text = render(report)
    for expected in ("mine@3", ATEN, DEFAULT, NV_HEURISTICS, "M ≤ 16", "failed", "geomean"):
        assert expected in text
    assert all(line == line.rstrip() for line in text.splitlines())
    written = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (written["format"], written["version"]) == ("diode-validation", 1)
    assert written["choosers"][0]["top"]["3"]["geomean"] == 1
    assert written["errors"]["timings"] == 5
    cases = {case["problem"]["M"]: case for case in written["cases"]}
    assert cases[16]["chosen"]["us"] is None
    assert cases[16]["best"]["us"] == 4
    assert cases[16]["efficiency"] == {"1": 0, "3": 1, "5": 1, "10": 1}
    assert cases[16]["others"][ATEN] == 0.5
    assert cases[16]["key"] == Problem.from_dict(cases[16]["problem"]).key
    where = written["environments"][cases[16]["environment"]]
    assert Environment.from_dict(where) == timings.environments[0]


def test_a_figure_is_drawn(timings, tmp_path):
    pytest.importorskip("matplotlib")
    from diode_engine.validation.figure import draw

    sure = evaluate(timings, Fixed(Candidate("aten::mm"), (0.7, *[0.95] * 9)), name="mine@3")
    plain = evaluate(timings, Fixed(), name="mine@3")
    for report in (sure, plain):
        drawn = []
        for name in ("a.svg", "b.svg"):
            draw(report, tmp_path / name)
            drawn.append((tmp_path / name).read_bytes())
        assert drawn[0] == drawn[1]
        for expected in ("mine@3", ATEN, "M ≤ 16", "efficiency"):
            assert expected in drawn[0].decode()
    draw(plain, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(TrainingError, match=r"\.svg"):
        draw(plain, tmp_path / "a.jpeg2")
    with pytest.raises(TrainingError, match="no folder"):
        draw(plain, tmp_path / "nowhere" / "a.svg")


def written(report: Report | CrossValidation) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    return document


def test_what_is_written_is_read_again(timings):
    known = evaluate(timings, Predicted(timings, timings.min_us), name="mine", unseen=True)
    asked = evaluate(timings, Fixed(Candidate("aten::mm"), (0.7,) * 10), name="sure")
    for report in (known, asked):
        again = read_report(written(report))
        assert isinstance(again, Report)
        assert written(again) == written(report)
        assert render(again) == render(report)
        assert again.unmeasured == report.unmeasured
        assert [case.identity for case in again.cases] == [case.identity for case in report.cases]
    crossed = CrossValidation("folds", "trees", {"one": known, "two": asked})
    parts = read_report(written(crossed))
    assert isinstance(parts, CrossValidation)
    assert written(parts) == written(crossed)
    assert parts.render() == crossed.render()


@pytest.fixture
def document(timings):
    return written(evaluate(timings, Predicted(timings, timings.min_us), name="mine"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "is of version 2, this Diode reads up to 1; update Diode"),
        ({"version": True}, "not a report of a validation"),
        ({"format": "diode-model"}, "not a report of a validation"),
        ({"choosers": []}, "not as Diode writes it"),
        ({"cases": [{}]}, "not as Diode writes it"),
        ({"noise": 3}, "must be an object"),
        ({"errors": {"timings": "much"}}, "must be a whole number"),
    ],
)
def test_what_is_no_report_is_a_sentence(document, change, says):
    with pytest.raises(ReportError, match=says):
        read_report({**document, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"confidence": "x"},
        {"others": {"ATen": "x"}},
        {"efficiency": {"1": -1}},
        {"chosen": {"template": "aten::mm", "kwargs": {}, "us": [], "predicted_us": 1}},
        {"best": {"template": "aten::mm", "kwargs": {}, "us": None, "predicted_us": 1}},
        {"compiled": {"template": "aten::mm", "kwargs": {}, "measured": "x", "confidence": None}},
    ],
)
def test_a_case_that_is_none_is_a_sentence(document, change):
    document["cases"][0] |= change
    with pytest.raises(ReportError, match="not as Diode writes it"):
        read_report(document)


@pytest.mark.parametrize(
    ("where", "k"),
    [("efficiency", "1"), ("efficiency", "5"), ("top of the model", "10"), ("top of another", "1")],
)
def test_what_a_report_always_has_must_be_there(document, where, k):
    ours, *_, other = document["choosers"]
    tables = {
        "efficiency": document["cases"][0]["efficiency"],
        "top of the model": ours["top"],
        "top of another": other["top"],
    }
    del tables[where][k]
    with pytest.raises(ReportError, match=f"not as Diode writes it .*first {k} "):
        read_report(document)
