"""A small made-up world: problems, a few candidates, and a rule for their times."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diode_engine import features, paths, registry
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.models.artifact import Artifact, save_artifact
from diode_engine.models.cascade import Cascade
from diode_engine.models.confidence import Confidence
from diode_engine.models.coverage import Coverage
from diode_engine.models.distilled import DistilledNetwork, quantize
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.network import Network
from diode_engine.models.protocol import TimingModel
from tests.samples import pairs, table_of, tile


@pytest.fixture(scope="session")
def candidates() -> tuple[Candidate, ...]:
    tiles = [
        tile(m, n, k, s, w)
        for m in (16, 64, 128)
        for n in (32, 128)
        for k in (32, 64)
        for s, w in ((2, 4), (4, 8))
        if w <= m * n / 256
    ]
    return (*tiles, Candidate.make("aten::mm"), Candidate.make("decompose_k", k_split=4))


@pytest.fixture(scope="session")
def problems() -> tuple[Problem, ...]:
    rng = np.random.default_rng(3)
    types = ("float16", "bfloat16", "float32")
    return tuple(
        Problem.make("mm", *(int(2**v) for v in rng.uniform(2, 12, 3)), types[i % 3])
        for i in range(160)
    )


@pytest.fixture(scope="session")
def table(problems: tuple[Problem, ...], candidates: tuple[Candidate, ...]) -> TimingTable:
    """All pairs, timed by a rule: a third more for each power of two between BLOCK_M and M."""
    p, c = pairs(len(problems), len(candidates))
    size = np.array([[q.M, q.flops] for q in problems])[p]
    block = np.array([float(k.config.get("BLOCK_M", 100)) for k in candidates])[c]
    off = np.abs(np.log2(block) - np.clip(np.log2(size[:, 0]), 4, 7))
    us = (3 + size[:, 1] / 3e8) * (4 / 3) ** off
    return table_of(problems, candidates, us)


def network(seed: int = 0, residual: bool = True) -> Network:
    """A network with made-up weights."""
    rng = np.random.default_rng(seed)
    width = len(features.NAMES)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) / 10

    return Network(
        np.full(width, -50, np.float32), np.full(width, 50, np.float32), random(width),
        np.ones(width, np.float32),
        ((random(width, 8), random(8)), (random(8, 1), random(1))),
        residual,
    )  # fmt: skip


@pytest.fixture(scope="session")
def x(table: TimingTable) -> np.ndarray:
    """The features of the table's rows."""
    return features.matrix(table.problems, table.candidates, table.problem, table.candidate, H200)


def network_on(
    x: np.ndarray, seed: int, hidden: tuple[int, ...] = (24,), heads: int = 1
) -> Network:
    """A network with made-up weights and the scales of these features."""
    rng = np.random.default_rng(seed)
    layers = tuple(
        (
            (rng.standard_normal(pair) / pair[0] ** 0.5).astype(np.float32),
            rng.standard_normal(pair[1]).astype(np.float32) / 10,
        )
        for pair in itertools.pairwise((x.shape[1], *hidden, heads))
    )
    spread = x.std(axis=0)
    scale = np.where(spread > 0, 1 / np.maximum(spread, 1e-6), 0).astype(np.float32)
    return Network(x.min(axis=0), x.max(axis=0), x.mean(axis=0), scale, layers, True)


HIDDEN = (96, 48)


@pytest.fixture(scope="session")
def distilled(x: np.ndarray) -> DistilledNetwork:
    return quantize(network_on(x, 5, HIDDEN, heads=2), x)


@pytest.fixture(scope="session")
def cascade(x: np.ndarray) -> Cascade:
    """Of three teachers, of which the second has no network."""
    first = quantize(network_on(x, 1, heads=3), x)
    teachers = {place: quantize(network_on(x, 2 + place), x) for place in (0, 2)}
    return Cascade(first, teachers, sieve=first)


Save = Callable[..., Artifact]


def ship_default(shipped: Path, reference: str, hardware: Hardware = H200) -> None:
    """Makes this model the shipped default of the GPU."""
    aliases = shipped / hardware.slug / "aliases.json"
    aliases.write_text(json.dumps({"default": reference}))


def taken_on(hardware: Hardware = H200) -> str:
    """The model that the registry takes on this GPU."""
    return registry.best_for(hardware).model.reference  # type: ignore[union-attr]


@pytest.fixture
def save(tmp_path: Path, table: TimingTable) -> Save:
    """Saves a model, by default a network with made-up weights on an H200."""

    def _save(
        folder: Path | None = None,
        members: tuple[TimingModel, ...] = (),
        confidence: Confidence | None = None,
        **changes: object,
    ) -> Artifact:
        fields = {
            "name": "small", "family": "", "hardware": H200, "coverage": Coverage.make(table),
            "data": Data(("d" * 32,), (), len(table.problems), len(table)), **changes,
        }  # fmt: skip
        manifest = Manifest(**fields)  # type: ignore[arg-type]
        return save_artifact(
            folder or tmp_path / "model", manifest, members or (network(),), confidence
        )

    return _save


@pytest.fixture
def model(save: Save, tmp_path: Path) -> Path:
    """The folder of a saved model."""
    save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place of shipped models."""
    place = tmp_path / "shipped"
    monkeypatch.setattr(paths, "shipped_dir", lambda: place)
    return place / "trained_models"


@pytest.fixture
def ship(save: Save, shipped: Path) -> Callable[..., Path]:
    """Puts a model among the shipped ones; its folder."""

    def _ship(name: str, version: int = 1, **changes: object) -> Path:
        hardware = changes.get("hardware", H200)
        folder = shipped / hardware.slug / name / str(version)  # type: ignore[attr-defined]
        save(folder, name=name, **changes)
        return folder

    return _ship
