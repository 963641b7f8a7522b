"""Models that come with installed packages."""

import importlib
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diode_engine import registry
from diode_engine.core.hardware import H200
from diode_engine.errors import RegistryError
from tests.models.conftest import ship_default, taken_on

pytestmark = pytest.mark.usefixtures("shipped")

EXAMPLE = Path(__file__).parents[2] / "examples" / "model-package"


@pytest.fixture
def installed(tmp_path, save, monkeypatch):
    """The example, with a model in it, built and installed without a network."""
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    package = project / "diode_models_example"
    save(package / "nvidia-h200" / "community" / "3", name="community")
    (package / "__init__.py").write_text("raise RuntimeError('code of a model package was run')\n")
    target = tmp_path / "target"
    for command in (
        ("-m", "hatchling", "build", "-t", "wheel"),
        ("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile",
         "--disable-pip-version-check", "--target", str(target),
         str(project / "dist" / "diode_models_example-1.0-py3-none-any.whl")),
    ):  # fmt: skip
        subprocess.run([sys.executable, *command], cwd=project, check=True, capture_output=True)
    monkeypatch.syspath_prepend(str(target))
    importlib.invalidate_caches()
    return target / "diode_models_example"


def test_an_installed_package_brings_models(installed, save, tmp_path):
    model = registry.resolve("community")
    assert model.reference == "community@3"
    assert model.folder == installed / "nvidia-h200" / "community" / "3"
    assert model.source.label == "diode-models-example 1.0"
    predictor = registry.load_predictor(H200)
    assert predictor.identity == model.manifest.identity
    assert "diode_models_example" not in sys.modules
    with pytest.raises(RegistryError, match="not one of your own"):
        registry.remove(model)
    registry.set_default(model)
    assert registry.default_for("nvidia-h200") == model
    # A version number that a package has given is not given again.
    save(tmp_path / "model", name="community")
    assert registry.register(tmp_path / "model").version == 4


def test_its_default_comes_after_the_users_and_diodes(installed, save, ship, shipped, tmp_path):
    (installed / "nvidia-h200" / "aliases.json").write_text('{"default": "community@3"}')
    save(tmp_path / "model", name="mine")
    mine = registry.register(tmp_path / "model")

    assert taken_on() == "community@3"  # the newest is mine, but nothing names it
    ship("gemm")
    ship_default(shipped, "gemm@1")
    assert taken_on() == "gemm@1"
    registry.set_default(mine)
    assert taken_on() == "mine@1"


def test_an_entry_point_that_names_no_package_is_said(tmp_path, monkeypatch, caplog):
    for name, value in (("gone", "no_such_module"), ("dotted", "outer.inner"), ("module", "this")):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[diode_engine.models]\n{name} = {value}\n")
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").write_text("raise RuntimeError('code was run')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="diode_engine.registry"):
        assert registry.list_models() == []
    for value in ("no_such_module", "outer.inner", "this"):
        assert f"{value} is not an installed package" in caplog.text
