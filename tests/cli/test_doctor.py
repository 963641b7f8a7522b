"""diode-engine doctor, on a machine without a GPU."""

import json
import subprocess
import sys

import pytest

from diode_engine.core.hardware import H200, KNOWN
from diode_engine.inductor.hook import public

pytestmark = pytest.mark.usefixtures("nothing_shipped")


@pytest.fixture
def no_gpu(monkeypatch):
    """As on the usual test machine, whatever this one is."""
    processor = {**H200.to_dict(), "name": "a processor", "backend": "cpu"}
    monkeypatch.setattr(public, "_read_hardware", lambda: processor)


def checks(ran):
    return {check["what"]: (check["state"], check["why"]) for check in json.loads(ran.out)}


@pytest.mark.usefixtures("no_gpu")
def test_a_machine_without_a_gpu_is_not_broken(run, tmp_path, dataset):
    store = tmp_path / "a.db"
    ran = run("doctor", "--store", store, "--json")
    assert (ran.code, ran.err) == (0, "")
    found = checks(ran)
    assert found["torch"][0] == "works"
    assert found["GPU"][0] == found["choices"][0] == found["store"][0] == "off"
    assert not any(what.startswith("integration") for what in found)  # `choices` says why
    run("data", "import", dataset, "--store", store)
    assert "48 timings" in checks(run("doctor", "--store", store, "--json"))["store"][1]
    for line in run("doctor", "--store", store).out.splitlines():
        assert " works " in line or " off " in line


@pytest.mark.usefixtures("no_gpu")
def test_what_is_broken_is_told_and_is_exit_code_1(run, tmp_path, monkeypatch):
    bad = tmp_path / "bad.db"
    bad.write_text("not a database at all, but long enough to be taken for one" * 10)
    ran = run("doctor", "--store", bad, "--json")
    assert ran.code == 1
    assert checks(ran)["store"][0] == "broken"
    monkeypatch.setenv("DIODE_HOME", str(bad / "home"))  # a file is no folder
    assert checks(run("doctor", "--json"))["data directory"][0] == "broken"


def test_the_model_for_the_gpu_that_is_here(run, model, tmp_path, monkeypatch):
    import diode_engine

    monkeypatch.setattr(public, "_read_hardware", H200.to_dict)
    monkeypatch.setattr(diode_engine, "install_diode_choices", lambda **_: False, raising=False)
    store = tmp_path / "a.db"
    assert "none for NVIDIA H200" in checks(run("doctor", "--store", store, "--json"))["model"][1]
    run("models", "register", model)
    found = checks(run("doctor", "--store", store, "--json"))
    assert found["GPU"] == ("works", "NVIDIA H200")
    assert found["model"][0] == "works"
    assert "tripled@1" in found["model"][1]
    assert "from 48 timings of this GPU" in found["model"][1]
    h100 = KNOWN["NVIDIA H100 80GB HBM3"]
    monkeypatch.setattr(public, "_read_hardware", h100.to_dict)
    why = checks(run("doctor", "--store", store, "--json"))["model"][1]
    assert "by transfer from NVIDIA H200 (likeness 0.57); not measured" in why
    assert "`diode-engine tune` makes one of this GPU's" in why


WITHOUT_TORCH = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'")

sys.meta_path.insert(0, Missing())
import diode_engine
from diode_engine.cli import main
print(diode_engine.get_integration_status()["integrations"]["matmul"]["reason"])
sys.exit(main(["doctor", "--json"]))
"""


def test_without_torch():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    reason, _, out = done.stdout.partition("\n")
    assert "needs torch 2.10 or newer" in reason
    assert "No module named 'torch'" in reason
    assert done.returncode == 1
    found = {check["what"]: (check["state"], check["why"]) for check in json.loads(out)}
    assert found["torch"][0] == "broken"
    assert found["GPU"] == ("off", "not known without torch")
    assert found["choices"] == ("off", reason)
