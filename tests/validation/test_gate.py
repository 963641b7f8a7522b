"""The gate before the default."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diode_engine import features, paths, registry
from diode_engine.errors import ModelError, RegistryError
from diode_engine.hardware import H200, Environment
from diode_engine.models.artifact import Coverage, Data, Manifest, save_artifact
from diode_engine.models.network import Network
from diode_engine.problem import Candidate, Problem
from diode_engine.registry import ModelVersion, Status, choice
from diode_engine.table import TimingTable
from diode_engine.training.splits import held_out
from diode_engine.validation import gate

CANDIDATES = (
    Candidate.make("aten::mm"),
    *(
        Candidate.make(
            "triton::mm", BLOCK_M=m, BLOCK_N=m, BLOCK_K=32, num_stages=3, num_warps=4, GROUP_M=8
        )
        for m in (16, 64, 128)
    ),
)
SLUG = H200.slug


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shipped, and torch 2.13 with Triton 3.7 is installed."""
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")
    monkeypatch.setattr(
        choice, "_installed", lambda *names: "2.13.0" if "torch" in names else "3.7.1"
    )


def timings(problems: int = 240, best: int = 1, hardware: Any = H200) -> TimingTable:
    """Each candidate takes what the base time says, ATen twice that, and the candidate `best` half
    of it."""
    asked = tuple(
        Problem.make("mm", 64 + 8 * i, 256 + 64 * (i % 7), 512, "bfloat16") for i in range(problems)
    )
    k = len(CANDIDATES)
    p = np.repeat(np.arange(problems, dtype=np.int32), k)
    c = np.tile(np.arange(k, dtype=np.int32), problems)
    x = features.matrix(asked, CANDIDATES, p, c, H200)
    us = np.exp2(x[:, features.BASE].astype(np.float64))
    us = us * np.where(c == 0, 2, np.where(c == best, 0.5, 1))
    n = len(p)
    return TimingTable(
        asked, CANDIDATES, (Environment(hardware, "570.1", "2.13.0", "3.7.1"),), p, c,
        np.zeros(n, np.int32), us, np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.int32),
        np.zeros(n, np.uint8),
    )  # fmt: skip


@pytest.fixture
def register(tmp_path: Path) -> Callable[..., ModelVersion]:
    """Registers a model that likes large tiles by a `taste` (0: the base time)."""

    def _register(taste: float = 0.0, **changes: Any) -> ModelVersion:
        width = len(features.NAMES)
        weight = np.zeros((width, 1), np.float32)
        weight[features.NAMES.index("log_block_m")] = -taste
        network = Network(
            np.full(width, -1e30, np.float32), np.full(width, 1e30, np.float32),
            np.zeros(width, np.float32), np.ones(width, np.float32),
            ((weight, np.zeros(1, np.float32)),), residual=True,
        )  # fmt: skip
        given = {
            "name": "mine", "family": "", "hardware": H200, "coverage": Coverage.of(timings(2)),
            "data": Data(("d" * 32,), (), 12, 48), "torch": ("2.13.0",), "triton": ("3.7.1",),
            "everything": False, **changes,
        }  # fmt: skip
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        save_artifact(folder, Manifest(**given), (network,))
        return registry.register(folder)

    return _register
