"""Fits on a Ray cluster: the same as here, and what goes wrong there. Skipped where Ray is not
installed."""

from __future__ import annotations

import os
import signal

import pytest

from diode_engine.errors import TrainingError
from diode_engine.models.fit_trees import TreesSettings
from diode_engine.problems.splits import folds
from diode_engine.training import search as searching
from diode_engine.training.cross_validation import cross_validate
from diode_engine.training.fit import learnable
from diode_engine.training.fits import FitTask, LocalFits
from diode_engine.training.search import search
from diode_engine.training.settings import TrainingSettings
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
    monkeypatch.setattr(LocalFits, "slots", ray_fits.slots)
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
    for fits in (LocalFits(), ray_fits):
        with pytest.raises(TrainingError) as raised:
            list(fits.run([FitTask(few, "trees")], lambda *_: None))
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert "too few" in said[0]


def test_a_process_that_is_lost_costs_nothing(tmp_path, timings, ray_fits, monkeypatch):
    from diode_engine.training import ray_fits as module

    real, died = module.make_fit, tmp_path / "died"

    def deadly(version, board, place, *rest):
        if place == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(version, board, place, *rest)

    monkeypatch.setattr(module, "make_fit", deadly)
    parts = folds(timings, 3)
    tasks = [FitTask(part.learned, "trees", settings=SMALL) for part in parts]
    here, there = (list(f.run(tasks, lambda *_: None)) for f in (LocalFits(), ray_fits))
    assert died.exists()
    fitted = [[members[0].to_bytes() for _, members in each] for each in (here, there)]
    assert fitted[0] == fitted[1]


def test_a_fit_that_is_cancelled_is_ended_on_the_cluster(timings, ray_fits):
    import ray

    def stop(*_):
        raise KeyboardInterrupt

    long = SMALL.but("trees", rounds=100_000)
    with pytest.raises(KeyboardInterrupt):
        list(ray_fits.run([FitTask(timings, "trees", settings=long)], stop))
    free = 0.0
    while free < ray_fits.slots:  # its core is given back
        free = ray.available_resources().get("CPU", 0.0)


def test_other_versions_of_diode_are_refused(timings, ray_fits, monkeypatch):
    from diode_engine.training import ray_fits as module

    monkeypatch.setattr(module, "__version__", "0.0")
    with pytest.raises(TrainingError, match=r"and this is 0\.0: install the same"):
        list(ray_fits.run([FitTask(timings, "trees", settings=SMALL)], lambda *_: None))


def test_a_machine_that_is_lost_does_not_take_the_progress_with_it(
    tmp_path, timings, ray_fits, monkeypatch
):
    """It is kept on the machine of whoever asked, on which all depends anyway."""
    import ray

    from diode_engine.training import ray_fits as module

    class Placed(module.Board):
        def __init__(self):
            super().__init__()
            (tmp_path / ray.get_runtime_context().get_node_id()).touch()

    monkeypatch.setattr(module, "Board", Placed)
    for _ in range(4):  # elsewhere, by chance
        list(ray_fits.run([FitTask(timings, "trees", settings=SMALL)], lambda *_: None))
    (node,) = tmp_path.iterdir()
    assert node.name == ray.get_runtime_context().get_node_id()
