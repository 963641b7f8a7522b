"""A tuning on a Ray cluster. Skipped where Ray is not installed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from diode_engine.cli import main
from diode_engine.collect import local
from diode_engine.core.hardware import H200
from diode_engine.runs import find
from diode_engine.store import RunState, Store
from diode_engine.training.ray_fits import RayFits
from diode_engine.tuning import run as tuning
from tests.collect.ray_cluster import KIND
from tests.collect.test_executors import direct_setups, keys, worker
from tests.tuning.test_tune import OFFERED, Clock, small

__all__ = ["small"]  # a fixture


@pytest.fixture
def direct(tmp_path, monkeypatch):
    """What --direct starts on the cluster's machines."""
    made = replace(direct_setups(tmp_path)(), worker=worker(offered=OFFERED, time_us=None))
    monkeypatch.setattr(local, "Direct", lambda folder: made)


def test_the_command_times_and_trains_on_the_cluster(
    tmp_path, two_machines, monkeypatch, direct, capsys
):
    real, fitted = tuning.tune, []

    def by_timings(store, *asked, **more):
        return real(store, *asked, **more, clock=Clock(store))

    class Watched(RayFits):
        def fit_all(self, tasks, report, checkpoints=None):
            fitted.extend(task.family for task in tasks)
            return super().fit_all(tasks, report, checkpoints)

    monkeypatch.setattr(tuning, "tune", by_timings)
    monkeypatch.setattr("diode_engine.training.ray_fits.RayFits", Watched)
    store = tmp_path / "s.db"
    asked = ["tune", "--store", store, "--minutes", 60, "--ray", two_machines.address,
             "--accelerator", KIND, "--json"]  # fmt: skip
    assert main([str(word) for word in asked]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["promoted"]
    assert document["hardware"] == H200.name
    assert document["page"].startswith(f"# {document['model']['model']} for NVIDIA H200\n")
    assert "The page is in" in err
    best, *others = document["choosers"]
    aten = next(row for row in others if row["chooser"].startswith("ATen"))
    assert best["efficiency"] > aten["efficiency"] + 0.1
    assert fitted[0] == "ensemble"
    with Store.open(store) as opened:
        runs = find(opened)
        assert {s.run.kind for s in runs} == {"collect", "train", "tune"}
        assert all(s.state is RunState.DONE for s in runs)
        spec = next(s.run.spec for s in runs if s.run.kind == "tune")
        assert (spec["ray"], spec["accelerator"]) == (two_machines.address, KIND)
        collected = [s.run for s in runs if s.run.kind == "collect"]
        assert all(run.spec["ray"] == two_machines.address for run in collected)
        assert all(g["node"] for run in collected for g in run.progress["gpus"].values())
        assert set(keys(opened).values()) == {1}
