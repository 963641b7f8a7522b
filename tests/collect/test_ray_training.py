"""A training on a Ray cluster: the same model as here. Skipped where Ray is not installed."""

from __future__ import annotations

import pytest

from diode_engine import paths
from diode_engine.runs import find
from diode_engine.store import Store
from diode_engine.training import ray_fits as module
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import FitExecutor
from diode_engine.training.run import TrainingRequest, train_from_store
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import learnable
from tests.training.conftest import make_timings

SMALL = (
    TrainingSettings(lessons=60)
    .but("trees", rounds=12, learning_rate=0.3, max_depth=4, threads=1)
    .but("network", epochs=3, hidden=(8,))
    .but("distilled", epochs=3, hidden=(12, 8))
)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Nothing is shipped, and fits use one core here as they do there."""
    import torch

    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def ray_fits(two_machines):
    with module.RayFits(two_machines.address) as fits:
        yield fits


def test_a_training_is_that_of_this_machine(tmp_path, monkeypatch, ray_fits):
    made, curves, progress = {}, {}, {}
    for name, fits in (("here", None), ("ray", ray_fits)):
        monkeypatch.setenv("DIODE_HOME", str(tmp_path / name))
        with Store.open(tmp_path / f"{name}.db") as store:
            store.add(store.start_run("import", {}), make_timings(100))
            request = TrainingRequest(settings=SMALL, seed=3)
            trained = train_from_store(store, request, fits=fits)
            (run,) = [found.run for found in find(store) if found.run.kind == "train"]
            drawn = store.curves(run.id)
            curves[name] = {each: list(zip(*points, strict=True)) for each, points in drawn.items()}
        folder = trained.model.folder
        made[name] = {f.name: f.read_bytes() for f in folder.iterdir() if f.name != "manifest.json"}
        metrics = trained.model.manifest.metrics
        made[name]["metrics"] = metrics
        progress[name] = (trained.problems, trained.timings)
    assert made["ray"] == made["here"]
    assert any("confidence" in file for file in made["here"])
    assert curves["ray"] == curves["here"]
    assert progress["ray"] == progress["here"]


def test_members_that_were_finished_are_not_fitted_again(tmp_path, ray_fits):
    """The training is cut short in the fit of the student."""
    tasks = [FitTask(learnable(make_timings(60)), "distilled", settings=SMALL)]
    stopped, asked = [], []

    def stop(place, member, progress):
        stopped.append(member)
        if member.startswith("distilled"):
            raise KeyboardInterrupt

    def told(place, member, progress):
        asked.append(member)

    with pytest.raises(KeyboardInterrupt):
        ray_fits.fit_all(tasks, stop, Checkpoints(tmp_path / "kept"))
    assert {"trees-0", "network-1", "network-2", "network-3", "distilled-4"} == set(stopped)
    ((model,),) = ray_fits.fit_all(tasks, told, Checkpoints(tmp_path / "kept"))
    assert set(asked) == {"distilled-4"}
    ((here,),) = FitExecutor().fit_all(tasks, told)
    assert model.to_bytes() == here.to_bytes()
