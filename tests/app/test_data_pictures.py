"""Pictures of the pages behind Data, and of What would it choose? with models to ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from diode_app.app import create_app
from tests.app.registered import register_model
from tests.app.test_pictures import SIZES, fill, fixed, picture_of, pictures
from tests.app.waiting import settled, started

__all__ = ["fixed", "pictures"]  # fixtures


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_pages(pictures: SnapshotAssertion, size):
    path = Path("diode.db")
    fill(path)
    register_model(Path("made"), "stages", stage=0.3)
    register_model(Path("made"), "plain", sure=True, default=True)
    app = create_app(path, settings_path=Path("dashboard.toml"), poll_seconds=3600)
    changed = []
    async with app.run_test(size=size) as pilot:
        await started(pilot)

        async def look(name: str, *keys: str) -> None:
            await pilot.press(*keys)
            await settled(pilot)
            if picture_of(app, size) != pictures(name=name):
                changed.append(name)

        await look("problem", "D", "down", "enter")
        await look("failed", "f")
        await look("plot", "p")
        await look("map", "escape", "m")
        await pilot.press("escape", "down", "down", "w")
        await look("ask")
        other = app.screen.query_one("#ask-other")
        other.value = next(value for name, value in other._options if name == "stages@1")
        await settled(pilot)
        await look("ask-two", "down")
        await look("why", "w")
        await look("pick", "p")
    assert changed == []
