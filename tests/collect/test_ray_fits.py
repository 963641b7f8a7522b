"""Fits on a Ray cluster: the same as here, and what goes wrong there. Skipped where Ray is not
installed."""

import json
import os
import signal
from functools import partial

import pytest

from diode_engine.cli import main
from diode_engine.errors import TrainingError
from diode_engine.models.fit_trees import TreesSettings
from diode_engine.problems.splits import folds
from diode_engine.store import Store
from diode_engine.training import cross_validation, fit_steps
from diode_engine.training import search as searching
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.cross_validation import cross_validate
from diode_engine.training.fit_jobs import FitMember
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import FitExecutor
from diode_engine.training.search import search
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.trainable_rows import learnable
from tests.training.conftest import make_timings, one_thread, train_in
from tests.training.test_process_fits import SMALL as OF_ALL_TYPES

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
    for name, fits in (("here", FitExecutor()), ("ray", ray_fits)):
        steps[name] = set()
        found[name] = cross_validate(
            timings, "folds", family="trees", settings=SMALL, fits=fits,
            report=lambda label, _, name=name: steps[name].add(label),
        ).to_dict()  # fmt: skip
    assert found["ray"] == found["here"]
    assert steps["ray"] == steps["here"]  # the last step of each fit is told at least


def test_a_search_tries_what_it_tries_here(tmp_path, timings, ray_fits, monkeypatch):
    monkeypatch.setattr(searching, "MAX_TOGETHER", 2)
    monkeypatch.setattr(FitExecutor, "slots", ray_fits.slots)
    assert ray_fits.slots > 1
    told, best = {}, {}
    for name, fits in (("here", FitExecutor()), ("ray", ray_fits)):
        told[name] = []
        best[name] = search(
            timings, "trees", 5, tmp_path / f"{name}.db", settings=SMALL, fits=fits,
            report_trial=told[name].append,
        )  # fmt: skip
    assert [trial.number for trial in told["ray"]] == [1, 2, 3, 4, 5]
    assert told["ray"] == told["here"]
    assert best["ray"] == best["here"]


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


# Trainings


__all__ = ["one_thread"]  # a fixture


@pytest.mark.usefixtures("nothing_shipped", "one_thread")
def test_a_training_is_that_of_this_machine(tmp_path, ray_fits):
    request = TrainingRequest(settings=OF_ALL_TYPES, seed=3)
    here = train_in(tmp_path / "here", request, FitExecutor())
    assert train_in(tmp_path / "ray", request, ray_fits) == here
    assert "confidence.safetensors" in here[0]


@pytest.mark.usefixtures("one_thread")
def test_members_that_were_finished_are_not_fitted_again(tmp_path, timings, ray_fits):
    """The training is cut short in the fit of the student."""
    tasks = [FitTask(timings, "distilled", settings=OF_ALL_TYPES)]
    stopped, asked = [], []

    def stop(label, progress):
        stopped.append(label)
        if label.startswith("distilled"):
            raise KeyboardInterrupt

    def told(label, progress):
        if progress is not None:
            asked.append(label)

    with pytest.raises(KeyboardInterrupt):
        ray_fits.fit_all(tasks, stop, Checkpoints(tmp_path / "kept"))
    assert {"trees-0", "network-1", "network-2", "network-3", "distilled-4"} == set(stopped)
    ((model,),) = ray_fits.fit_all(tasks, told, Checkpoints(tmp_path / "kept"))
    assert set(asked) == {"distilled-4"}
    ((here,),) = FitExecutor().fit_all(tasks, told)
    assert model.to_bytes() == here.to_bytes()


# The command validate --cross-validate


@pytest.mark.usefixtures("nothing_shipped")
def test_the_command_has_the_same_report_and_says_how_far_each_machine_is(
    tmp_path, monkeypatch, two_machines, capsys
):
    told, write = [], Store.update_run

    def recording(store, number, *, progress):
        told.append(progress)
        write(store, number, progress=progress)

    monkeypatch.setattr(Store, "update_run", recording)
    monkeypatch.setattr("diode_engine.cli.results._TELL_SECONDS", 0.0)
    quick = partial(cross_validate, settings=SMALL.but("trees", rounds=60))
    monkeypatch.setattr(cross_validation, "cross_validate", quick)
    store = tmp_path / "s.db"
    with Store.open(store) as opened:
        opened.add(opened.start_run("import", {}), make_timings(90))
    words = ["validate", f"--store={store}", "--cross-validate=folds", "--family=trees", "--json"]
    reports = []
    for where in ([], [f"--ray={two_machines.address}"]):
        told.clear()
        assert main([*words, *where]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0] == reports[1]
    fractions = [progress["fraction"] for progress in told if "fraction" in progress]
    assert len(fractions) > 10
    assert fractions == sorted(fractions)
    assert fractions[0] < 0.2
    assert 0.9 < fractions[-1] < 1.0
    assert None in {progress["rate"] for progress in told if "rate" in progress}  # of many fits
    nodes = [progress["nodes"] for progress in told if "nodes" in progress][-1]
    assert 1 < len(nodes) <= 3  # the two and the head, with a core each at least
    assert sum(int(said.split()[0]) for said in nodes.values()) == 5
    assert all("trees-0, fold " in said for said in nodes.values())
