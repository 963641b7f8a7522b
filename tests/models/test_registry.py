"""Which models there are, and which one serves a device."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import diode_engine
from diode_engine import paths, registry
from diode_engine.core.hardware import H200
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError
from diode_engine.registry import choice, versions
from tests.models.conftest import network, ship_default, taken_on

pytestmark = pytest.mark.usefixtures("shipped")

H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_gb_s=3352, l2_bytes=52428800)
A100 = replace(H200, name="NVIDIA A100", arch="8.0", multiprocessors=108)


def test_versions_count_up_and_are_never_written_over(model):
    first = registry.register(model, "mine")
    before = (first.folder / "manifest.json").read_bytes()
    second = registry.register(model, "mine")
    other = registry.register(model)
    assert [m.reference for m in (first, second, other)] == ["mine@1", "mine@2", "small@1"]
    assert (first.folder / "manifest.json").read_bytes() == before
    assert [m.reference for m in registry.list_models()] == ["mine@1", "mine@2", "small@1"]
    assert second.folder == paths.data_dir() / "models" / "nvidia-h200" / "mine" / "2"
    assert second.manifest.name == "mine"
    assert second.manifest.data.timings > 0


def test_a_version_taken_meanwhile_is_passed_over(model, monkeypatch):
    """Another process registers between our look and our write."""
    registry.register(model, "mine")
    monkeypatch.setattr(versions, "list_models", list)
    assert registry.register(model, "mine").version == 2


def test_with_a_home_that_may_not_be_entered_what_ships_is_taken(ship, monkeypatch, caplog):
    """As in a container that runs as another user than its home's. Root may enter every folder."""
    ship("large", 1)
    glob, user = Path.glob, paths.data_dir() / "models"

    def refuse(path, pattern):
        if path == user:
            raise PermissionError(13, "Permission denied", str(path))
        return glob(path, pattern)

    monkeypatch.setattr(Path, "glob", refuse)
    assert taken_on(H200) == "large@1"
    assert f"The models in {user} are left out: Permission denied." in caplog.text


def test_a_home_that_is_no_folder_has_no_models(ship, monkeypatch, tmp_path, caplog):
    ship("large", 1)
    (tmp_path / "file").touch()
    monkeypatch.setenv("DIODE_HOME", str(tmp_path / "file" / "home"))
    assert (taken_on(H200), caplog.text) == ("large@1", "")


def test_resolving(ship, shipped, model):
    ship("large", 1)
    registry.register(model, "mine")
    registry.register(model, "mine")
    assert registry.resolve("mine@1").version == 1
    assert registry.resolve("mine").version == 2
    assert registry.resolve("large").shipped
    assert registry.resolve(str(model)).folder == model
    for unknown in ("nothing", "mine@7", "mine@latest", "default", ""):
        with pytest.raises(RegistryError, match="large@1, mine@1, mine@2"):
            registry.resolve(unknown)
    registry.set_default(registry.resolve("mine@1"))
    assert registry.resolve("default").reference == "mine@1"


def test_a_model_is_named_by_its_gpu_and_what_it_chooses(ship, shipped):
    ship("mine", 1)
    ship("mine", 2)
    ship("theirs", 1, hardware=H100)
    for reference, model in (
        ("NVIDIA-H100-matmul", "theirs@1"), ("H100-gemm", "theirs@1"),
        ("NVIDIA H100 80GB HBM3-matmul", "theirs@1"), ("nvidia-h200-matmul", "mine@2"),
    ):  # fmt: skip
        assert registry.resolve(reference).reference == model
        assert registry.resolve_for(reference, "nvidia-h200").reference == model
    assert diode_engine.register_model("NVIDIA-H100-matmul") == "theirs@1"
    assert registry.default_for(H100.slug) == registry.resolve("theirs@1")
    for unknown in ("NVIDIA-A100-matmul", "NVIDIA-H10-matmul"):
        with pytest.raises(NoSuchModelError) as refused:
            registry.resolve(unknown)
        assert f"no model for {unknown.removesuffix('-matmul')};" in str(refused.value)
        assert "models for NVIDIA H100 80GB HBM3, NVIDIA H200" in str(refused.value)
        assert "diode-engine tune" in str(refused.value)


def test_a_model_that_has_such_a_name_is_meant_first(ship, shipped):
    ship("nvidia-h200-matmul", 1)
    ship("other", 2)
    assert registry.resolve("nvidia-h200-matmul").reference == "nvidia-h200-matmul@1"


def test_the_nearest_device_serves_and_says_so(ship, shipped, caplog):
    ship("far", 1, hardware=A100)
    slow = replace(H100, name="NVIDIA H100 PCIe", clock_mhz=1755, memory_gb_s=2039)
    assert 0 < H200.likeness(slow) < registry.MIN_LIKENESS
    ship("slow", 1, hardware=slow)
    assert registry.load_predictor(H200) is None
    ship("near", 1, hardware=H100)
    match = registry.best_for(H200)
    assert match.model.name == "near"
    assert registry.MIN_LIKENESS <= match.likeness < 1
    with caplog.at_level(logging.INFO, logger="diode_engine.registry"):
        registry.load_predictor(H200)
    assert "There is no model for NVIDIA H200; near@1, trained on NVIDIA H100" in caplog.text
    ship("own", 1)
    assert registry.best_for(H200).likeness == 1
    assert taken_on() == "own@1"


def test_another_purpose_is_another_model(ship, shipped):
    ship("conv", 1, purpose="convolution")
    assert registry.best_for(H200) is None
    assert registry.best_for(H200, "convolution") is not None


def test_a_broken_model_is_passed_over(ship, shipped, caplog):
    ship("whole", 1)
    broken = ship("broken", 1)
    (broken / "manifest.json").write_text("{")
    assert taken_on() == "whole@1"
    assert "not valid JSON" in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "alias file") for text in ("", "[]", '{"default": 3}', "[" * 99_999)),
        ('{"default": "b@1"}', "b@1, which does not exist"),
    ],
)
def test_a_broken_alias_file_is_refused(ship, shipped, text, says):
    ship("a", 1)
    (shipped / "nvidia-h200" / "aliases.json").write_text(text)
    with pytest.raises(RegistryError, match=says):
        registry.resolve("default")


def test_other_folders_are_no_versions(ship, shipped):
    folder = ship("a", 1)
    for name in ("latest", ".unfinished-x"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "manifest.json").write_text("{}")
    (folder.parent / "2").symlink_to(folder)
    assert [m.reference for m in registry.list_models()] == ["a@1"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": "diode-registry", "version": 9}'])
def test_a_broken_registry_leaves_the_shipped_default(ship, shipped, model, caplog, text):
    ship("gemm")
    ship_default(shipped, "gemm@1")
    mine = registry.register(model, "mine", default=True)
    assert taken_on() == "mine@1"
    path = mine.folder.parent.parent / "registry.json"
    path.write_text(text)
    assert taken_on() == "gemm@1"
    assert "registry.json" in caplog.text
    for change in (
        lambda: registry.set_default(mine),
        lambda: registry.tag(mine, ["x"]),
        lambda: registry.register(model, "mine"),
    ):
        with pytest.raises(RegistryError, match=r"registry\.json"):
            change()
    assert path.read_text() == text  # nothing is lost of what may be repaired
    assert any("registry.json" in problem for problem in registry.overview().problems)


def test_a_default_that_is_gone_leaves_the_shipped_one(ship, shipped, model, caplog):
    ship("gemm")
    ship_default(shipped, "gemm@1")
    mine = registry.register(model, "mine", default=True)
    shutil.rmtree(mine.folder)
    assert taken_on() == "gemm@1"
    assert "mine@1, which does not exist" in caplog.text
    assert any("mine@1" in problem for problem in registry.overview().problems)


def test_the_next_model_is_taken_where_weights_are_corrupt(ship, model, caplog):
    whole = ship("whole")
    mine = registry.register(model, "mine", default=True)
    weights = next(mine.folder.glob("*.safetensors"))
    weights.write_bytes(bytes(weights.stat().st_size))
    assert registry.load_predictor(H200).manifest.name == "whole"
    assert "its hash differs" in caplog.text
    shutil.rmtree(whole)
    with pytest.raises(ModelError, match="its hash differs"):
        registry.load_predictor(H200)


def test_a_model_of_the_installed_software_goes_first(ship, shipped, monkeypatch, caplog):
    monkeypatch.setattr(choice, "torch_version", lambda: "2.13.0+cu130")
    monkeypatch.setattr(choice, "triton_version", lambda: "3.7.1")
    ship("fits", torch=("2.13.1",), triton=("3.7.0",))
    ship("older", 2, torch=("2.11.0",), triton=("3.6.0",))  # and with the higher number
    ship("unsaid")
    caplog.set_level(logging.INFO, logger="diode_engine.registry")
    assert taken_on() in ("fits@1", "unsaid@1")
    registry.load_predictor(H200)
    assert "other software" not in caplog.text
    ship_default(shipped, "older@2")
    assert taken_on() == "older@2"
    registry.load_predictor(H200)
    assert "torch 2.11.0, here 2.13.0+cu130, Triton 3.6.0, here 3.7.1" in caplog.text


def test_software_that_is_not_installed_says_nothing(ship, monkeypatch):
    for name in ("torch_version", "triton_version"):
        monkeypatch.setattr(choice, name, lambda: None)
    ship("older", torch=("2.11.0",), triton=("3.6.0",))
    assert registry.differences(registry.resolve("older").manifest) == ()


@pytest.mark.parametrize(
    "name", ["~", "~x", "~nobody/there", "", "\0", "a\0b", "x" * 9999, "@", "a@b"]
)
def test_what_is_no_name_is_no_model(ship, name):
    ship("a")
    with pytest.raises(NoSuchModelError, match="There is no model"):
        registry.resolve(name)


def test_two_models_of_one_number_are_ambiguous(ship, save):
    """Diode ships later what a user has registered: nothing, if it is the same model."""
    for members, ambiguous in ((), False), ((network(9),), True):
        mine = paths.data_dir() / "models" / "nvidia-h200" / "gemm" / "1"
        shutil.rmtree(mine, ignore_errors=True)
        save(mine, name="gemm", members=members)
        if not ambiguous:
            ship("gemm")
            assert registry.resolve("gemm@1").folder == mine
        else:
            with pytest.raises(RegistryError, match="give the folder"):
                registry.resolve("gemm@1")
