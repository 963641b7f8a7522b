"""Commands on a model that has a record of several GPUs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from diode_engine import registry
from diode_engine.cli import judging
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.core.table import TimingTable
from diode_engine.models.manifest import GpuRecord
from diode_engine.models.predictor import Predictor
from diode_engine.store import write_dataset

pytestmark = pytest.mark.usefixtures("nothing_shipped")

H100 = KNOWN["NVIDIA H100 80GB HBM3"]
RECORDS = (GpuRecord(H200, 12, 48, {"efficiency": 0.875}), GpuRecord(H100, 6, 24))


@pytest.fixture
def both(model):
    """The folder of a model of both GPUs."""
    path = model / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "gpus": [record.to_dict() for record in RECORDS]}))
    return model


def on(hardware, table):
    """The table as if it was timed there, without what failed."""
    there = tuple(replace(each, hardware=hardware) for each in table.environments)
    return replace(table.take(table.failure == 0), environments=there)


@pytest.fixture
def timings(make_timings, tmp_path):
    """A file with timings of both GPUs."""
    path = tmp_path / "both.json"
    write_dataset(TimingTable.joined([on(each, make_timings(200)) for each in (H200, H100)]), path)
    return path


def test_it_is_promoted_and_rolled_back_for_each_gpu(run, both, timings):
    run("models", "register", both)
    promote = ("models", "promote", "tripled", "--dataset", timings, "--json")
    ran = run(*promote, "--hardware", H100.name)
    verdict = json.loads(ran.out)
    assert (ran.code, verdict["hardware"], verdict["promoted"]) == (0, H100.slug, True)
    assert registry.default_for(H200.slug) is None
    assert run(*promote, "--hardware", H100.slug).code == 3
    # Without --hardware it is judged for both, and is the default of one already.
    ran = run(*promote)
    assert (ran.code, json.loads(ran.out)["hardware"]) == (0, H200.slug)
    assert f"the default of {H100.slug} already" in ran.err
    assert run(*promote, "--hardware", "NVIDIA A100").code == 3
    shown = run("models", "show", "default", "--hardware", H100.name)
    assert "promote default to nvidia-h200/tripled@1" in shown.out
    assert f"on {H100.name}" in shown.out
    assert "24 timings of 6 problems" in shown.out
    back = run("models", "rollback", "--json", "--hardware", H100.name)
    assert json.loads(back.out) == {
        "hardware": H100.slug, "default": None, "before": "nvidia-h200/tripled@1",
    }  # fmt: skip
    assert registry.default_for(H200.slug) == registry.resolve("tripled@1")


def test_a_list_names_its_gpus(run, both):
    run("models", "register", both, "--default")
    (line,) = json.loads(run("models", "list", "--json", "--hardware", H100.slug).out)
    assert line["gpus"] == line["taken_on"] == [H200.name, H100.name]
    text = run("models", "list").out
    assert f"{H200.name}, {H100.name}" in text
    assert "default (2 of 2)" in text
    assert "from 24 timings of this GPU" in text


def test_it_predicts_with_the_facts_of_the_gpu_that_is_asked_about(run, both, timings, monkeypatch):
    run("models", "register", both, "--default")
    loaded = []
    load = Predictor.load
    monkeypatch.setattr(
        Predictor, "load", lambda folder, hardware=None: (
            loaded.append(hardware), load(folder, hardware))[1],
    )  # fmt: skip
    assert run("predict", timings).code == 0
    assert loaded == [H200, H100]
    loaded.clear()
    asked = ("explain", "mm", "64", "4096", "4096", "--hardware", H100.name, "--json")
    ran = run(*asked)
    assert (ran.code, loaded, ran.err) == (0, [H100], "")  # no warning of another GPU
    assert json.loads(ran.out)["hardware"] == H100.name


def test_it_is_validated_on_timings_of_any_of_its_gpus(run, both, make_timings, tmp_path):
    run("models", "register", both)
    table = on(H100, make_timings(200))
    model, judged, _ = judging.find_judged_model(table, None, only_held_out=True)
    assert model.reference == "tripled@1"
    assert judging.first_gpu(judged) == H100
    path = tmp_path / "h100.json"
    write_dataset(table, path)
    ran = run("validate", "--dataset", path, "--model", "tripled")
    assert ran.code == 0
    assert "was trained on" not in ran.err
