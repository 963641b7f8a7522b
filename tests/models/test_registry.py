"""Which models there are, and which one serves a device."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from diode_engine import paths, registry
from diode_engine.errors import ModelError, RegistryError
from diode_engine.hardware import H200
from diode_engine.models.artifact import Artifact
from diode_engine.models.network import Network
from diode_engine.registry import versions

Save = Callable[..., Artifact]
H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_gb_s=3352, l2_bytes=52428800)
A100 = replace(H200, name="NVIDIA A100", arch="8.0", multiprocessors=108)


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place of shipped models."""
    place = tmp_path / "shipped"
    monkeypatch.setattr(paths, "shipped_dir", lambda: place)
    return place / "trained_models"


@pytest.fixture
def model(save: Save, tmp_path: Path) -> Path:
    save(tmp_path / "model")
    return tmp_path / "model"


def ship(save: Save, root: Path, name: str, version: int, **changes: object) -> Path:
    hardware = changes.get("hardware", H200)
    folder = root / hardware.slug / name / str(version)  # type: ignore[attr-defined]
    save(folder, name=name, **changes)
    return folder


def test_versions_count_up_and_are_never_written_over(model: Path) -> None:
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


def test_versions_go_on_after_shipped_ones(save: Save, shipped: Path, model: Path) -> None:
    ship(save, shipped, "mine", 3)
    assert registry.register(model, "mine").version == 4


def test_a_version_taken_meanwhile_is_passed_over(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process registers between our look and our write."""
    registry.register(model, "mine")
    monkeypatch.setattr(versions, "list_models", list)
    assert registry.register(model, "mine").version == 2


def test_what_is_no_model_is_not_registered(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        registry.register(tmp_path / "nowhere")
    with pytest.raises(ModelError, match="cannot name"):
        registry.register(model, "../mine")
    (model / "network-0.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match="bytes"):
        registry.register(model)
    assert registry.list_models() == []


def test_resolving(save: Save, shipped: Path, model: Path) -> None:
    ship(save, shipped, "large", 1)
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


def test_the_same_name_for_two_devices_is_ambiguous(save: Save, shipped: Path) -> None:
    ship(save, shipped, "mine", 1)
    ship(save, shipped, "mine", 1, hardware=A100)
    with pytest.raises(RegistryError, match="more than one"):
        registry.resolve("mine@1")


def test_without_models_there_is_none() -> None:
    assert registry.list_models() == []
    assert registry.best_for(H200) is None
    assert registry.load_predictor(H200) is None


def test_the_best_is_the_default_else_the_newest(save: Save, shipped: Path, model: Path) -> None:
    def best() -> str:
        match = registry.best_for(H200)
        assert match is not None
        assert match.likeness == 1
        return match.model.reference

    ship(save, shipped, "a", 1)
    ship(save, shipped, "b", 1)
    (shipped / "nvidia-h200" / "aliases.json").write_text(json.dumps({"default": "a@1"}))
    assert best() == "a@1"
    mine = registry.register(model, "mine")
    assert best() == "a@1"
    registry.set_default(mine)
    assert best() == "mine@1"
    assert registry.register(model, "mine", default=True).reference == best() == "mine@2"
    predictor = registry.load_predictor(H200)
    assert predictor is not None
    assert predictor.identity == mine.manifest.identity


def test_the_nearest_device_serves_and_says_so(
    save: Save, shipped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ship(save, shipped, "far", 1, hardware=A100)
    slow = replace(H100, name="NVIDIA H100 PCIe", clock_mhz=1755, memory_gb_s=2039)
    assert 0 < H200.likeness(slow) < registry.LEAST_LIKENESS
    ship(save, shipped, "slow", 1, hardware=slow)
    assert registry.load_predictor(H200) is None
    ship(save, shipped, "near", 1, hardware=H100)
    match = registry.best_for(H200)
    assert match is not None
    assert match.model.name == "near"
    assert registry.LEAST_LIKENESS <= match.likeness < 1
    with caplog.at_level(logging.INFO, logger="diode_engine.registry"):
        registry.load_predictor(H200)
    assert "There is no model for NVIDIA H200; near@1, trained on NVIDIA H100" in caplog.text
    ship(save, shipped, "own", 1)
    match = registry.best_for(H200)
    assert match is not None
    assert match.model.name == "own"
    assert match.likeness == 1


def test_another_purpose_is_another_model(save: Save, shipped: Path) -> None:
    ship(save, shipped, "conv", 1, purpose="convolution")
    assert registry.best_for(H200) is None
    assert registry.best_for(H200, "convolution") is not None


def test_a_broken_model_is_passed_over(
    save: Save, shipped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ship(save, shipped, "whole", 1)
    broken = ship(save, shipped, "broken", 1)
    (broken / "manifest.json").write_text("{")
    match = registry.best_for(H200)
    assert match is not None
    assert match.model.name == "whole"
    assert "not valid JSON" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", '{"default": 3}', "[" * 99_999])
def test_a_broken_alias_file_is_refused(save: Save, shipped: Path, text: str) -> None:
    ship(save, shipped, "a", 1)
    path = shipped / "nvidia-h200" / "aliases.json"
    path.write_text(text)
    with pytest.raises(RegistryError, match="alias file"):
        registry.resolve("default")


def test_a_default_that_is_gone_is_said(save: Save, shipped: Path) -> None:
    ship(save, shipped, "a", 1)
    (shipped / "nvidia-h200" / "aliases.json").write_text(json.dumps({"default": "b@1"}))
    with pytest.raises(RegistryError, match="b@1, which does not exist"):
        registry.resolve("default")


def test_other_folders_are_no_versions(save: Save, shipped: Path) -> None:
    folder = ship(save, shipped, "a", 1)
    for name in ("latest", ".unfinished-x"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "manifest.json").write_text("{}")
    (folder.parent / "2").symlink_to(folder)
    assert [m.reference for m in registry.list_models()] == ["a@1"]


def test_the_weights_are_told_apart(
    save: Save, network: Callable[..., Network], shipped: Path
) -> None:
    one = ship(save, shipped, "a", 1)
    two = ship(save, shipped, "a", 2, members=(network(9),))
    assert registry.resolve(str(one)).manifest.identity != (
        registry.resolve(str(two)).manifest.identity
    )
