"""Curves, drawn as often as it takes."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from diode_app.widgets.plot import Line, Lines, Plot
from tests.app.waiting import text_of

FALLING = Lines([Line("loss", (1, 2, 3, 4), (0.5, 0.05, 0.02, 0.001))], log_y=True)


class _Shown(App[None]):
    def compose(self) -> ComposeResult:
        yield Plot()


@pytest.mark.asyncio
async def test_a_logarithmic_curve_is_the_same_after_another_size():
    async with _Shown().run_test(size=(60, 20)) as pilot:
        pilot.app.query_one(Plot).show(FALLING)
        await pilot.pause()
        before = text_of(pilot.app)
        assert "0.5" in before
        await pilot.resize_terminal(80, 30)
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert text_of(pilot.app) == before


@pytest.mark.asyncio
async def test_what_a_logarithm_cannot_show_is_left_out():
    async with _Shown().run_test(size=(60, 20)) as pilot:
        plot = pilot.app.query_one(Plot)
        plot.show(Lines([Line("loss", (1, 2), (0.0, float("nan")))], log_y=True))
        await pilot.pause()
        assert "Nothing to draw yet." in text_of(pilot.app)
