"""Help for where one is: keys, columns, a search, and a way out."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from diode_app.column_help import meaning
from diode_app.screens.help import Help
from diode_app.screens.models import ModelsScreen
from diode_app.screens.places import PLACES
from diode_app.settings import PROBLEM_COLUMNS, RUN_COLUMNS
from diode_app.widgets.table import PagedTable
from tests.app.trained import make_training
from tests.app.waiting import settled, started, text_of

pytestmark = pytest.mark.asyncio


async def open_help(pilot, *keys: str) -> None:
    await started(pilot)
    await pilot.press(*keys, "question_mark")
    await settled(pilot)
    assert isinstance(pilot.app.screen, Help)


@pytest.mark.parametrize("key", ["escape", "question_mark"])
async def test_it_is_for_the_screen_and_closes(make_app, store, key):
    make_training(store, "trees", 0.9)
    app = make_app()
    async with app.run_test(size=(120, 50)) as pilot:
        await open_help(pilot, "R")
        says = text_of(app)
        assert "Here: Runs" in says
        assert "Stop this run; what it has written stays." in says
        await pilot.press(key)
        await settled(pilot)
        assert app.current_mode == "runs"
        assert not app.screen.is_modal


async def test_a_search_finds_what_a_column_means_with_its_unit(make_app, store):
    app = make_app()
    async with app.run_test(size=(120, 50)) as pilot:
        await open_help(pilot, "R")
        await pilot.press(*"± pinned")
        await settled(pilot)
        says = text_of(app)
        assert "Columns of the runs" in says
        assert "its efficiency minus that of the pinned training" in says
        assert "Stop this run" not in says
        app.screen.query_one(Input).value = "no such words"
        await settled(pilot)
        assert "Nothing here has these words" in text_of(app)


async def test_keys_that_the_user_has_changed_are_shown(make_app, store, tmp_path):
    (tmp_path / "dashboard.toml").write_text('[keys]\n"runs.cancel" = "x"\n')
    app = make_app()
    async with app.run_test(size=(120, 50)) as pilot:
        await open_help(pilot, "R")
        await pilot.press(*"stop this run")
        await settled(pilot)
        assert "x Cancel" in text_of(app)


async def test_every_column_of_the_lists_has_a_meaning(make_app, store):
    assert [key for key in RUN_COLUMNS if not meaning("runs", key)] == []
    assert [key for key in PROBLEM_COLUMNS if not meaning("problems", key)] == []
    app = make_app()
    async with app.run_test(size=(120, 50)) as pilot:
        await started(pilot)
        for place in PLACES:
            await pilot.press(place.key)
            await settled(pilot)
            for table in app.screen.query(PagedTable):
                unknown = [c.key for c in table.columns if not meaning(table.what, c.key)]
                assert unknown == [], (place.mode, table.what)
        assert ModelsScreen.MODE == "models"
