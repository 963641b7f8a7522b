"""Validate: reports on models that are registered, over real timings, as data and by keys."""

import dataclasses

import numpy as np
import pytest
from textual.widgets import Input, OptionList, TabbedContent

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
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.run import RunScreen
from diode_app.screens.validate import headline
from diode_app.screens.validate_new import NewValidationScreen
from diode_app.text import drop_usual_note
from diode_app.widgets.modals import PickOne
from diode_app.widgets.page_grid import PageGrid
from diode_engine.runs.process import current_process
from diode_engine.store import RunState
from diode_engine.validation.choosers import ATEN, DEFAULT
from diode_engine.validation.cross_validation import CrossValidation
from tests.app.judged import judge
from tests.app.registered import register_model
from tests.app.waiting import looked, press, running, settled, text_of
from tests.training.conftest import make_timings

pytestmark = pytest.mark.usefixtures("nothing_shipped")

# What is shown, against the reports themselves


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


# The screen


async def test_without_timings_or_reports_it_says_what_to_do(make_app, store):
    """And no key leads into a table that is not shown."""
    async with running(make_app(), (80, 24), "V") as (app, pilot):
        assert "There is nothing to judge a model on yet" in text_of(app)
        assert "Import timings" in text_of(app)
        assert "n New : Commands" in text_of(app)
        assert "esc" not in text_of(app)
        for key in "awbvhfrlgc":
            await press(pilot, key)
        await press(pilot, "slash", "x")
        assert not any(box.display and box.region for box in app.screen.query("FilterBox"))
        assert getattr(app.focused, "id", None) != "report-cases"
        store.import_table(make_timings(5), key="x", spec={})
        await looked(pilot)
        assert "No model has been judged yet" in text_of(app)


async def test_the_report_and_the_worst_problems_page(make_app, timed, model):
    _, report = judge(timed, model)
    worst = min(report.cases, key=lambda case: case.efficiency[1])
    async with running(make_app(), (160, 50), "V") as (app, pilot):
        shown = text_of(app)
        assert f"plain@1 takes kernels that reach {report.efficiency:.3f} of the best" in shown
        assert "not seen in training" in shown
        await press(pilot, "2")
        assert "max-autotune DEFAULT" in text_of(app)
        for curves_by in ("by op", "by dtype", "M ≤ 16", "by layout"):
            await press(pilot, "v")
            assert curves_by in text_of(app)
        await press(pilot, "4")
        table = app.screen.query_one("#report-cases PageGrid", PageGrid)
        assert table.has_focus
        assert f"{worst.problem.M}×{worst.problem.N}" in table.cells_of(0)["problem"][0]
        await press(pilot, "enter")
        assert isinstance(app.screen, ProblemScreen)
        assert str(worst.problem) in text_of(app)
        await press(pilot, "escape")
        await pilot.press("3", "down", "down", "enter")  # past "all problems" and the op
        await settled(pilot)
        assert "only dtype bfloat16" in text_of(app)
        await press(pilot, "escape")
        assert "only dtype" not in text_of(app)
        await press(pilot, "5")
        assert f"expected calibration error {report.calibration.error:.3f}" in text_of(app)
        await press(pilot, "u")
        assert isinstance(app.screen, RunScreen)


async def test_a_model_is_compared_with_anothers_report(make_app, timed, model, tmp_path):
    first, of_plain = judge(timed, model)
    _, of_other = judge(timed, register_model(tmp_path, "stages", stage=-0.5))
    async with running(make_app(), (160, 50), "V") as (app, pilot):
        assert "stages@1 takes" in text_of(app)  # the last one
        await press(pilot, "a")
        assert isinstance(app.screen, PickOne)
        options = app.screen.query_one(OptionList)
        options.highlighted = options.option_count - 1
        await press(pilot, "enter")
        assert app.screen.query_one(TabbedContent).active == "tab-figures"
        assert f"plain@1 (run {first})" in text_of(app)
        await press(pilot, "3")
        row = app.screen.query_one("#report-groups PageGrid", PageGrid).cells_of(0)
        assert row["ours"][0] == f"{of_other.efficiency:.3f}"
        assert row["theirs"][0] == f"{of_plain.efficiency:.3f}"
        for key, shown in (("down", "plain@1 takes"), ("up", "stages@1 takes")):
            await press(pilot, "r")
            await pilot.press(key, "enter")
            await settled(pilot)
            assert shown in text_of(app)


async def test_a_problem_that_is_gone_from_the_store_is_told(make_app, timed, model):
    run, report = judge(timed, model)
    document = report.to_dict()
    for case in document["cases"]:
        case["problem"]["N"] += 1
    timed.set_result(run, document)
    async with running(make_app(), (120, 40), "V", "4", "enter") as (app, _pilot):
        assert "has no timings of" in text_of(app)


async def test_what_became_of_the_last_validation_is_told(make_app, timed, model):
    judge(timed, model)
    run = timed.start_run("validate", {"model": "better@7"}, process=current_process())
    async with running(make_app(), (120, 30), "V") as (app, pilot):
        assert f"▶ running · run {run} on better@7" in text_of(app)
        assert "plain@1 takes" in text_of(app)
        timed.finish_run(run, RunState.FAILED, "There is no model better@7.")
        await looked(pilot)
        assert f"✗ failed · run {run} on better@7: There is no model better@7." in text_of(app)


async def test_the_form_of_a_validation_tells_a_mistake_and_its_command(make_app, timed, model):
    async with running(make_app(), (120, 40), "V", "n") as (app, pilot):
        assert isinstance(app.screen, NewValidationScreen)
        assert "60 problems with timings." in text_of(app)
        only = app.screen.query_one("#field-query Input", Input)
        only.value = "wings:2"
        await press(pilot, "ctrl+g")
        assert isinstance(app.screen, NewValidationScreen)
        assert only.has_focus
        assert "There is no field wings" in text_of(app)
        only.value = "op:mm"
        await press(pilot, "escape")
        command = dict(app.screen.headless_commands())["Start"]
        assert command.startswith("diode-engine validate --query=op:mm --store=")
