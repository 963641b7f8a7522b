"""Fits on a Ray cluster: the same as here, and what goes wrong there. Skipped where Ray is not
installed."""

from __future__ import annotations

import os
import signal

import pytest

from diode_engine.errors import TrainingError
from diode_engine.models.fit_trees import TreesSettings
from diode_engine.problems.splits import folds
from diode_engine.training import fit_steps
from diode_engine.training import search as searching
from diode_engine.training.cross_validation import cross_validate
from diode_engine.training.fit_jobs import FitMember
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import FitExecutor
from diode_engine.training.search import search
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import learnable
from tests.training.conftest import make_timings

SMALL = TrainingSettings(
    {"trees": TreesSettings(rounds=20, learning_rate=0.2, max_depth=4, threads=1)}
)


@pytest.fixture(scope="module")
def timings():
    return learnable(make_timings(60))


@pytest.fixture
def ray_fits(two_machines):
    from diode_engine.training.ray_fits import RayFits

    with RayFits(two_machines.address) as fits:
        yield fits


def test_a_cross_validation_is_that_of_this_machine(timings, ray_fits):
    steps, found = {}, {}
    for name, fits in (("here", None), ("ray", ray_fits)):
        steps[name] = set()
        found[name] = cross_validate(
            timings, "folds", family="trees", settings=SMALL, fits=fits,
            report=lambda member, _, name=name: steps[name].add(member),
        ).to_dict()  # fmt: skip
    assert found["ray"] == found["here"]
    assert steps["ray"] == steps["here"]  # the last step of each fit is told at least


def test_a_search_tries_what_it_tries_here(tmp_path, timings, ray_fits, monkeypatch):
    monkeypatch.setattr(searching, "MAX_TOGETHER", 2)
    monkeypatch.setattr(FitExecutor, "slots", ray_fits.slots)
    assert ray_fits.slots > 1
    told, best = {}, {}
    for name, fits in (("here", None), ("ray", ray_fits)):
        told[name] = []
        best[name] = search(
            timings, "trees", 5, tmp_path / f"{name}.db", settings=SMALL, fits=fits,
            told=told[name].append,
        )  # fmt: skip
    assert [trial.number for trial in told["ray"]] == [1, 2, 3, 4, 5]
    assert told["ray"] == told["here"]
    assert best["ray"] == best["here"]


def test_what_cannot_be_fitted_is_the_same_sentence(timings, ray_fits):
    few = timings.take(timings.problem < 4)
    said = []
    for fits in (FitExecutor(), ray_fits):
        with pytest.raises(TrainingError) as raised:
            fits.fit_all([FitTask(few, "trees")], lambda *_: None)
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert "too few" in said[0]


def test_a_process_that_is_lost_costs_nothing(tmp_path, timings, ray_fits, monkeypatch):
    died = tmp_path / "died"

    class Deadly(FitMember):
        def __call__(self, report):
            if not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(report)

    tasks = [FitTask(part.learned, "trees", settings=SMALL) for part in folds(timings, 3)]
    here = FitExecutor().fit_all(tasks, lambda *_: None)
    monkeypatch.setattr(fit_steps, "FitMember", Deadly)
    there = ray_fits.fit_all(tasks, lambda *_: None)
    assert died.exists()
    assert [m.to_bytes() for (m,) in there] == [m.to_bytes() for (m,) in here]


def test_a_fit_that_is_cancelled_is_ended_on_the_cluster(timings, ray_fits):
    import ray

    def stop(*_):
        raise KeyboardInterrupt

    long = SMALL.but("trees", rounds=100_000)
    with pytest.raises(KeyboardInterrupt):
        ray_fits.fit_all([FitTask(timings, "trees", settings=long)], stop)
    free = 0.0
    while free < ray_fits.slots:  # its core is given back
        free = ray.available_resources().get("CPU", 0.0)


def test_other_versions_of_diode_are_refused(timings, ray_fits, monkeypatch):
    monkeypatch.setattr("diode_engine.training.ray_fits.__version__", "0.0")
    with pytest.raises(TrainingError, match=r"and this is 0\.0: install the same"):
        ray_fits.fit_all([FitTask(timings, "trees", settings=SMALL)], lambda *_: None)


def test_the_reports_are_kept_on_this_machine(timings, ray_fits, monkeypatch):
    """A machine that is lost does not take the progress with it."""
    import ray
    from ray.util import queue

    made = []

    class Recorded(queue.Queue):
        def __init__(self, **options):
            made.append(options["actor_options"]["scheduling_strategy"].node_id)
            super().__init__(**options)

    monkeypatch.setattr(queue, "Queue", Recorded)
    ray_fits.fit_all([FitTask(timings, "trees", settings=SMALL)], lambda *_: None)
    assert made == [ray.get_runtime_context().get_node_id()]
