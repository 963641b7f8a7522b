"""The screen of settings: every setting has its field, and follows what is set elsewhere."""

from dataclasses import fields

from textual.widgets import Input

from diode_app.settings import Settings, load
from diode_app.widgets.form import Field
from tests.app.waiting import press, put, running, settled, text_of


async def test_every_setting_has_a_field(make_app, store):
    async with running(make_app(), (80, 24), "S") as (app, _pilot):
        shown = {field.name for field in app.screen.query(Field)}
        assert shown == {field.name for field in fields(Settings)}


async def test_saved_filters_are_changed_and_their_mistakes_told(make_app, store, tmp_path):
    async with running(make_app(), (120, 60), "S") as (app, pilot):
        entry = app.screen.query_one("#field-filters Input", Input)
        for wrong, says in (
            ("tall", "tall is not a name, ="),
            ("'tall=models x'", "it must be a place"),
            ("'tall=data m>>4'", "m>>4"),
        ):
            await put(pilot, entry, wrong)
            assert says in text_of(app)
            assert not (tmp_path / "dashboard.toml").exists()
        await put(pilot, entry, "'tall=data op:bmm m>4096' night=\"runs tag:night\"")
    kept = {"tall": "data op:bmm m>4096", "night": "runs tag:night"}
    assert dict(load(tmp_path / "dashboard.toml").filters) == kept


async def test_what_is_set_elsewhere_is_shown_and_not_lost(make_app, filled, tmp_path):
    async with running(make_app(), (80, 60), "S") as (app, pilot):
        await pilot.press("comma", "D")  # another theme
        await settled(pilot)
        await press(pilot, "slash", *"op:bmm", "enter", "b", *"mine", "enter", "S")
        assert app.screen.query_one("#field-theme", Field).value == app.theme
        entry = app.screen.query_one("#field-filters Input", Input)
        assert entry.value == "'mine=data op:bmm'"
        entry.value += " 'night=runs tag:night'"
        await settled(pilot)
        await press(pilot, "r", "y")
    assert set(load(tmp_path / "dashboard.toml").filters) == {"mine", "night"}
