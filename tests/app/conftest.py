"""Dashboards over real stores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual import constants
from textual.widgets import Input

from diode_app.app import DiodeApp, create_app
from diode_app.data import hardware
from diode_app.data.hardware import LocalHardware
from diode_engine.core.hardware import H200
from diode_engine.registry import ModelVersion
from diode_engine.store import Store
from tests.app.registered import register_model
from tests.runs.conftest import job  # noqa: F401  # a fixture
from tests.training.conftest import make_timings

# Pictures and columns show local times.
os.environ["TZ"] = "UTC"
time.tzset()


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> list[LocalHardware]:
    """Pretends that two H200 are here, or what a test adds to the list. To look for the real
    hardware takes torch, and seconds."""
    found = [LocalHardware(H200, 2, {"torch": "2.13.0", "triton": "3.7.1"})]

    async def find_hardware() -> LocalHardware:
        return found[-1]

    monkeypatch.setattr(hardware, "find_hardware", find_hardware)
    monkeypatch.setattr("diode_app.screens.home.find_hardware", find_hardware)
    return found


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No screen is made ahead, nothing blinks or is animated, the garbage collector stays as it is,
    no part of a frame is rendered alone, since no terminal shows it, and a pilot waits until the
    process is idle for 5 ms, not 20."""
    gc = SimpleNamespace(freeze=lambda: None, get_count=lambda: (0, 0, 0))
    monkeypatch.setattr("diode_app.app.gc", gc)
    monkeypatch.setattr("diode_app.app.MADE_AHEAD", ())  # each test would make all screens
    monkeypatch.setattr(Input.cursor_blink, "_default", False)
    monkeypatch.setattr(constants, "TEXTUAL_ANIMATIONS", "none")
    unseen = "textual._compositor.Compositor.render_partial_update"
    monkeypatch.setattr(unseen, lambda compositor: compositor._dirty_regions.clear())
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.005)
    monkeypatch.setattr("textual._wait.SLEEP_IDLE", 0.0005)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "diode.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as store:
        yield store


@pytest.fixture
def filled(store: Store) -> Store:
    """The store, with timings of twelve problems."""
    store.import_table(make_timings(12), key="x", spec={"files": ["x"]})
    return store


@pytest.fixture
def timed(store: Store) -> Store:
    """The store, with timings enough to judge a model by."""
    store.import_table(make_timings(60), key="x", spec={})
    return store


@pytest.fixture
def model(tmp_path: Path) -> ModelVersion:
    """The model of this GPU."""
    return register_model(tmp_path, "plain", sure=True, default=True)


@pytest.fixture
def make_app(path: Path, tmp_path: Path) -> Callable[..., DiodeApp]:
    """Makes dashboards over the store at `path`. They look at the store only when they are told
    to."""

    def make(**options: object) -> DiodeApp:
        options = {"settings_path": tmp_path / "dashboard.toml", "poll_seconds": 3600, **options}
        return create_app(path, **options)  # type: ignore[arg-type]

    return make
