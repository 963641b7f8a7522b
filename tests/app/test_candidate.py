"""A candidate's page, and the panels that follow the cursor."""

import json
from dataclasses import replace

import numpy as np
import pytest

from diode_app.data.candidate import candidate_view
from diode_app.screens.candidate import CandidateScreen
from diode_app.screens.run import RunScreen
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, KernelFacts, Timing
from diode_engine.models.predictor import Predictor
from diode_engine.store.query import timings_of
from tests.app.registered import register_model
from tests.app.waiting import press, running, text_of
from tests.samples import tile
from tests.training.conftest import ENVIRONMENT

PROBLEM = Problem.make("mm", 512, 4096, 1024, "bfloat16", b_layout="col")
TILED = tile(64, 64, 32)
LIBRARY = Candidate.make("aten::mm")
ELSEWHERE = replace(ENVIRONMENT, hardware=replace(H200, name="NVIDIA H300", clock_mhz=1000))
KERNEL = KernelFacts(168, 16, 24, 24_576, 900)
TIMES = (
    (TILED, ENVIRONMENT, Timing(min_us=20.0, median_us=21.0, spread_us=0.5, repeats=50)),
    (TILED, ENVIRONMENT, Timing(min_us=22.0, median_us=22.5, repeats=40, kernel=KERNEL)),
    (TILED, ELSEWHERE, Timing(min_us=70.0)),
    (TILED, ENVIRONMENT, Timing(failure=Failure.CRASH)),
    (LIBRARY, ENVIRONMENT, Timing(min_us=25.0)),
)


@pytest.fixture
def filled(store, nothing_shipped):
    """Each timing is of a run of its own."""
    for candidate, environment, timing in TIMES:
        run = store.start_run("collect", {})
        store.add(run, TimingTable.from_records([(PROBLEM, candidate, environment, timing)]))
    return store


def test_every_timing_is_found_with_its_run_and_environment(filled):
    found = timings_of(filled, PROBLEM.key, TILED.key)
    assert [each.run for each in found] == [1, 2, 3, 4]
    assert [each.environment.hardware for each in found] == [H200, H200, ELSEWHERE.hardware, H200]
    kept = [replace(timing, repeats=timing.repeats or 0) for _, _, timing in TIMES[:4]]
    assert [each.timing for each in found] == kept
    assert timings_of(filled, PROBLEM.key, Candidate.make("aten::bmm").key) == []


def test_each_model_and_each_of_its_members_predicts_the_measured_time(filled, tmp_path):
    model = register_model(tmp_path, "plain")
    view = candidate_view(filled, PROBLEM, TILED, H200)
    facts = dict(view.facts)
    # The median of the shortest launches on this GPU.
    assert facts["measured"] == "21.00 µs on NVIDIA H200"
    (row,) = view.predictions
    expected = float(Predictor.load(model.folder).predict_us(PROBLEM, [TILED])[0])
    assert row.record == {"model": "plain@1", "us": pytest.approx(expected),
                          "error": pytest.approx(expected / 21.0 - 1)}  # fmt: skip
    assert facts["compiled"] == "168 registers a thread, 24.0 KiB shared"
    assert facts["spilled"] == "16 B stored, 24 B loaded a thread"
    assert Candidate.from_dict(json.loads(facts["config"])) == TILED
    assert candidate_view(filled, PROBLEM, TILED, H200, asks=False).predictions == ()


def test_the_members_are_those_of_the_model(filled, monkeypatch):
    monkeypatch.undo()  # the shipped models
    view = candidate_view(filled, PROBLEM, TILED, H200)
    names = [row.record["model"] for row in view.predictions]
    first = names.index("gemm@17")
    members = [row.record["us"] for row in view.predictions[first + 1 :][:7]]  # seven teachers
    assert names[first + 1].startswith("  ")
    mean = float(np.exp(np.mean(np.log(members))))
    assert view.predictions[first].record["us"] == pytest.approx(mean, rel=1e-3)


async def test_enter_on_a_candidate_opens_its_page(make_app, filled, tmp_path):
    register_model(tmp_path, "plain")
    async with running(make_app(), (80, 24), "D", "enter", "enter") as (app, pilot):
        assert isinstance(app.screen, CandidateScreen)
        assert "21.00 µs on NVIDIA H200" in text_of(app)
        assert "4 timings" in text_of(app)
        await press(pilot, "2")
        assert "1 prediction" in text_of(app)
        await press(pilot, "c")
        assert Candidate.from_dict(json.loads(app.clipboard)) == TILED
        await press(pilot, "1", "down", "enter")
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run == 2


async def test_the_detail_follows_the_cursor_where_there_is_room(make_app, filled):
    async with running(make_app(), (120, 40), "D", "enter") as (app, pilot):
        assert "168 registers a thread" in text_of(app)
        await press(pilot, "down")
        assert "by the library" in text_of(app)
        assert "168 registers a thread" not in text_of(app)


OTHER = Problem.make("mm", 64, 64, 64, "bfloat16")


async def test_list_preview_and_detail_move_together(make_app, filled):
    run = filled.start_run("collect", {})
    timing = Timing(min_us=3.0, kernel=KERNEL._replace(registers=77))
    filled.add(run, TimingTable.from_records([(OTHER, TILED, ENVIRONMENT, timing)]))
    async with running(make_app(), (120, 40), "D") as (app, pilot):
        screen = app.screen
        assert "168 registers a thread" in text_of(app)
        await press(pilot, "down", "down")  # past the other GPU's row: the other problem
        assert "77 registers a thread" in text_of(app)
        assert "1 fastest candidate" in text_of(app)
        await press(pilot, "up", "up", "tab", "down")
        assert "by the library" in text_of(app)
        await press(pilot, "enter")
        assert isinstance(app.screen, CandidateScreen)
        assert "aten::mm" in text_of(app)
        await press(pilot, "escape")
        assert app.screen is screen
