"""What makes lists quick to work with: j k g G, earlier and saved filters, rows as text, paths that
complete."""

import tomllib

import pytest
from textual.widgets import Input

from diode_app.settings import Settings, SettingsError
from diode_app.widgets.files import complete_path
from diode_app.widgets.filter_box import FilterBox
from diode_app.widgets.modals import Prompt
from diode_engine.runs.process import current_process
from tests.app.judged import judge
from tests.app.trained import make_training
from tests.app.waiting import press, put, running, toasts


@pytest.fixture
def five(store):
    return [make_training(store, "trees", 0.9) for _ in range(5)]


async def test_keys_as_in_vim_move_in_a_table(make_app, five):
    async with running(make_app(), (80, 24), "R", "j", "j") as (app, pilot):
        assert app.screen.run == five[2]
        await press(pilot, "k")
        assert app.screen.run == five[3]
        await press(pilot, "G")
        assert app.screen.run == five[0]
        await press(pilot, "g")
        assert app.screen.run == five[4]
        await press(pilot, "slash", "j", "g")  # in a field they are letters
        assert app.screen.query_one(FilterBox).query_one(Input).value == "jg"


async def test_filters_of_before_come_back(make_app, five):
    async with running(make_app(), (80, 24)) as (app, pilot):
        for query in ("kind:train", "id:1", "kind:train"):
            await press(pilot, "R", "slash")
            app.screen.query_one(FilterBox).query_one(Input).value = query
            await press(pilot, "enter")
        await press(pilot, "slash", "up", "up", "up")
        assert app.screen.query_one(FilterBox).query_one(Input).value == "id:1"
        await press(pilot, "down", "enter")
        assert app.screen.table.query_now.filter == "kind:train"


async def test_a_filter_with_a_name_is_kept_and_forgotten(make_app, five, tmp_path):
    async with running(make_app(), (100, 30), "R", "b") as (app, pilot):
        assert "The list has no filter" in toasts(app)[-1]
        await press(pilot, "slash")
        app.screen.query_one(FilterBox).query_one(Input).value = "id<3"
        await press(pilot, "enter", "b")
        assert isinstance(app.screen, Prompt)
        await press(pilot, *"old", "enter")
        written = tomllib.loads((tmp_path / "dashboard.toml").read_text())
        assert written["filters"] == {"old": "runs id<3"}
        await press(pilot, "escape", "colon", *"filter old", "enter")
        assert app.screen.table.query_now.filter == "id<3"
        await press(pilot, "escape", "b", *"old", "enter")
        written = tomllib.loads((tmp_path / "dashboard.toml").read_text())
        assert "filters" not in written


@pytest.mark.parametrize("query", ["nowhere op:mm", 3, ""])
def test_a_filter_is_of_a_place(query):
    with pytest.raises(SettingsError, match="runs or data or sql"):
        Settings(filters={"x": query})


async def test_the_rows_are_copied_as_text(make_app, store):
    run = make_training(store, "trees", 0.9)
    store.start_run("validate", {}, process=current_process())
    async with running(make_app(), (80, 24), "R", "Y") as (app, _pilot):
        head, *rows = app.clipboard.splitlines()
        assert head.startswith("run  kind")
        assert "changed settings" in head  # also the columns that there is no room for
        assert len(rows) == 2
        at = head.index("of best")
        assert rows[1][at : at + 5].strip() == "0.900"
        assert rows[1].startswith(f"{run}    train")
        assert "2 runs are copied as text." in toasts(app)


def test_paths_complete(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "model.zip").touch()
    (tmp_path / ".model").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    whole = lambda given: complete_path(given, len(given))  # noqa: E731
    assert whole("mo") == ["model.zip", "models/"]
    assert whole(f"{tmp_path}/models") == [f"{tmp_path}/models/"]
    assert whole("~/mod") == ["~/model.zip", "~/models/"]
    assert whole(".m") == [".model"]
    assert whole("first.json mo") == ["first.json model.zip", "first.json models/"]
    assert whole("nowhere/x") == whole("") == whole("~nobody/x") == []


async def test_a_question_for_a_file_completes_it(make_app, store, tmp_path):
    (tmp_path / "timings.json").touch()
    async with running(make_app(), (100, 30), "D", "i") as (app, pilot):
        assert isinstance(app.screen, Prompt)
        await put(pilot, app.screen.query_one(Input), f"{tmp_path}/tim")
        await press(pilot, "end", "right")
        assert app.screen.query_one(Input).value == f"{tmp_path}/timings.json"


async def test_every_screen_is_copied_as_text(make_app, timed, model):
    """The table, wherever the focus is; where there is none, what the screen shows."""
    judge(timed, model)
    holds = {
        "H": "Model in use", "R": "run  kind", "C": "operators", "D": "id  op", "W": "candidate",
        "T": "Family", "V": "who chooses", "M": "model", "S": "Kept in", "A": "python is",
    }  # fmt: skip
    async with running(make_app(), (80, 24)) as (app, pilot):
        for key, words in holds.items():
            app.copy_to_clipboard("")
            app.set_focus(None)
            await press(pilot, key, "Y")
            assert words.lower() in app.clipboard.lower(), key
            assert not any(line != line.rstrip() for line in app.clipboard.splitlines())
        for keys in (["enter"], ["2"], ["escape", "m"], ["escape", "R", "tab", "enter"]):
            if keys == ["enter"]:
                await press(pilot, "D", "tab")
            app.copy_to_clipboard("")
            await press(pilot, *keys, "Y")
            assert len(app.clipboard.split()) > 3, keys
