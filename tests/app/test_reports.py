"""What screens show of validation reports, against the reports themselves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from diode_app.data.reports import (
    PERCENT,
    NoReportError,
    Other,
    curves,
    group_rows,
    kinds,
    report_of,
    report_view,
)
from diode_app.screens.validate import headline
from diode_app.text import drop_usual_note
from diode_engine.runs.process import current_process
from diode_engine.validation.choosers import ATEN, DEFAULT
from diode_engine.validation.cross_validation import CrossValidation
from tests.app.judged import judge

pytestmark = pytest.mark.usefixtures("nothing_shipped")


def test_figures_and_groups_are_those_of_the_report(timed, model):
    run, report = judge(timed, model)
    view = report_view(timed, None, None, None)
    assert (view.report.run, view.against.name, view.why) == (run, DEFAULT, None)
    figures = {row.key: row.record for row in view.figures}
    assert set(figures) == {row.chooser for row in report.choosers}
    for row in report.choosers:
        first = row.top[1]
        shown = figures[row.chooser]
        assert (shown["problems"], shown["timed"]) == (first.problems, row.timed)
        for name in ("geomean", "p10", "worst"):
            assert shown[name] == pytest.approx(getattr(first, name))
    groups = {(row.record["kind"], row.record["group"]): row.record for row in view.groups}
    for kind, found in report.choosers[0].groups.items():
        for name, summary in found.items():
            shown = groups["transformer" if kind == "model" else kind, name]
            assert (shown["problems"], shown["ours"]) == (
                summary.problems, pytest.approx(summary.geomean),
            )  # fmt: skip
    everything = groups["all", "all problems"]
    better = sum(c.efficiency[1] > 1.01 * c.others[DEFAULT] for c in report.cases)
    assert everything["better"] == better
    assert everything["theirs"] == pytest.approx(report.row(DEFAULT).top[1].geomean)
    assert report_view(timed, None, None, view).cases is view.cases  # not read again


def test_who_is_better_and_who_is_near_the_best(timed, model):
    """By more than 1 %, and within 5 %; ATen counts where another chooser says nothing."""
    run, _ = judge(timed, model)
    report = report_of(timed, run)
    pairs = ((0.905, 0.9), (0.96, 0.9), (0.7, 0.9), (0.9, None))
    cases = tuple(
        dataclasses.replace(
            case, efficiency={1: ours},
            others={ATEN: 0.5} if theirs is None else {ATEN: 0.5, DEFAULT: theirs},
        )
        for case, (ours, theirs) in zip(report.cases, pairs, strict=False)
    )  # fmt: skip
    whole = dataclasses.replace(report.parts[""], cases=cases)
    report = dataclasses.replace(report, parts={"": whole})
    row = group_rows(report, Other(DEFAULT, report.efficiency_of(DEFAULT)))[0].record
    assert (row["problems"], row["better"], row["worse"]) == (4, 2, 1)
    assert row["within"] == 0.25
    assert row["theirs"] == pytest.approx((0.9**3 * 0.5) ** 0.25)


def test_the_headline_compares_on_the_problems_of_both(timed, model):
    """Of another report that has judged half of the problems."""
    _, report = judge(timed, model)
    half = dataclasses.replace(report, cases=report.cases[::2])
    other = timed.start_run("validate", {}, process=current_process())
    timed.set_result(other, half.to_dict())
    view = report_view(timed, 2, other, None)
    ours = np.exp(np.mean([np.log(case.efficiency[1]) for case in half.cases]))
    says = headline(view).plain
    assert f"reach {ours:.3f} of the best; plain@1 (run {other}) {ours:.3f}" in says
    assert f"on the {len(half.cases)} problems of both" in says


def test_the_usual_note_of_a_model_is_not_repeated_with_another_count():
    usual = "The metrics are on 3,154 problems that this model has not seen."
    assert drop_usual_note(f"gemm@11 says: {usual}") == ""
    assert drop_usual_note(f"{usual} Made by hand.") == "Made by hand."


def test_curves_tell_the_share_within(timed, model):
    _, report = judge(timed, model)
    view = report_view(timed, None, ATEN, None)
    by_chooser = curves(view.report, view.against, "chooser")
    assert list(by_chooser)[:2] == ["plain@1", ATEN]
    ours = by_chooser["plain@1"]
    within = sum(case.efficiency[1] * 1.05 >= 1 for case in report.cases)
    assert ours[PERCENT.index(5.0)] == pytest.approx(100 * within / len(report.cases))
    assert ours == sorted(ours)
    assert kinds(view.report) == ("chooser", "op", "dtype", "M", "layout")
    bands = list(curves(view.report, view.against, "M"))
    assert bands[0].startswith("M ≤ 16 (")
    assert sum(int(name.split("(")[1][:-1]) for name in bands) == len(report.cases)


def test_a_cross_validation_is_a_report_by_parts(timed, model):
    _, report = judge(timed, model)
    run = timed.start_run("validate", {}, process=current_process())
    cases = report.cases[: len(report.cases) // 2]
    halves = {"one": dataclasses.replace(report, cases=cases), "two": report}
    crossed = CrossValidation("folds", "trees", halves)
    timed.set_result(run, crossed.to_dict())
    found = report_of(timed, run)
    assert found.whole is None
    assert found.model == "trees, folds"
    ours = found.choosers[found.model]
    assert ours["geomean"] == pytest.approx(crossed.together().geomean)
    assert ours["fifth"] == pytest.approx(crossed.together(5).geomean)
    assert "part" in kinds(found)


def test_a_report_that_cannot_be_read_says_so(timed, model):
    run, report = judge(timed, model)
    timed.set_result(run, {**report.to_dict(), "version": 2})
    with pytest.raises(NoReportError, match="update Diode"):
        report_of(timed, run)
