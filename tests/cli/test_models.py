"""diode-engine models."""

import datetime as dt
import hashlib
import json
import shutil
from dataclasses import replace

import pytest

import diode_engine
from diode_engine import registry
from diode_engine.cli import validate
from diode_engine.core.checks import encode
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.core.table import TimingTable
from diode_engine.errors import SeveralModelsError
from diode_engine.models.manifest import GpuRecord
from diode_engine.models.predictor import Predictor
from diode_engine.registry import choice, references
from diode_engine.runs import Job
from diode_engine.store import Store, write_dataset
from tests.cli.conftest import make_timings

pytestmark = pytest.mark.usefixtures("nothing_shipped")


def test_register_list_and_show(run, model):
    assert run("models", "list", "--json").json() == []
    assert run("models", "register", model).out == "tripled@1\n"
    assert run("models", "register", model, "--name", "mine", "--default").out == "mine@1\n"
    third = run("models", "register", model, "--name", "mine", "--json")
    assert third.json()["model"] == "mine@2"
    assert "NVIDIA H200 still takes mine@1" in third.err
    listed = run("models", "list", "--json", "--hardware", "NVIDIA H200").json()
    assert [(m["model"], m["aliases"], m["taken"]) for m in listed] == [
        ("mine@1", ["default"], True),
        ("mine@2", [], False),
        ("tripled@1", [], False),
    ]
    assert listed[0]["timings"] == 48
    assert run("models", "list", "--hardware", "A100").out == ""
    text = run("models", "list").out
    for expected in ("mine@1", "default", "NVIDIA H200", "network", "0.875", "yours", "draft"):
        assert expected in text
    known = {line[:21].strip(): line for line in text.splitlines()}
    assert "from 48 timings of this GPU, 0.875 on held-out problems" in known["NVIDIA H200"]
    h100 = next(line for line in text.splitlines() if line.startswith("NVIDIA H100 80GB HBM3"))
    assert "by transfer from NVIDIA H200 (likeness 0.57); not measured" in h100
    a100 = next(line for line in text.splitlines() if line.startswith("NVIDIA A100-SXM4-80GB"))
    assert a100.endswith("no model")
    shown = run("models", "show", "mine@2").out
    for expected in ("48 timings of 12 problems", "Made by hand.", "2.13.0", "sha256", "a run"):
        assert expected in shown
    details = run("models", "show", "tripled", "--json").json()
    assert details["hardware"]["name"] == "NVIDIA H200"
    assert details["identity"] == registry.resolve("tripled").manifest.identity
    assert details["lineage"]["runs"] == ["a run"]
    card = run("models", "show", "default", "--card").out
    assert card.startswith("# mine@1, for NVIDIA H200\n")
    assert "| efficiency, geometric mean | 0.875 |" in card


def test_list_goes_on_after_a_broken_model(run, model):
    run("models", "register", model)
    run("models", "register", model, "--name", "broken")
    (registry.resolve("broken").folder / "manifest.json").write_text("{")
    ran = run("models", "list")
    assert ran.code == 0
    assert "tripled@1" in ran.out
    assert ran.err.count("cannot be used") == 1
    listed = run("models", "list", "--json").json()
    assert [m["error"] is None for m in listed] == [False, True]
    verified = run("models", "verify", "--json")
    assert verified.code == 1
    assert [m["error"] is None for m in json.loads(verified.out)["models"]] == [False, True]
    assert run("models", "verify", "tripled").out == "tripled@1: its files are whole\n"


def test_mistakes_are_sentences(run, model, tmp_path):
    run("models", "register", model)
    for arguments, code, said in (
        (("list", "--hardware", "A100"), 3, "No model is for 'A100'; there are models for nvidia-"),
        (("show", "nothing"), 3, "registered are: tripled@1"),
        (("show", tmp_path), 3, "the folder of this name has no manifest.json"),
        (("show", "tripled", "--hardware", "A100"), 3, "no model tripled for a100; registered are"),
        (("register", tmp_path / "nowhere"), 1, "manifest.json"),
        (("register", model, "--name", "Not A Name"), 1, "cannot name a model"),
        (("register", model, "--name", "default"), 1, "is an alias"),
        (("compare", "tripled"), 2, "two models"),
        (("alias", "default", "tripled"), 2, "promote"),
        (("alias", "tripled", "tripled"), 1, "a name of its own"),
        (("alias", "Best", "tripled"), 1, "cannot be an alias"),
        (("alias", "best"), 3, "There is no model best"),
        (("tag", "tripled", "two words"), 1, "cannot be a tag"),
        (("tag", model, "x"), 1, "not registered"),
        (("promote", "tripled", "--force"), 2, "--reason"),
        (("promote", "tripled", "--store", tmp_path / "none.db"), 3, "no store"),
        (("rollback",), 3, "nothing to go back to"),
        (("remove", "tripled"), 2, "--yes"),
        (("import", tmp_path / "none.zip"), 1, "cannot be read"),
        (("import", tmp_path), 1, "is a folder; register it"),
        (("import", "tripled", "--index", tmp_path / "none.json"), 1, "cannot be read"),
        (("export", "tripled", tmp_path / "no" / "a.zip"), 1, "cannot be written"),
    ):
        run("models", *arguments).says(code, said)
    weights = next(model.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    assert run("models", "register", model).code == 1
    assert len(registry.list_models()) == 1


def test_aliases_tags_and_notes(run, model):
    run("models", "register", model)
    assert run("models", "alias", "candidate", "tripled@1").code == 0
    assert run("models", "alias", "candidate", "tripled@1").code == 3
    assert "tripled@1" in run("models", "alias", "candidate").out
    assert run("models", "tag", "candidate", "nightly", "h200").code == 0
    ran = run("models", "tag", "candidate", "--remove", "h200", "--json")
    assert ran.json()["tags"] == ["nightly"]
    run("models", "note", "candidate", "Trained over night.")
    shown = run("models", "show", "candidate").out
    for expected in ("candidate", "nightly", "Trained over night."):
        assert expected in shown
    assert run("models", "remove", "candidate", "--yes").code == 1
    assert run("models", "alias", "candidate", "--remove").code == 0
    assert run("models", "remove", "tripled", "--yes").out == "tripled@1\n"
    assert run("models", "register", model).out == "tripled@2\n"


def test_comparing(run, model):
    run("models", "register", model)
    run("models", "register", model)
    text = run("models", "compare", "tripled@1", "tripled@2")
    assert text.err == ""
    assert [line.split() for line in text.out.splitlines() if line.startswith("efficiency")] == [
        ["efficiency", "0.875", "0.875"]
    ]
    compared = run("models", "compare", "tripled@1", model, "--json").json()
    assert [m["trained problems"] for m in compared] == [12, 12]


def test_an_archive_goes_from_one_registry_to_another(run, model, tmp_path, monkeypatch):
    run("models", "register", model, "--name", "mine")
    file = tmp_path / "mine.zip"
    exported = run("models", "export", "mine", file, "--json").json()
    assert exported["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    run("models", "export", "mine", file).says(1, "pass --replace")
    assert run("models", "import", file).code == 3  # it is there
    offer = {
        "name": "mine", "version": 1, "hardware": "nvidia-h200", "archive": file.name,
        "sha256": exported["sha256"], "bytes": exported["bytes"], "about": "An example.",
    }  # fmt: skip
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"format": "diode-model-index", "version": 1, "models": [offer]}))
    assert "An example." in run("models", "list", "--index", index).out
    monkeypatch.setenv("DIODE_HOME", str(tmp_path / "another"))
    assert run("models", "import", file, "--sha256", "0" * 64).code == 1
    assert run("models", "import", file, "--sha256", exported["sha256"]).out == "mine@1\n"
    shutil.rmtree(tmp_path / "another")
    assert run("models", "import", "mine@1", "--index", index).out == "mine@1\n"
    assert run("models", "import", "other", "--index", index).code == 3
    assert str(file) in run("models", "show", "mine").out


def test_promoting_and_rolling_back(run, model, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr(choice, "triton_version", lambda: "3.7.1")
    table = make_timings(200)
    timings = tmp_path / "many.json"
    write_dataset(table.take(table.failure == 0), timings)  # the model is right about all of them
    few = tmp_path / "few.json"
    write_dataset(make_timings(12), few)
    run("models", "register", model)
    refused = run("models", "promote", "tripled", "--dataset", few)
    assert refused.code == 1
    assert "REFUSED  problems" in refused.out
    assert "not promoted" in refused.err
    assert registry.default_for("nvidia-h200") is None
    ran = run("models", "promote", "tripled", "--dataset", timings, "--json")
    verdict = ran.json()
    assert {c["name"]: c["passed"] for c in verdict["checks"]} == {
        "loads": True, "software": True, "problems": True, "efficiency": True, "slower": True,
        "M over 64": True,
    }  # fmt: skip
    assert (ran.code, verdict["promoted"], verdict["against"]) == (0, True, "ATen")
    assert run("models", "promote", "tripled", "--dataset", timings).code == 3
    run("models", "register", model)
    forced = run(
        "models", "promote", "tripled@2", "--dataset", few, "--force", "--reason", "why not"
    )
    assert forced.code == 0
    assert "against the gate" in forced.err
    assert "forced (why not)" in run("models", "show", "default").out
    back = run("models", "rollback", "--json")
    shown = run("models", "show", "tripled@2").out
    assert "promote default from tripled@1 to tripled@2 forced (why not)" in shown
    assert "rollback default from tripled@2 to tripled@1" in shown
    assert back.json() == {
        "hardware": "nvidia-h200", "default": "tripled@1", "before": "tripled@2",
    }  # fmt: skip
    listed = run("models", "list", "--json").json()
    assert [(m["status"], m["taken"]) for m in listed] == [("validated", True), ("retired", False)]


def test_a_promotion_is_a_run_of_the_store_that_its_timings_are_of(
    run, model, tmp_path, monkeypatch
):
    few, path = tmp_path / "few.json", tmp_path / "few.db"
    write_dataset(make_timings(12), few)
    run("data", "import", few, "--store", path)
    run("models", "register", model)
    asked = ("models", "promote", "tripled", "--store", path)
    assert run(*asked).code == 1
    with Store.open(path) as store:
        done = store.runs()[-1]
        assert (done.kind, done.state, done.spec["model"]) == ("promote", "done", "tripled@1")
        assert "was refused: " in str(done.message)
        assert (store.result(done.id) or {})["passed"] is False

    assert run(*asked, "--verdict-of", done.id).code == 2  # it overrules, with --force
    forced = (*asked, "--force", "--reason", "a test", "--verdict-of")
    assert "is not a promotion with a verdict" in run(*forced, 1).err
    with monkeypatch.context() as gate:
        gate.setattr("diode_engine.validation.gate.judge", None)  # nobody asks it again
        assert run(*forced, done.id).code == 0
    assert registry.default_for("nvidia-h200").reference == "tripled@1"
    with Store.open(path) as store:
        taken = store.runs()[-1]
    assert "is taken against the gate, for the reason: a test." in str(taken.message)
    run("models", "rollback")
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    with registry.facts.changing("nvidia-h200") as document:
        document.history[-1] = replace(document.history[-1], at=later.isoformat(timespec="seconds"))
    assert "has changed since tripled@1 was judged" in run(*forced, done.id).err

    def asked_to_stop(job):
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "check", asked_to_stop)
    assert run(*asked, "--force", "--reason", "a test").code == 130
    assert registry.default_for("nvidia-h200") is None
    with Store.open(path) as store:
        assert store.runs()[-1].state == "cancelled"


def test_a_name_of_several_gpus_models_means_the_one_of_the_gpu_at_hand(
    run, model, tmp_path, monkeypatch
):
    """The H200 has two versions, so that its model has the highest number."""
    h100 = KNOWN["NVIDIA H100 80GB HBM3"]
    other = tmp_path / "other"
    shutil.copytree(model, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["hardware"] = h100.to_dict()
    (other / "manifest.json").write_text(json.dumps(manifest))
    for folder in (model, model, other):
        assert run("models", "register", folder, "--name", "both").code == 0

    def shown():
        ran = run("models", "show", "both", "--json")
        return ran.code, ran.err if ran.code else ran.json()["hardware"]["name"]

    for gpu, reference in ((h100, "both@1"), (H200, "both@2")):
        monkeypatch.setattr(references, "detect", lambda gpu=gpu: gpu)
        assert shown() == (0, gpu.name)
        verified = run("models", "verify", "both", "--json").json()["models"]
        assert [v["model"] for v in verified] == [reference]
        assert diode_engine.register_model("both") == reference
        assert registry.default_for(gpu.slug) == registry.resolve(reference, gpu.slug)
    monkeypatch.setattr(references, "detect", lambda: replace(H200, name="a processor"))
    for command in ("show", "promote"):
        ran = run("models", command, "both")
        assert ran.code != 0
        assert "nvidia-h100-80gb-hbm3, nvidia-h200" in ran.err
        assert "--hardware" in ran.err
    with pytest.raises(SeveralModelsError, match=r"nvidia-h100-80gb-hbm3, nvidia-h200.*folder"):
        diode_engine.register_model("both")
    assert run("models", "show", "both", "--hardware", "H100").code == 0
    listed = run("models", "list", "--json", "--hardware", "h100").json()
    assert [m["model"] for m in listed] == ["both@1"]


# A model that has a record of several GPUs


H100 = KNOWN["NVIDIA H100 80GB HBM3"]
RECORDS = (GpuRecord(H200, 12, 48, {"efficiency": 0.875}), GpuRecord(H100, 6, 24))


@pytest.fixture
def both(model):
    """The folder of a model of both GPUs."""
    path = model / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "gpus": encode(RECORDS)}))
    return model


def on(hardware, table):
    """The table as if it was timed there, without what failed."""
    there = tuple(replace(each, hardware=hardware) for each in table.environments)
    return replace(table.take(table.failure == 0), environments=there)


@pytest.fixture
def timings(tmp_path):
    """A file with timings of both GPUs."""
    path = tmp_path / "both.json"
    write_dataset(TimingTable.joined([on(each, make_timings(200)) for each in (H200, H100)]), path)
    return path


def test_it_is_promoted_and_rolled_back_for_each_gpu(run, both, timings):
    run("models", "register", both)
    promote = ("models", "promote", "tripled", "--dataset", timings, "--json")
    ran = run(*promote, "--hardware", H100.name)
    verdict = ran.json()
    assert (ran.code, verdict["hardware"], verdict["promoted"]) == (0, H100.slug, True)
    assert registry.default_for(H200.slug) is None
    assert run(*promote, "--hardware", H100.slug).code == 3
    # Without --hardware it is judged for both, and is the default of one already.
    ran = run(*promote)
    assert (ran.code, ran.json()["hardware"]) == (0, H200.slug)
    assert f"the default of {H100.slug} already" in ran.err
    assert run(*promote, "--hardware", "NVIDIA A100").code == 3
    shown = run("models", "show", "default", "--hardware", H100.name).out
    assert "promote default to nvidia-h200/tripled@1" in shown
    assert f"on {H100.name}" in shown
    back = run("models", "rollback", "--json", "--hardware", H100.name)
    assert back.json() == {
        "hardware": H100.slug, "default": None, "before": "nvidia-h200/tripled@1",
    }  # fmt: skip
    assert registry.default_for(H200.slug) == registry.resolve("tripled@1")


def test_a_list_names_its_gpus(run, both):
    run("models", "register", both, "--default")
    (line,) = run("models", "list", "--json", "--hardware", H100.slug).json()
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
    assert ran.json()["hardware"] == H100.name


def test_it_is_validated_on_timings_of_any_of_its_gpus(run, both, tmp_path):
    run("models", "register", both)
    table = on(H100, make_timings(200))
    model, judged, _ = validate.find_model_and_timings(table, None, only_held_out=True)
    assert model.reference == "tripled@1"
    assert judged.first_environment.hardware == H100
    path = tmp_path / "h100.json"
    write_dataset(table, path)
    ran = run("validate", "--dataset", path, "--model", "tripled")
    assert ran.code == 0
    assert "was trained on NVIDIA" not in ran.err
