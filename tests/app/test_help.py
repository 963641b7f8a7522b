"""Help for where one is: keys, columns, a search, and a way out."""

import pytest
from textual.widgets import Input

from diode_app.screens.help import Help
from tests.app.trained import make_training
from tests.app.waiting import press, put, running, text_of

SIZE = (120, 50)


@pytest.mark.parametrize("key", ["escape", "question_mark"])
async def test_it_is_for_the_screen_and_closes(make_app, store, key):
    make_training(store, "trees", 0.9)
    async with running(make_app(), SIZE, "R", "question_mark") as (app, pilot):
        assert isinstance(app.screen, Help)
        assert "Here: Runs" in text_of(app)
        assert "Stop this run; what it has written stays." in text_of(app)
        await press(pilot, key)
        assert app.current_mode == "runs"
        assert not app.screen.is_modal


async def test_a_search_finds_columns_and_keys_that_the_user_has_changed(make_app, store, tmp_path):
    (tmp_path / "dashboard.toml").write_text('[keys]\n"runs.cancel" = "x"\n')
    async with running(make_app(), SIZE, "R", "question_mark") as (app, pilot):
        await press(pilot, *"± pinned")
        says = text_of(app)
        assert "Columns of the runs" in says
        assert "its efficiency minus that of the pinned training" in says
        assert "Stop this run" not in says
        await put(pilot, app.screen.query_one(Input), "stop this run")
        assert "x Cancel" in text_of(app)
        await put(pilot, app.screen.query_one(Input), "no such words")
        assert "Nothing here has these words" in text_of(app)
