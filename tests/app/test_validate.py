"""Validate: reports on models that are registered, over real timings, by keys."""

import pytest
from textual.widgets import Input, OptionList, TabbedContent

from diode_app.screens.problem import ProblemScreen
from diode_app.screens.run import RunScreen
from diode_app.screens.validate_new import NewValidationScreen
from diode_app.widgets.modals import PickOne
from diode_app.widgets.page_grid import PageGrid
from diode_engine.runs.process import current_process
from diode_engine.store import RunState
from tests.app.judged import judge
from tests.app.registered import register_model
from tests.app.waiting import looked, press, running, settled, text_of
from tests.training.conftest import make_timings

pytestmark = pytest.mark.usefixtures("nothing_shipped")


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


async def test_curves_go_round(make_app, timed, model):
    judge(timed, model)
    async with running(make_app(), (120, 40), "V") as (app, pilot):
        await press(pilot, "2")
        assert "max-autotune DEFAULT" in text_of(app)
        for expected in ("by op", "by dtype", "M ≤ 16", "by layout"):
            await press(pilot, "v")
            assert expected in text_of(app)


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
