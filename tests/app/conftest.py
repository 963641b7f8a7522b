"""Dashboards over real stores, and waiting for them without sleeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.worker import WorkerCancelled, WorkerFailed

from diode_app.app import DiodeApp, create_app
from diode_app.data import hardware
from diode_app.data.hardware import Here
from diode_app.data.source import Condition
from diode_engine.hardware import H200
from diode_engine.store import Store


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """An H200 is here: looking for the real hardware takes torch, and seconds."""
    found = Here(H200, 2, {"torch": "2.13.0", "triton": "3.7.1"})

    async def look_around() -> Here:
        return found

    monkeypatch.setattr(hardware, "look_around", look_around)
    monkeypatch.setattr("diode_app.screens.home.look_around", look_around)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "diode.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as store:
        yield store


@pytest.fixture
def make_app(path: Path, tmp_path: Path) -> Callable[..., DiodeApp]:
    """Over the store at `path`; it looks at it when it is told to, and never by itself."""

    def make(**options: object) -> DiodeApp:
        options = {"settings_path": tmp_path / "dashboard.toml", "poll_seconds": 3600, **options}
        return create_app(path, **options)  # type: ignore[arg-type]

    return make


async def settled(pilot: Pilot[None]) -> None:
    """Until no worker works and no message waits."""
    for _ in range(20):
        await pilot.pause()
        waiting = [w for w in pilot.app.workers if not w.is_finished and w.group not in ENDLESS]
        if not waiting:
            await pilot.pause()
            if all(w.is_finished or w.group in ENDLESS for w in pilot.app.workers):
                return
        for worker in waiting:
            try:
                await worker.wait()
            except (WorkerCancelled, WorkerFailed):
                assert worker.error is None, worker.error


# Workers that wait for a person.
ENDLESS = frozenset({"acting", "export"})


async def started(pilot: Pilot[None]) -> None:
    """Until the first look at the store is shown."""
    await settled(pilot)
    app = pilot.app
    assert isinstance(app, DiodeApp)
    assert app.session.source.last.condition is not Condition.OPENING


async def looked(pilot: Pilot[None]) -> None:
    """After another look at the store."""
    app = pilot.app
    assert isinstance(app, DiodeApp)
    app.action_look()
    await settled(pilot)


def text_of(app: DiodeApp) -> str:
    """What is on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
