"""Pictures of Validate and Models with reports and models to show, and of the pages behind them."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from diode_app.app import create_app
from diode_app.screens.validate_new import NewValidationScreen
from diode_engine import registry
from diode_engine.models import artifact
from diode_engine.registry import facts
from diode_engine.store import Store
from diode_engine.validation import choosers
from tests.app.judged import judge
from tests.app.registered import register_model
from tests.app.test_pictures import SIZES, fixed, picture_of, pictures
from tests.app.waiting import settled, started
from tests.training.conftest import make_timings

__all__ = ["fixed", "pictures"]  # fixtures
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
REFUSED = {
    "model": "stages@1", "against": "plain@1", "promoted": False,
    "checks": [
        {"name": "loads", "passed": True, "found": "Its files are whole."},
        {"name": "efficiency", "passed": False, "found": "Its efficiency is 0.7, that of plain@1 "
         "0.8 (10th percentile 0.6)."},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _dated(monkeypatch: pytest.MonkeyPatch, fixed: None) -> None:
    """Models have a fixed date, and nvMatmulHeuristics is not installed."""
    clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda _: NOW), UTC=dt.UTC)
    monkeypatch.setattr(artifact, "dt", clock)
    monkeypatch.setattr(facts, "dt", clock)
    monkeypatch.setattr(artifact, "__version__", "0.1.0")
    monkeypatch.setattr(choosers, "nv_matmul_heuristics", lambda _: (None, ()))

    words = ("diode-engine", "validate", "--store=diode.db")
    monkeypatch.setattr(NewValidationScreen, "values", lambda _: {"command": words})

    async def run_command(_: object) -> str:
        return json.dumps(REFUSED)

    monkeypatch.setattr("diode_app.data.store_access.run_command", run_command)


def fill(path: Path) -> None:
    """Two models, each judged; one is the default."""
    stages = register_model(Path("made"), "stages", stage=0.1)
    plain = register_model(Path("made"), "plain", sure=True)
    registry.set_default(plain, reason="the first")
    registry.set_verdict(plain, registry.ModelStatus.VALIDATED, {**REFUSED, "passed": True})
    registry.tag(stages, ["night"])
    with Store.open(path) as store:
        store.import_table(make_timings(80), key="x", spec={"file": "gemm.msgpack.zst"})
        for model in (stages, plain):
            judge(store, model)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE runs SET started = 1.79e9 + 600 * id")


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_pages(pictures: SnapshotAssertion, size):
    path = Path("diode.db")
    fill(path)
    app = create_app(path, settings_path=Path("dashboard.toml"), poll_seconds=3600)
    changed = []
    async with app.run_test(size=size) as pilot:
        await started(pilot)

        async def look(name: str, *keys: str) -> None:
            for key in keys:
                await pilot.press(key)
                await settled(pilot)
            if picture_of(app, size) != pictures(name=name):
                changed.append(name)

        await look("home")
        await look("figures", "V")
        await look("curves", "v")
        await look("groups", "b")
        await look("worst", "w")
        await look("sure", "h")
        await look("reports", "r")
        await look("against", "a")
        await look("new", "escape", "n")
        await look("models", "escape", "M")
        await look("refused", "down", "p")
        await look("model", "n", "up", "enter")
        await look("lineage", "l")
        await look("card", "f")
        await look("gate", "z")
        await look("history", "h")
        await look("comparison", "escape", "c", "enter")
    assert changed == []
