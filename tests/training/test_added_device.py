"""A new device needs no code where files have its facts. Where files name it without its facts, it
is a line in a table (docs/notes/transfer.md)."""

import json
from dataclasses import replace

import numpy as np
import pytest

from diode_engine import registry
from diode_engine.cli import main
from diode_engine.core import hardware
from diode_engine.core.hardware import H200, Environment
from diode_engine.errors import DatasetError
from diode_engine.store import Store, export_dataset, import_dataset, read_dataset
from diode_engine.training.run import train_from_store
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from tests.training.conftest import make_timings

MADE_UP = replace(
    H200, name="NVIDIA Made-Up 9000", arch="8.9", multiprocessors=96, clock_mhz=1500,
    memory_gb_s=2000,
)  # fmt: skip
WHERE = Environment(MADE_UP, "570", "2.13.0", "3.7.1")


@pytest.fixture
def file(tmp_path):
    """Timings of the device, with its facts."""
    path = tmp_path / "timings.json"
    with Store.open(tmp_path / "elsewhere.db") as store:
        store.add(store.start_run("collect", {}), make_timings(environment=WHERE))
        export_dataset(store, path)
    return path


@pytest.fixture
def named(file):
    """The same timings; the file has the device's name alone."""
    document = json.loads(file.read_text(encoding="utf-8"))
    for environment in document["environments"]:
        environment["hardware"] = environment["hardware"]["name"]
    path = file.with_name("named.json")
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_model_of_its_own_needs_no_code(tmp_path, file):
    assert MADE_UP.name not in hardware.KNOWN
    with Store.open(tmp_path / "diode.db") as store:
        import_dataset(store, file)
        trained = train_from_store(
            store,
            TrainingRequest(family="trees", settings=TrainingSettings().but("trees", rounds=9)),
        )
    match = registry.best_for(MADE_UP)
    assert (match.model, match.hardware, match.likeness) == (trained.model, MADE_UP, 1.0)
    assert trained.model.folder.parent.parent.name == "nvidia-made-up-9000"
    predictor = registry.load_predictor(MADE_UP)
    table = read_dataset(file)
    us = predictor.predict_us(table.problems[0], table.candidates[:7])
    assert np.isfinite(us).all()


def test_a_line_lets_files_name_it_without_its_facts(named, file, monkeypatch, capsys):
    with pytest.raises(DatasetError, match="not one that Diode knows by name"):
        read_dataset(named)
    monkeypatch.setitem(hardware.KNOWN, MADE_UP.name, MADE_UP)  # the line
    assert read_dataset(named).environments == read_dataset(file).environments == (WHERE,)
    assert dict(registry.taken_for_all())[MADE_UP] is None
    assert main(["data", "verify", str(named)]) == 0
    assert main(["models", "list"]) == 0
    assert MADE_UP.name in "".join(capsys.readouterr())
