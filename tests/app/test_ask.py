"""What would it choose?, over models that are registered; by keys."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from textual.widgets import Select

from diode_app.data.choice import SURE, Question, answer, why
from diode_app.data.hardware import LocalHardware
from diode_app.data.predictors import all_models
from diode_app.links import Link
from diode_app.widgets.page_grid import PageGrid
from diode_engine import paths
from diode_engine.choosing.choice import Why as Reason
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.errors import DiodeError
from diode_engine.models.predictor import SHORTLIST, Predictor
from diode_engine.problems.spaces import exhaustive_space
from tests.app.registered import register_model
from tests.app.waiting import press, put, running, settled, text_of
from tests.training.conftest import ENVIRONMENT, make_timings

SHIPPED = paths.shipped_dir
MM = "mm 1024 4096 4096 bf16 row/col"
PROBLEM = Problem.make("mm", 512, 4096, 1024, "bfloat16", b_layout="col")


pytestmark = pytest.mark.usefixtures("nothing_shipped")


def _question(models):
    return Question(PROBLEM, models[0], models[1] if len(models) > 1 else None, H200)


# The answer


def test_it_takes_what_the_model_predicts_to_be_fastest_of_what_fits(model):
    found = answer(_question(all_models(H200)))
    candidates = exhaustive_space(PROBLEM)
    launchable = [
        c for c, ok in zip(candidates, fits(PROBLEM, candidates, H200), strict=True) if ok
    ]
    predicted = Predictor.load(model.folder).predict_us(PROBLEM, launchable)
    choice, prediction = found.answers[0].choice, found.prediction
    assert (len(prediction.candidates), prediction.launchable) == (len(candidates), len(launchable))
    assert choice.candidates == (launchable[int(np.nanargmin(predicted))],)
    assert choice.predicted_us == (pytest.approx(np.nanmin(predicted)),)
    shown = [row.record["predicted_us"] for row in found.rows]
    assert shown == sorted(shown)
    assert SHORTLIST <= len(shown) < len(predicted)  # of so many the likely ones
    assert set(shown) <= set(predicted)
    assert (choice.confidence, prediction.count_to_reach(SURE)) == (pytest.approx(0.5), 3)
    library = [us for c, us in zip(launchable, predicted, strict=True) if c.is_extern]
    assert found.aten_us == pytest.approx(min(library))


def test_it_takes_what_a_compile_takes(monkeypatch):
    """Another kernel is predicted to be the fastest, but not by enough."""
    monkeypatch.setattr(paths, "shipped_dir", SHIPPED)
    (shipped,) = (model for model in all_models(H200) if model.reference == "gemm@17")
    problem = Problem.make("mm", 256, 1024, 1024, "bfloat16", b_layout="col")
    found = answer(Question(problem, shipped, None, H200))
    choice = found.answers[0].choice
    assert found.rows[0].record["predicted_us"] < choice.predicted_us[0]
    assert (choice.candidates, choice.why) == ((Candidate.make("aten::mm"),), Reason.LIBRARY)


def test_two_models_are_compared_by_the_first_ones_times(tmp_path, model):
    register_model(tmp_path, "stages", stage=-0.5)  # it wants as many as there are
    found = answer(_question(all_models(H200)))
    first, second = (each.choice.candidates[0] for each in found.answers)
    assert second.config["num_stages"] == 5
    assert first != second
    by_first = {row.key: row.record["predicted_us"] for row in found.rows}
    assert found.other_us == pytest.approx(by_first[second.key])
    taken = {row.record["taken by"]: row.key for row in found.rows if row.record["taken by"]}
    assert taken == {"1": first.key, "2": second.key}


def test_why_compares_with_a_library_s_kernel_and_others_with_the_first(model):
    question = _question(all_models(H200))
    found = answer(question)
    first = why(question, found.ranked, 0)
    assert first.candidate == found.ranked[0]
    assert first.baseline.is_extern is not first.candidate.is_extern
    last = why(question, found.ranked, len(found.ranked) - 1)
    assert last.baseline == found.ranked[0]
    # The model is the estimate of the features: nothing else has a part.
    ((name, factor), *_) = last.difference.factors.items()
    assert name == "roofline"
    ratio = last.difference.candidate_us / last.difference.baseline_us
    assert factor == pytest.approx(ratio, rel=1e-4)
    limits = [us for _, us in last.resources.limits_us]
    assert limits == sorted(limits, reverse=True)


# The screen


async def _type(pilot, problem):
    await put(pilot, pilot.app.screen.query_one("#ask-problem"), problem)


async def test_it_answers_without_a_store_and_follows_the_fields(make_app, model):
    async with running(make_app(), (80, 24), "W") as (app, pilot):
        screen = app.screen
        assert "plain@1 cannot say" in text_of(app)  # addmm
        assert screen._answer.rows == ()
        await _type(pilot, MM)
        assert "plain@1 takes" in text_of(app)
        assert "sure 0.50; 0.91 by timing 3" in text_of(app)
        before = screen._answer.answers[0].choice.predicted_us[0]
        await _type(pilot, "mm 512 4096 4294967296")
        assert "from 1 to 2147483647" in text_of(app)
        assert screen.table.page.total == 0
        await press(pilot, "m", *"mm 65536 4096 4096 bf16 row/col")
        assert screen._answer.question.problem.M == 65536
        assert screen._answer.answers[0].choice.predicted_us[0] > 10 * before
        await press(pilot, "enter", "down")
        assert isinstance(app.focused, PageGrid)


@pytest.mark.parametrize("fails", [False, True])
async def test_an_answer_after_a_mistake_is_not_shown(fails, make_app, model, monkeypatch):
    mistaken = threading.Event()

    def answer_late(question):
        mistaken.wait(10)
        if fails:
            raise DiodeError("too late")
        return answer(question)

    async with running(make_app(), (80, 24), "W") as (app, pilot):
        monkeypatch.setattr("diode_app.screens.ask.answer", answer_late)
        line = app.screen.query_one("#ask-problem")
        line.value = MM
        await pilot.pause()
        line.value = "mm 512"
        await pilot.pause()
        mistaken.set()
        await settled(pilot)
        assert "give M, N and K" in text_of(app)


async def test_without_a_model_it_says_what_to_do(make_app):
    async with running(make_app(), (80, 24), "W") as (app, _pilot):
        assert "There is no model to ask" in text_of(app)
        assert "Asking" not in text_of(app)


async def test_the_cursor_stays_where_it_is_when_the_columns_change(make_app, tmp_path, model):
    stages = register_model(tmp_path, "stages", stage=0.5)
    async with running(make_app(), (160, 50), "W") as (app, pilot):
        screen = app.screen
        await _type(pilot, MM)
        await press(pilot, "down", "down")
        third, explained = screen.table.pointed, screen.query_one("#ranking-reasons").content
        assert third.endswith(screen._answer.rows[2].key)
        await put(pilot, screen.query_one("#ask-other", Select), str(stages.folder))
        assert "2: µs" in text_of(app)
        assert screen.table.pointed == third
        assert screen.query_one("#ranking-reasons").content == explained


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_why_is_beside_the_table_or_in_its_place(make_app, model, size):
    async with running(make_app(), size, "W") as (app, pilot):
        await _type(pilot, MM)
        wide = size[0] == 160
        assert ("makes it faster" in text_of(app)) is wide
        await press(pilot, "w")
        assert "makes it faster" in text_of(app)
        assert ("behind" in text_of(app)) is wide
        await press(pilot, "escape")
        assert "behind" in text_of(app)
        assert "esc" not in text_of(app)  # which would do nothing
        await press(pilot, "m")
        assert "esc List" in text_of(app)


H100 = replace(H200, name="NVIDIA H100", memory_gb_s=3350)


@pytest.mark.parametrize("gpu", [H200, H100], ids=str)
async def test_it_opens_with_the_timings_gpu_and_its_model(make_app, store, tmp_path, here, gpu):
    """Without a GPU here, of two models that are the default of their GPU each."""
    models = {g: register_model(tmp_path, name, hardware=g, default=True)
              for g, name in ((H200, "one"), (H100, "two"))}  # fmt: skip
    other = H100 if gpu == H200 else H200
    for number, hardware, problems in ((1, gpu, 12), (2, other, 3)):
        timings = make_timings(problems, environment=replace(ENVIRONMENT, hardware=hardware))
        store.import_table(timings, key=str(number), spec={})

    here.append(LocalHardware(Hardware("cpu", "a CPU", "x86_64", *[0] * 7), 0, {}))
    async with running(make_app(), (120, 40), "W") as (app, pilot):
        assert app.screen.query_one("#ask-model", Select).value == str(models[gpu].folder)
        assert app.screen._answer.question.hardware == gpu
        # From the page of a problem it takes this problem's GPU, with its model.
        app.open_link(Link("data", filter=f'gpu:"{other.name}" -gpu:"{gpu.name}"'))
        await settled(pilot)
        await press(pilot, "enter")
        while other.name not in text_of(app):
            await press(pilot, "v")
        await press(pilot, "w")
        assert app.screen.query_one("#ask-model", Select).value == str(models[other].folder)
        assert app.screen._answer.question.hardware == other


async def test_its_timings_are_a_key_away(make_app, filled, model):
    async with running(make_app(), (80, 24), "D", "down", "down", "w") as (app, pilot):
        screen = app.screen
        wanted = make_timings(12).problems[2]
        assert screen._answer.question.problem == wanted
        await press(pilot, "d")
        assert "best measured" in text_of(app)
        await press(pilot, "w")
        assert app.screen is screen
        await press(pilot, "D", "down", "w")  # it is there already, with another problem
        assert screen._answer.question.problem == make_timings(12).problems[3]
